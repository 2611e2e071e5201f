// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/mailbox.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr size_t kMaxFrameBytes = 64 * 1024 * 1024;  // Of a frame that comes in pieces.

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
    if (dead) return;
    const size_t size = head.size() + tail.size();
    std::deque<Queued>& queue = queues[static_cast<int>(lane)];
    if (ring && queue.empty() && size <= kMaxRecordBody) [[likely]] {
      RingWriter& out = writer(lane);
      if (char* body = out.Reserve(kind, size)) [[likely]] {
        CopyPiece(body, head, tail, 0, size);
        out.Publish();
        RingBell(*bell, lane);
        return;
      }
    }
    Enqueue(lane, kind, head, tail);
  }
  size_t queued_bytes() const override { return queued; }

  struct Queued {
    FrameKind kind;
    bool more;
    std::string body;
  };

  void Enqueue(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) {
    const size_t size = head.size() + tail.size();
    SHEAF_CHECK(size <= kMaxFrameBytes, "a frame above 64 MiB; large values go through the store");
    if (queued_frames() == 0) ++mailbox.queued_channels_;
    size_t offset = 0;
    do {
      const size_t piece = std::min(size - offset, kMaxRecordBody);
      std::string body(piece, '\0');
      CopyPiece(body.data(), head, tail, offset, piece);
      offset += piece;
      queued += piece;
      queues[static_cast<int>(lane)].push_back({kind, offset < size, std::move(body)});
    } while (offset < size);
    if (ring) mailbox.Flush(*this);
  }

  RingWriter& writer(Lane lane) { return lane == Lane::kWork ? ends.work_out : ends.control_out; }
  RingReader& reader(Lane lane) { return lane == Lane::kWork ? ends.work_in : ends.control_in; }
  size_t queued_frames() const { return queues[0].size() + queues[1].size(); }

  Mailbox& mailbox;
  const ProcessId peer;
  Mapping segment;
  RingEnds ends;
  Bell* bell = nullptr;
  bool ring = false;
  bool dead = false;       // Forgotten: destroyed once no Poll is on the stack.
  bool malformed = false;  // Wrote garbage: nothing more is read.
  std::deque<Queued> queues[2];
  size_t queued = 0;
  std::string partial[2];       // Pieces of a long frame so far, per lane.
  FrameKind partial_kind[2] = {FrameKind::kNone, FrameKind::kNone};
};

Mailbox::Mailbox(Bell* board, uint32_t own_bell, std::function<void(ProcessId)> make_contact)
    : board_(board), own_bell_(own_bell), make_contact_(std::move(make_contact)) {}
Mailbox::~Mailbox() = default;

Channel& Mailbox::To(ProcessId peer) {
  PeerChannel*& channel = by_peer_[peer];
  if (channel == nullptr) {
    channels_.push_back(std::make_unique<PeerChannel>(*this, peer));
    PeerChannel* made = channel = channels_.back().get();
    if (make_contact_) make_contact_(peer);  // May look up channels itself, so `channel` is stale now.
    return *made;
  }
  return *channel;
}

void Mailbox::Forget(ProcessId peer) {
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  PeerChannel& channel = *found->second;
  if (channel.queued_frames() != 0) --queued_channels_;
  for (auto& queue : channel.queues) queue.clear();
  channel.queued = 0;
  channel.dead = true;
  by_peer_.erase(found);
  forgotten_ = true;
  if (polling_ == 0) Sweep();
}

void Mailbox::Sweep() {
  std::erase_if(channels_, [](const auto& channel) { return channel->dead; });
  forgotten_ = false;
}

absl::Status Mailbox::AddRing(ProcessId peer, int segment_fd, bool first, uint32_t peer_bell) {
  if (peer_bell >= kMaxProcessesPerNode) {
    return absl::InvalidArgumentError(absl::StrCat("bell ", peer_bell, " is not on the board"));
  }
  SHEAF_RETURN_IF_ERROR(CheckSegment(segment_fd, kRingPairBytes));
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) {
    channels_.push_back(std::make_unique<PeerChannel>(*this, peer));
    found = by_peer_.emplace(peer, channels_.back().get()).first;
  }
  PeerChannel& channel = *found->second;
  if (channel.ring) return absl::AlreadyExistsError(absl::StrCat("a ring with ", peer.ToString()));
  SHEAF_ASSIGN_OR_RETURN(channel.segment,
                         Mapping::Map(segment_fd, 0, kRingPairBytes, Access::kReadWrite));
  SHEAF_RETURN_IF_ERROR(channel.segment.DontFork());
  channel.ends = OpenRingPair(channel.segment.data(), first);
  channel.bell = &board_[peer_bell];
  channel.ring = true;
  if (channel.queued_frames() != 0) Flush(channel);
  return absl::OkStatus();
}

bool Mailbox::HasRing(ProcessId peer) const {
  auto found = by_peer_.find(peer);
  return found != by_peer_.end() && found->second->ring;
}

void Mailbox::Flush(PeerChannel& channel) {
  for (Lane lane : {Lane::kControl, Lane::kWork}) {
    auto& queue = channel.queues[static_cast<int>(lane)];
    if (queue.empty()) continue;
    RingWriter& out = channel.writer(lane);
    bool sent = false;
    while (!queue.empty()) {
      const PeerChannel::Queued& next = queue.front();
      char* body = out.Reserve(next.kind, next.body.size(), next.more);
      if (body == nullptr) {
        out.AskForRoom();
        break;
      }
      std::memcpy(body, next.body.data(), next.body.size());
      channel.queued -= next.body.size();
      queue.pop_front();
      sent = true;
    }
    if (sent) {
      out.Publish();
      // A full work ring is a reason to wake even a busy receiver: it takes the frames into its own memory.
      RingBell(*channel.bell, queue.empty() ? lane : Lane::kControl);
    }
  }
  if (channel.queued_frames() == 0) --queued_channels_;
}

size_t Mailbox::PollLane(PeerChannel& channel, Lane lane, FrameHandler& handler, size_t budget) {
  RingReader& in = channel.reader(lane);
  std::string& partial = channel.partial[static_cast<int>(lane)];
  FrameKind& partial_kind = channel.partial_kind[static_cast<int>(lane)];
  size_t handled = 0;
  size_t taken = 0;
  Frame frame;
  bool more = false;
  while (handled < budget && !channel.dead) {
    const RingReader::Result result = in.Next(&frame, &more);
    if (result == RingReader::Result::kEmpty) break;
    ++taken;
    if (result == RingReader::Result::kRecord && (more || !partial.empty())) {
      const bool fits = partial.size() + frame.body.size() <= kMaxFrameBytes;
      if (fits && (partial.empty() || partial_kind == frame.kind)) {
        partial_kind = frame.kind;
        partial.append(frame.body);
        if (more) continue;
        const std::string whole = std::exchange(partial, {});
        handler.OnFrame(channel.peer, {frame.kind, whole});
        ++handled;
        continue;
      }
      channel.malformed = true;
    } else if (result == RingReader::Result::kMalformed) {
      channel.malformed = true;
    }
    if (channel.malformed) {
      handler.OnMalformed(channel.peer);
      return handled;
    }
    handler.OnFrame(channel.peer, frame);
    ++handled;
  }
  if (taken != 0 && in.Release()) RingBell(*channel.bell, Lane::kControl);
  return handled;
}

size_t Mailbox::Poll(FrameHandler& handler, bool take_work, size_t budget) {
  ++polling_;
  size_t handled = 0;
  for (size_t i = 0; i < channels_.size(); ++i) {  // By index: a handler may add channels.
    PeerChannel& channel = *channels_[i];
    if (!channel.ring || channel.dead) continue;
    if (channel.queued_frames() != 0) Flush(channel);
    if (channel.malformed) continue;
    handled += PollLane(channel, Lane::kControl, handler, budget);
    if (take_work && !channel.malformed && !channel.dead) {
      handled += PollLane(channel, Lane::kWork, handler, budget);
    }
  }
  if (--polling_ == 0 && forgotten_) Sweep();
  return handled;
}

void Mailbox::Drain(ProcessId peer, FrameHandler& handler) {
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end() || !found->second->ring) return;
  ++polling_;
  PeerChannel& channel = *found->second;
  for (Lane lane : {Lane::kControl, Lane::kWork}) {
    while (!channel.malformed && !channel.dead && PollLane(channel, lane, handler, SIZE_MAX) != 0) {
    }
  }
  if (--polling_ == 0 && forgotten_) Sweep();
}

bool Mailbox::Pending(bool take_work) const {
  for (const auto& channel : channels_) {
    if (!channel->ring || channel->malformed) continue;
    if (channel->ends.control_in.Pending()) return true;
    if (take_work && channel->ends.work_in.Pending()) return true;
  }
  return false;
}

}  // namespace sheaf
