// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/mailbox.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/message_limits.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint64_t kReleaseBytes =
    kRingBytes / 4;  // So much is given back in the middle of a Poll.

// Of the sends to receivers whose bells are put off already, each so-manieth looks for room to ring.
constexpr uint32_t kLookEach = 16;

// Copies `size` bytes from `offset` on of `head` followed by `tail`.
void CopyPiece(char* to, std::string_view head, std::string_view tail, size_t offset, size_t size) {
  if (offset < head.size()) {
    const size_t from_head = std::min(size, head.size() - offset);
    std::memcpy(to, head.data() + offset, from_head);
    to += from_head;
    size -= from_head;
    offset = head.size();
  }
  if (size != 0) std::memcpy(to, tail.data() + (offset - head.size()), size);
}

}  // namespace

class Mailbox::PeerChannel final : public Channel {
 public:
  PeerChannel(Mailbox& mailbox, ProcessId peer) : mailbox(mailbox), peer(peer) {}

  void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
    const size_t size = head.size() + tail.size();
    ++(lane == Lane::kWork ? mailbox.counts_.work_frames : mailbox.counts_.control_frames);
    mailbox.counts_.bytes += size;
    if (open(lane) && size <= kMaxRecordBody) [[likely]] {
      if (char* body = writer(lane).Reserve(kind, size)) [[likely]] {
        CopyPiece(body, head, tail, 0, size);
        if (mailbox.polling_ != 0) {
          mailbox.AddToBatch(*this, lane);
        } else {
          writer(lane).Publish();
          mailbox.TellInTime(*this, lane);
        }
        return;
      }
    }
    if (!dead) SendSlowly(lane, kind, head, tail);
  }
  size_t queued_bytes() const override { return queued; }

  struct Queued {
    FrameKind kind;
    bool more;
    std::string body;
    size_t cost() const { return sizeof(Queued) + body.size(); }
  };

  // Long, or without room: the pieces that fit go into the ring, the others wait.
  void SendSlowly(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) {
    const size_t size = head.size() + tail.size();
    if (size > kMaxBodyBytes) {
      Log(LogLevel::kError, "a frame of kind ", static_cast<int>(kind), " for ", peer.ToString(),
          " has ", size, " bytes; at most ", kMaxBodyBytes, " can be sent, so it goes nowhere");
      return;
    }
    mailbox.CloseBatch();
    size_t offset = 0;
    bool more = true;
    while (more) {
      const size_t piece = std::min(size - offset, kMaxRecordBody);
      more = offset + piece < size;
      char* body = open(lane) ? writer(lane).Reserve(kind, piece, more) : nullptr;
      if (body != nullptr) {
        CopyPiece(body, head, tail, offset, piece);
        SHEAF_FAILPOINT("shm.piece");
        writer(lane).Publish();
        mailbox.TellInTime(*this, lane);
      } else {
        std::string waiting(piece, '\0');
        CopyPiece(waiting.data(), head, tail, offset, piece);
        if (!has_queued()) ++mailbox.queued_channels_;
        queue(lane).push_back({kind, more, std::move(waiting)});
        queued += queue(lane).back().cost();
        ++mailbox.counts_.waited;
      }
      offset += piece;
    }
    if (ring && has_queued()) {
      mailbox.Watch(*this);
      mailbox.Flush(*this);
    }
  }

  // A frame may go straight into the ring.
  bool open(Lane lane) { return ring && !dead && queue(lane).empty(); }
  RingWriter& writer(Lane lane) { return lane == Lane::kWork ? ends.work_out : ends.control_out; }
  RingReader& reader(Lane lane) { return lane == Lane::kWork ? ends.work_in : ends.control_in; }
  std::deque<Queued>& queue(Lane lane) { return queues[static_cast<int>(lane)]; }
  bool has_queued() const { return queued != 0; }  // Each frame costs something.

  Mailbox& mailbox;
  const ProcessId peer;
  Bell* bell = nullptr;
  bool ring = false;
  bool watched = false;    // In watched_.
  uint32_t quiet = 0;      // Polls since it was heard of.
  uint32_t call = 0;       // Its bit.
  bool dead = false;       // Forgotten: destroyed once no Poll is on the stack.
  bool put_off = false;    // In put_off_.
  bool malformed = false;  // Wrote garbage: nothing more is read.
  // Depth of PollLane: only the outermost gives bytes back, handlers still look at them.
  int reading = 0;
  RingEnds ends;
  std::deque<Queued> queues[2];
  size_t queued = 0;
  Mapping segment;
  std::string partial[2];  // Pieces of a long frame so far, per lane.
  FrameKind partial_kind[2] = {FrameKind::kNone, FrameKind::kNone};
};

Mailbox::Mailbox(Bell* board, uint32_t own_bell, std::function<void(ProcessId)> make_contact)
    : board_(board), own_bell_(own_bell), make_contact_(std::move(make_contact)) {
  SHEAF_CHECK(own_bell < kMaxProcessesPerNode, "own bell is not on the board");
}
Mailbox::~Mailbox() = default;

Channel& Mailbox::To(ProcessId peer) {
  if (last_to_ != nullptr && last_to_->peer == peer) return *last_to_;
  auto found = by_peer_.find(peer);
  if (found != by_peer_.end()) return *(last_to_ = found->second);
  channels_.push_back(std::make_unique<PeerChannel>(*this, peer));
  PeerChannel& made = *channels_.back();
  by_peer_.emplace(peer, &made);
  if (make_contact_) {
    ++polling_;  // It may forget the peer at once: the channel must outlive this call.
    make_contact_(peer);
    if (--polling_ == 0) CloseBatch();
  }
  return made;
}

void Mailbox::Forget(ProcessId peer) {
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  PeerChannel& channel = *found->second;
  if (batch_ == &channel) batch_ = nullptr;
  if (last_to_ == &channel) last_to_ = nullptr;
  if (channel.has_queued()) --queued_channels_;
  if (channel.ring && !channel.watched) --unwatched_;
  for (auto& queue : channel.queues) queue.clear();
  channel.queued = 0;
  channel.dead = true;
  by_peer_.erase(found);
  forgotten_ = true;
  ++polling_;
  EndPolling();
}

void Mailbox::EndPolling() {
  if (batch_ != nullptr) CloseBatch();
  if (--polling_ == 0 && forgotten_) [[unlikely]]
    DeleteForgotten();
}

void Mailbox::DeleteForgotten() {
  std::erase_if(put_off_, [](const PeerChannel* channel) { return channel->dead; });
  std::erase_if(watched_, [](const PeerChannel* channel) { return channel->dead; });
  for (const auto& channel : channels_) {
    if (channel->dead && channel->ring) std::erase(by_call_[channel->call], channel.get());
  }
  std::erase_if(channels_, [](const auto& channel) { return channel->dead; });
  forgotten_ = false;
}

absl::Status Mailbox::AddRing(ProcessId peer, int segment_fd, bool first, uint32_t peer_bell) {
  if (peer_bell >= kMaxProcessesPerNode) {
    return absl::InvalidArgumentError(absl::StrCat("bell ", peer_bell, " is not on the board"));
  }
  SHEAF_RETURN_IF_ERROR(CheckSegment(segment_fd, kRingPairBytes));
  if (HasRing(peer)) return absl::AlreadyExistsError(absl::StrCat("a ring with ", peer.ToString()));
  SHEAF_ASSIGN_OR_RETURN(Mapping segment,
                         Mapping::Map(segment_fd, 0, kRingPairBytes, Access::kReadWrite));
  SHEAF_RETURN_IF_ERROR(segment.DontFork());
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) {
    channels_.push_back(std::make_unique<PeerChannel>(*this, peer));
    found = by_peer_.emplace(peer, channels_.back().get()).first;
  }
  PeerChannel& channel = *found->second;
  channel.segment = std::move(segment);
  channel.ends = OpenRingPair(channel.segment.data(), first);
  channel.bell = &board_[peer_bell];
  channel.ring = true;
  channel.call = peer_bell % kCallBits;
  by_call_[channel.call].push_back(&channel);
  ++unwatched_;
  Watch(channel);
  if (channel.has_queued()) Flush(channel);
  return absl::OkStatus();
}

bool Mailbox::HasRing(ProcessId peer) const {
  auto found = by_peer_.find(peer);
  return found != by_peer_.end() && found->second->ring;
}

void Mailbox::AddToBatch(PeerChannel& channel, Lane lane) {
  if (batch_ != &channel || batch_lane_ != lane) {
    CloseBatch();
    batch_ = &channel;
    batch_lane_ = lane;
    batch_frames_ = 0;
  }
  if (++batch_frames_ == kBatchFrames) CloseBatch();
}

void Mailbox::CloseBatch() {
  if (batch_ == nullptr) return;
  SHEAF_FAILPOINT("shm.batch");
  batch_->writer(batch_lane_).Publish();
  TellInTime(*batch_, batch_lane_);
  batch_ = nullptr;
}

void Mailbox::PutBellsOff(const Clock& clock, size_t at_once) {
  at_once_ = at_once;
  rung_.emplace(clock, kWaitingTimes * at_once);
}

void Mailbox::RingPutOff(size_t at_once) {
  while (!put_off_.empty() && (at_once == SIZE_MAX || rung_->HasRoom(at_once))) {
    PeerChannel& channel = *put_off_.front();
    put_off_.pop_front();
    channel.put_off = false;
    if (!channel.dead) Tell(channel, Lane::kWork, Lane::kWork);
  }
}

void Mailbox::TellInTime(PeerChannel& channel, Lane lane) {
  if (lane == Lane::kControl || !rung_) return Tell(channel, lane, lane);
  if (channel.put_off) {
    if (++sends_behind_ % kLookEach == 0) RingPutOff(at_once_);
    return;
  }
  // Without a fence: a receiver that seems to sleep and does not is told later, in vain; one that
  // seems awake is told at once.
  if (rung_->HasRoomForSure(at_once_) || channel.bell->state.load(std::memory_order_relaxed) !=
                                             static_cast<uint32_t>(BellState::kAsleep))
    return Tell(channel, lane, lane);
  channel.put_off = true;
  put_off_.push_back(&channel);
  RingPutOff(at_once_);
}

void Mailbox::Tell(PeerChannel& channel, Lane lane, Lane as) {
  Bell& bell = *channel.bell;
  FullFence(bell.state);
  if (channel.writer(lane).TakeUnwatched()) [[unlikely]] {
    SHEAF_FAILPOINT("shm.call");
    CallReader(bell, own_bell_);
    FullFence(bell.state);
  }
  if (!RingBellFenced(bell, as)) return;
  ++counts_.wakes;
  if (rung_) rung_->Add(bell);
}

void Mailbox::TakeCalls() {
  if (unwatched_ == 0) return;
  for (uint32_t word = 0; word < kCallWords; ++word) {
    std::atomic<uint64_t>& calls = bell().calls[word];
    if (calls.load(std::memory_order_relaxed) == 0) [[likely]]
      continue;
    uint64_t bits = calls.exchange(0, std::memory_order_seq_cst);
    for (; bits != 0; bits &= bits - 1) {
      const auto found = by_call_.find(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      if (found == by_call_.end()) continue;
      for (PeerChannel* channel : found->second) {
        if (!channel->dead) Watch(*channel);
      }
    }
  }
}

void Mailbox::Watch(PeerChannel& channel) {
  channel.quiet = 0;
  if (std::exchange(channel.watched, true)) return;
  for (Lane lane : {Lane::kControl, Lane::kWork}) channel.reader(lane).Watch();
  watched_.push_back(&channel);
  --unwatched_;
}

bool Mailbox::Unwatch(PeerChannel& channel) {
  channel.quiet = 0;
  if (channel.has_queued()) return false;
  if (!channel.malformed) {
    for (Lane lane : {Lane::kControl, Lane::kWork}) channel.reader(lane).Unwatch();
    FullFence(bell().state);
    if (channel.reader(Lane::kControl).Pending() || channel.reader(Lane::kWork).Pending()) {
      for (Lane lane : {Lane::kControl, Lane::kWork}) channel.reader(lane).Watch();
      return false;
    }
  }
  channel.watched = false;
  std::erase(watched_, &channel);
  ++unwatched_;
  return true;
}

void Mailbox::LookAtAll() {
  for (const auto& channel : channels_) {
    if (!channel->ring || channel->watched || channel->dead || channel->malformed) continue;
    if (channel->reader(Lane::kControl).Pending() || channel->reader(Lane::kWork).Pending())
      Watch(*channel);
  }
}

void Mailbox::Flush(PeerChannel& channel) {
  CloseBatch();
  FlushLane(channel, Lane::kControl);
  FlushLane(channel, Lane::kWork);
  if (!channel.has_queued()) --queued_channels_;
}

void Mailbox::FlushLane(PeerChannel& channel, Lane lane) {
  auto& queue = channel.queue(lane);
  if (queue.empty()) return;
  RingWriter& out = channel.writer(lane);
  bool news = false;
  int asks = 0;  // A peer that clears the flag and makes no room does not keep this process here.
  while (!queue.empty()) {
    const PeerChannel::Queued& next = queue.front();
    char* body = out.Reserve(next.kind, next.body.size(), next.more);
    if (body != nullptr) {
      std::memcpy(body, next.body.data(), next.body.size());
      channel.queued -= next.cost();
      queue.pop_front();
    } else if (out.RoomWasMade() && ++asks < 4) {
      out.Publish();
      out.AskForRoom();
    } else {
      break;  // Asked, and tried again since.
    }
    news = true;
  }
  if (!news) return;
  out.Publish();
  // A full work ring is a reason to wake even a busy receiver: it takes the frames into its own
  // memory.
  Tell(channel, lane, queue.empty() ? lane : Lane::kControl);
}

bool Mailbox::TakeRecord(PeerChannel& channel, Lane lane, FrameHandler& handler,
                         const Frame& record, bool more, size_t* handled) {
  std::string& partial = channel.partial[static_cast<int>(lane)];
  FrameKind& kind = channel.partial_kind[static_cast<int>(lane)];
  if (!more && kind == FrameKind::kNone) [[likely]] {
    handler.OnFrame(channel.peer, record);
    ++*handled;
    return true;
  }
  if (kind != FrameKind::kNone && kind != record.kind) return false;
  if (partial.size() + record.body.size() > kMaxBodyBytes) return false;
  kind = record.kind;
  partial.append(record.body);
  if (more) return true;
  const std::string whole = std::exchange(partial, {});
  kind = FrameKind::kNone;
  handler.OnFrame(channel.peer, {record.kind, whole});
  ++*handled;
  return true;
}

size_t Mailbox::PollLane(PeerChannel& channel, Lane lane, FrameHandler& handler, size_t budget) {
  RingReader& in = channel.reader(lane);
  size_t handled = 0;
  Frame record;
  bool more = false;
  ++channel.reading;
  for (size_t taken = 0; taken < budget && !channel.dead; ++taken) {
    const RingReader::Result result = in.Next(&record, &more);
    if (result == RingReader::Result::kEmpty) break;
    if (result == RingReader::Result::kMalformed ||
        !TakeRecord(channel, lane, handler, record, more, &handled)) [[unlikely]] {
      channel.malformed = true;
      handler.OnMalformed(channel.peer);
      break;
    }
    if (channel.malformed) break;  // Found by a Drain in the handler.
    if (in.held_bytes() >= kReleaseBytes && channel.reading == 1) {
      if (in.Release()) Ring(*channel.bell, Lane::kControl);
    }
    if (!in.knows_more()) break;
  }
  if (--channel.reading == 0 && in.held_bytes() != 0 && in.Release()) {
    Ring(*channel.bell, Lane::kControl);
  }
  return handled;
}

size_t Mailbox::Poll(FrameHandler& handler, bool take_work, size_t budget) {
  ++polling_;
  if (!put_off_.empty()) [[unlikely]]
    RingPutOff();
  TakeCalls();
  size_t handled = 0;
  for (size_t i = 0; i < watched_.size(); ++i) {  // By index: a handler may add channels.
    PeerChannel& channel = *watched_[i];
    if (channel.dead) continue;
    if (channel.has_queued()) Flush(channel);
    size_t found = 0;
    // Most looks of one that waits find nothing: what such a look costs is what a frame waits.
    if (channel.ends.control_in.Pending() && !channel.malformed)
      found = PollLane(channel, Lane::kControl, handler, budget);
    if (take_work && channel.ends.work_in.Pending() && !channel.malformed && !channel.dead)
      found += PollLane(channel, Lane::kWork, handler, budget);
    handled += found;
    if (found != 0) {
      channel.quiet = 0;
    } else if (++channel.quiet > kQuietPolls && watched_.size() > kAlwaysWatched && !channel.dead &&
               Unwatch(channel)) {
      --i;  // The next one is in its place.
    }
  }
  EndPolling();
  return handled;
}

void Mailbox::Drain(ProcessId peer, FrameHandler& handler) {
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end() || !found->second->ring) return;
  PeerChannel& channel = *found->second;
  ++polling_;
  for (Lane lane : {Lane::kControl, Lane::kWork}) {
    while (!channel.malformed && !channel.dead && channel.reader(lane).Pending()) {
      PollLane(channel, lane, handler, SIZE_MAX);
    }
  }
  EndPolling();
}

bool Mailbox::Pending(bool take_work) const {
  // Who calls a reader that watches all rings is found by the look at the ring.
  for (uint32_t word = 0; unwatched_ != 0 && word < kCallWords; ++word) {
    const auto& calls = board_[own_bell_].calls[word];
    if (calls.load(std::memory_order_acquire) != 0) return true;
  }
  for (PeerChannel* channel : watched_) {
    if (channel->dead) continue;
    for (Lane lane : {Lane::kControl, Lane::kWork}) {
      if (!channel->queue(lane).empty() && channel->writer(lane).RoomWasMade()) return true;
      if (channel->malformed || (lane == Lane::kWork && !take_work)) continue;
      if (channel->reader(lane).Pending()) return true;
    }
  }
  return false;
}

}  // namespace sheaf
