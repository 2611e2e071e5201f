// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/net_group.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "collective/call_record.h"
#include "collective/group_epochs.h"
#include "shm/usable_cores.h"

namespace sheaf {
namespace {

constexpr size_t kMaxCallsAhead = 64;
constexpr std::string_view kFormed = "formed";

NetCallRecord RecordOf(const Operation& operation, uint64_t sequence) {
  NetCallRecord record;
  record.sequence = sequence;
  record.count = operation.count;
  record.kind = static_cast<uint8_t>(operation.kind);
  record.type = static_cast<uint8_t>(operation.type);
  record.op = static_cast<uint8_t>(operation.op);
  record.peer = operation.peer;
  return record;
}

}  // namespace

NetGroup::NetGroup(const CommunicatorOptions& options)
    : options_(options),
      fork_count_(Forks()),
      inlined_(static_cast<size_t>(options.world_size)),
      peers_(static_cast<size_t>(options.world_size)) {}

NetGroup::~NetGroup() {
  if (links_ == nullptr || Forked()) return;
  StateRecord state;
  {
    const MutexLock lock(mutex_);
    state = OwnState(0);
  }
  links_->SendAll(LinkFrameKind::kLeave, EncodeRecord(state));
  bulk_.reset();  // What was sent still arrives.
  links_.reset();
}

absl::StatusOr<std::unique_ptr<NetGroup>> NetGroup::Form(const CommunicatorOptions& options,
                                                         Rendezvous& rendezvous) {
  SHEAF_ASSIGN_OR_RETURN(PeerLinks::Formed formed, PeerLinks::Form(options, rendezvous));
  std::unique_ptr<NetGroup> group(new NetGroup(options));
  group->epoch_ = formed.epoch;
  group->members_ = std::move(formed.members);
  group->spins_ = group->Spins();
  RememberEpoch(options.name, formed.epoch);
  group->links_ = std::make_unique<PeerLinks>(std::move(formed.links));
  group->links_->Start(*group);
  return group;
}

bool NetGroup::Forked() const { return Forks() != fork_count_; }

void NetGroup::ForgetAfterFork() {
  links_->ForgetAfterFork();
  links_.release();
  if (bulk_ != nullptr) bulk_->ForgetAfterFork();
}

bool NetGroup::Spins() const {
  const auto here = std::count_if(members_.begin(), members_.end(), [&](const NetMember& other) {
    return other.host == member(rank()).host;
  });
  return here <= UsableCores();
}

void NetGroup::OnFailure(std::function<void(const std::string& why)> end_others) {
  const MutexLock ending(end_mutex_);
  end_others_ = std::move(end_others);
  bool broken;
  {
    const MutexLock lock(mutex_);
    broken = broken_;
  }
  if (broken && end_others_) end_others_("the group has failed");
}

void NetGroup::EndOthers(const std::string& why) {
  const MutexLock ending(end_mutex_);
  if (end_others_) end_others_(why);
}

absl::Status NetGroup::AwaitFormed(Nanos deadline) {
  links_->SendAll(LinkFrameKind::kReady, kFormed);
  const MutexLock lock(mutex_);
  for (int other = 0; other < world_size(); ++other) {
    while (other != rank() && !At(other).formed) {
      if (broken_ || At(other).gone || MonotonicNow() >= deadline) {
        return WithRank(
            absl::Status(MonotonicNow() >= deadline ? absl::StatusCode::kDeadlineExceeded
                                                    : absl::StatusCode::kUnavailable,
                         absl::StrCat("the group '", options_.name,
                                      "' was not formed: ", NameOfRank(other), ") did not go on")),
            other);
      }
      AwaitNews(kLookPeriod,
                [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return At(other).formed; });
    }
  }
  return absl::OkStatus();
}

// What the links bring.

StateRecord NetGroup::OwnState(uint64_t id) const { return {id, sequence_, finished_}; }

bool NetGroup::OnFrame(int rank, Peer& peer, const LinkFrame& frame) {
  std::string_view more;
  switch (frame.kind) {
    case LinkFrameKind::kReady:
      peer.formed |= frame.bytes == kFormed;  // Else it is the formation's, said twice.
      return true;
    case LinkFrameKind::kPlace:
      peer.place = std::string(frame.bytes);
      return true;
    case LinkFrameKind::kBulk:
      peer.bulk_place = std::string(frame.bytes);
      return true;
    case LinkFrameKind::kCall: {
      NetCallRecord record;
      if (!DecodeRecord(frame.bytes, &record, &more) || record.kind >= kCollectiveKinds ||
          record.type >= kDataTypes || record.op >= kReduceOps ||
          peer.calls.size() >= kMaxCallsAhead || record.sequence != peer.entered + 1) {
        return false;
      }
      peer.entered = record.sequence;
      peer.finished.reset();
      peer.calls.push_back({record, std::string(more)});
      return true;
    }
    case LinkFrameKind::kMessage: {
      Message message;
      if (!DecodeRecord(frame.bytes, &message.record, &more) || message.record.type >= kDataTypes ||
          peer.messages.size() > kMessageWindow) {
        return false;
      }
      message.bytes = std::string(more);
      peer.messages.push_back(std::move(message));
      return true;
    }
    case LinkFrameKind::kTaken: {
      TakenRecord record;
      if (!DecodeRecord(frame.bytes, &record)) return false;
      peer.taken = std::max(peer.taken, record.sequence);
      return true;
    }
    case LinkFrameKind::kFailure: {
      FailureRecord record;
      if (!DecodeRecord(frame.bytes, &record, &more)) return false;
      if (!peer.failure.has_value()) peer.failure_text = std::string(more);
      peer.failure = record;
      return true;
    }
    case LinkFrameKind::kPing: {
      PingRecord ping;
      if (!DecodeRecord(frame.bytes, &ping)) return false;
      links_->Send(rank, LinkFrameKind::kPong, EncodeRecord(OwnState(ping.id)));
      return true;
    }
    case LinkFrameKind::kPong:
    case LinkFrameKind::kLeave: {
      StateRecord state;
      if (!DecodeRecord(frame.bytes, &state)) return false;
      peer.finished = state.finished;
      peer.pong = std::max(peer.pong, state.id);
      peer.left |= frame.kind == LinkFrameKind::kLeave;
      return true;
    }
    default:
      return false;
  }
}

void NetGroup::OnFrames(int rank, std::span<const LinkFrame> frames, bool closed) {
  MutexLock lock(mutex_);
  Peer& peer = At(rank);
  for (const LinkFrame& frame : frames) {
    if (OnFrame(rank, peer, frame) || peer.failure.has_value()) continue;
    peer.failure = FailureRecord{static_cast<uint32_t>(absl::StatusCode::kInternal), rank};
    peer.failure_text = absl::StrCat("rank ", rank, " broke the protocol of the group");
  }
  peer.gone |= closed || peer.left;
  std::string why;
  if (peer.failure.has_value() && !broken_) {
    broken_ = true;
    why = absl::StrCat("rank ", rank, " gave up: ", peer.failure_text);
  }
  changed_.NotifyAll();
  lock.Unlock();
  if (!why.empty()) EndOthers(why);
}

void NetGroup::AwaitNews(Nanos timeout, absl::FunctionRef<bool()> ready) {
  timeout = std::clamp<Nanos>(timeout, 0, kLookPeriod);
  mutex_.Unlock();
  const bool drove = links_->Drive(timeout, spins_, [&] {
    const MutexLock lock(mutex_);
    return ready();
  });
  mutex_.Lock();
  if (drove) {
    if (beside_ > 0) changed_.NotifyAll();     // One of them may read now.
  } else if (!ready() && links_->Reading()) {  // Who reads comes here next, and sees `beside_`.
    ++beside_;
    changed_.WaitFor(mutex_, timeout);
    --beside_;
  }
}

template <class Ready>
absl::Status NetGroup::WaitUntil(const Waiting& waiting, int peer, Ready ready) {
  // At whether the user wants to go: not at once, as it may take a lock that others hold for long.
  Nanos next_look = MonotonicNow() + kLookPeriod;
  while (!ready()) {
    if (!failure_.ok()) return failure_;
    if (broken_) return Adopt(waiting);
    if (At(peer).gone) return Lost(waiting, peer);
    const Nanos now = MonotonicNow();
    if (now >= waiting.deadline) return Late(waiting, peer);
    if (now >= next_look) {
      mutex_.Unlock();
      const bool interrupted = Interrupted(waiting);
      mutex_.Lock();
      if (interrupted) return FailInterrupted(waiting);
      next_look = now + kLookPeriod;
    }
    AwaitNews(waiting.deadline - now, ready);
  }
  return absl::OkStatus();
}

// Operations.

void NetGroup::Announce(const Operation& operation, bool interruptible, std::string_view inlined,
                        Waiting* waiting) {
  {
    const MutexLock lock(mutex_);
    waiting->operation = operation;
    waiting->sequence = ++sequence_;
    waiting->deadline = Deadline(MonotonicNow(), operation.timeout);
    waiting->interruptible = interruptible;
    history_[sequence_ % kHistory] = operation;
  }
  links_->SendAll(LinkFrameKind::kCall,
                  EncodeRecord(RecordOf(operation, waiting->sequence), inlined));
}

absl::Status NetGroup::AwaitEntered(const Waiting& waiting) {
  SHEAF_FAILPOINT("collective.entered");
  const NetCallRecord own = RecordOf(waiting.operation, waiting.sequence);
  MutexLock lock(mutex_);
  std::vector<NetCallRecord> calls(static_cast<size_t>(world_size()));
  bool last = world_size() > 1;  // To enter.
  for (int peer = 0; peer < world_size(); ++peer) {
    last &= peer == rank() || !At(peer).calls.empty();
  }
  if (last) {  // The others may have given up while this rank was stopped.
    lock.Unlock();
    links_->Settle();
    lock.Lock();
  }
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer == rank()) {
      calls[static_cast<size_t>(peer)] = own;
      continue;
    }
    SHEAF_RETURN_IF_ERROR(WaitUntil(waiting, peer, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !At(peer).calls.empty();
    }));
    calls[static_cast<size_t>(peer)] = At(peer).calls.front().record;
    inlined_[static_cast<size_t>(peer)] = std::move(At(peer).calls.front().inlined);
    At(peer).calls.pop_front();
  }
  // A rank that entered and gave up: the last to enter would not notice.
  if (!failure_.ok()) return failure_;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (At(peer).failure.has_value() && At(peer).entered <= waiting.sequence) {
      return Adopt(waiting);
    }
  }
  for (const NetCallRecord& call : calls) {
    if (Match(own, call)) continue;
    lock.Unlock();
    return Compare(waiting, std::move(calls));
  }
  return absl::OkStatus();
}

absl::Status NetGroup::Compare(const Waiting& waiting, std::vector<NetCallRecord> calls) {
  // What most ranks called, of several the one of the lowest rank: the same for all who look.
  size_t usual = 0;
  int most = 0;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const auto alike = static_cast<int>(std::count_if(
        calls.begin(), calls.end(), [&](const auto& other) { return Match(calls[rank], other); }));
    if (alike > most) {
      most = alike;
      usual = rank;
    }
  }
  size_t culprit = 0;
  while (Match(calls[usual], calls[culprit])) ++culprit;
  const auto words = [&](size_t self) {
    return absl::StrCat("rank ", culprit, culprit == self ? " (this one)" : "", " called ",
                        DescribeCall(OperationOf(calls[culprit]), waiting.sequence), " where rank ",
                        usual, usual == self ? " (this one)" : "", " called ",
                        Describe(OperationOf(calls[usual])),
                        self == culprit || self == usual || self == calls.size()
                            ? std::string()
                            : absl::StrCat("; this rank called ", Describe(waiting.operation)),
                        ": all ranks call the same operations in the same order");
  };
  const MutexLock lock(mutex_);
  return FailLocked(absl::StatusCode::kInvalidArgument, static_cast<int>(culprit),
                    words(static_cast<size_t>(rank())), words(calls.size()));
}

void NetGroup::Finish(const Waiting& waiting) {
  const MutexLock lock(mutex_);
  finished_ = waiting.sequence;
}

absl::Status NetGroup::Await(const Waiting& waiting, BulkLane& lane, const BulkBatch& batch,
                             BulkLane::Until until) {
  const BulkLane::Result result = lane.Await(
      batch, until, waiting.deadline, [&] { return Interrupted(waiting); },
      [&](int peer) {
        const MutexLock lock(mutex_);
        return At(peer).gone && !At(peer).left;
      });
  if (result.outcome == BulkLane::Outcome::kDone) return absl::OkStatus();
  lane.Abandon();
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (broken_) return Adopt(waiting);
  const int peer = result.peer;
  switch (result.outcome) {
    case BulkLane::Outcome::kLate:
      return Late(waiting, peer);
    case BulkLane::Outcome::kStopped:
      return FailInterrupted(waiting);
    default:
      return FailBroken(waiting, peer);
  }
}

// Messages of pairs.

absl::Status NetGroup::SendMessage(const Operation& operation, bool interruptible, Move move) {
  const int to = operation.peer;
  const size_t bytes = operation.count * SizeOf(operation.type);
  Waiting waiting;
  waiting.operation = operation;
  waiting.deadline = Deadline(MonotonicNow(), operation.timeout);
  waiting.interruptible = interruptible;
  MessageRecord record;
  record.count = operation.count;
  record.type = static_cast<uint8_t>(operation.type);
  record.inlined = bytes <= kInlineBytes;
  {
    const MutexLock lock(mutex_);
    record.sequence = waiting.sequence = ++At(to).sent;
    SHEAF_RETURN_IF_ERROR(WaitUntil(waiting, to, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return At(to).taken + kMessageWindow >= record.sequence;
    }));
  }
  const std::string_view payload(static_cast<const char*>(operation.input),
                                 record.inlined != 0 ? bytes : 0);
  links_->Send(to, LinkFrameKind::kMessage, EncodeRecord(record, payload));
  return record.inlined != 0 ? absl::OkStatus() : move(waiting);
}

absl::Status NetGroup::MoveMessage(const Waiting& waiting) {
  const Operation& operation = waiting.operation;
  const size_t bytes = operation.count * SizeOf(operation.type);
  BulkLane lane(*bulk_, BulkSockets::Lane::kMessage);
  BulkBatch batch;
  if (operation.kind == CollectiveKind::kSend) {
    lane.Send(operation.peer, static_cast<const std::byte*>(operation.input), bytes, batch);
  } else {
    lane.Receive(operation.peer, static_cast<std::byte*>(operation.output), bytes, batch);
  }
  return Await(waiting, lane, batch, BulkLane::Until::kAll);
}

absl::Status NetGroup::ReceiveMessage(const Operation& operation, bool interruptible, Move move) {
  const int from = operation.peer;
  const size_t bytes = operation.count * SizeOf(operation.type);
  Waiting waiting;
  waiting.operation = operation;
  waiting.deadline = Deadline(MonotonicNow(), operation.timeout);
  waiting.interruptible = interruptible;
  Message message;
  {
    const MutexLock lock(mutex_);
    waiting.sequence = ++At(from).received;
    SHEAF_RETURN_IF_ERROR(WaitUntil(waiting, from, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !At(from).messages.empty();
    }));
    message = std::move(At(from).messages.front());
    At(from).messages.pop_front();
  }
  const MessageRecord& record = message.record;
  if (record.count != operation.count || record.type != static_cast<uint8_t>(operation.type) ||
      (record.inlined != 0 && message.bytes.size() != bytes)) {
    return Fail(absl::StatusCode::kInvalidArgument, from,
                absl::StrCat("rank ", from, " sent ", NameOf(static_cast<DataType>(record.type)),
                             " x ", record.count, " where rank ", rank(), " called ",
                             DescribeCall(operation, waiting.sequence)));
  }
  if (record.inlined != 0) {
    if (bytes != 0) std::memcpy(operation.output, message.bytes.data(), bytes);
  } else {
    SHEAF_RETURN_IF_ERROR(move(waiting));
  }
  links_->Send(from, LinkFrameKind::kTaken, EncodeRecord(TakenRecord{record.sequence}));
  return absl::OkStatus();
}

}  // namespace sheaf
