// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/shm/shm_group.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collective/group_epochs.h"

namespace sheaf {
namespace {

std::string Seconds(Nanos duration) { return absl::FormatDuration(absl::Nanoseconds(duration)); }

absl::Status AllocateFile(int fd, size_t offset, size_t bytes) {
  int result;
  do {
    result = fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? absl::OkStatus() : absl::ResourceExhaustedError(std::strerror(errno));
}

}  // namespace

std::string DescribeCall(const Operation& operation, uint64_t sequence) {
  return absl::StrCat(Describe(operation), " #", sequence);
}

ShmGroup::ShmGroup(CommunicatorOptions options)
    : options_(std::move(options)), fork_count_(Forks()) {}

ShmGroup::~ShmGroup() {
  if (members_.empty() || Forked()) return;
  RankFailure& failure = own().failure;
  const MutexLock lock(failure_mutex_);
  if (failure.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(RankState::kActive)) {
    failure.state.store(static_cast<uint32_t>(RankState::kLeft), std::memory_order_release);
  }
  RingAllLines();
}

bool ShmGroup::Forked() const { return Forks() != fork_count_; }

absl::Status ShmGroup::Reserve(size_t offset, size_t bytes) const {
  constexpr size_t kStep = size_t{64} << 20;  // Other ranks take memory at the same time.
  Mapping& mapping = own_memory_->mapping;
  const size_t end = std::min(mapping.size(), RoundUpToPage(offset + bytes));
  for (size_t at = offset / kPageBytes * kPageBytes; at < end;) {
    const size_t step = std::min(kStep, end - at);
    absl::Status status = options_.check_memory ? options_.check_memory(step) : absl::OkStatus();
    if (status.ok()) status = mapping.Populate(at, step);
    if (absl::IsUnimplemented(status)) status = AllocateFile(own_memory_->fd.get(), at, step);
    if (!status.ok()) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes that rank ",
                                                       rank(), " of the group '", options_.name,
                                                       "' shares: ", status.message()));
    }
    at += step;
  }
  return absl::OkStatus();
}

uint64_t ShmGroup::OffsetOf(const void* address, size_t bytes) const {
  const std::byte* start = arena(rank());
  const std::byte* from = static_cast<const std::byte*>(address);
  if (from < start || from > start + arena_bytes() ||
      bytes > static_cast<size_t>(start + arena_bytes() - from)) {
    return kPrivate;
  }
  return static_cast<uint64_t>(from - start);
}

void ShmGroup::RingAllLines() const {
  for (int peer = 0; peer < world_size(); ++peer) {
    if (bases_[peer] == nullptr) continue;
    RankPage& page = *this->page(peer);
    RingAfterDeath(page.bell);
    for (int other = 0; other < world_size(); ++other) {
      RingAfterDeath(page.send_bells[other]);
      RingAfterDeath(page.receive_bells[other]);
    }
  }
}

absl::Status ShmGroup::Fail(absl::StatusCode code, int culprit, absl::string_view text) {
  const MutexLock lock(failure_mutex_);
  if (!failure_.ok()) return failure_;
  failure_ = absl::Status(code, text);
  if (culprit >= 0) failure_ = WithRank(failure_, culprit);
  if (!Forked()) {
    RankFailure& record = own().failure;
    record.code = static_cast<uint32_t>(code);
    record.rank = culprit;
    const size_t size = std::min(text.size(), sizeof record.text - 1);
    std::memcpy(record.text, text.data(), size);
    record.text[size] = 0;
    record.state.store(static_cast<uint32_t>(RankState::kFailed), std::memory_order_release);
    RingAllLines();
  }
  failed_.store(true, std::memory_order_release);
  return failure_;
}

absl::Status ShmGroup::Failure() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  const MutexLock lock(failure_mutex_);
  return failure_;
}

absl::Status ShmGroup::Sleep(WaitLine& line, const Waiting& waiting, absl::FunctionRef<int()> peer,
                             absl::FunctionRef<bool()> ready) {
  const Nanos began = MonotonicNow();
  while (true) {
    SetBell(*line.bell, BellState::kAsleep);
    const bool ready_already = ready();
    if (!ready_already && !failed_.load(std::memory_order_acquire)) {
      const Nanos left = waiting.deadline - MonotonicNow();
      SleepOnBell(*line.bell, std::clamp<Nanos>(left, 0, kLookPeriod));
    }
    SetBell(*line.bell, BellState::kAwake);
    if (ready_already || ready()) {
      line.spinning.Slept(MonotonicNow() - began);
      return absl::OkStatus();
    }
    absl::Status trouble = LookForTrouble(waiting, peer(), ready);
    if (!trouble.ok()) {
      // It came before the peer's trouble did.
      if (ready() && Failure().ok()) return absl::OkStatus();
      return trouble;
    }
  }
}

// The failure of `peer`, which has one, as this rank's own.
absl::Status ShmGroup::Adopt(const Waiting& waiting, int peer) {
  const RankFailure& record = page(peer)->failure;
  const absl::string_view text(record.text, strnlen(record.text, sizeof record.text));
  auto code = static_cast<absl::StatusCode>(record.code);
  if (code != absl::StatusCode::kDeadlineExceeded && code != absl::StatusCode::kInvalidArgument) {
    code = absl::StatusCode::kUnavailable;
  }
  const int culprit = record.rank >= 0 && record.rank < world_size() ? record.rank : peer;
  return Fail(code, culprit,
              absl::StrCat(DescribeCall(waiting.operation, waiting.sequence), " ended, as rank ",
                           peer, " gave up: ", text));
}

absl::Status ShmGroup::CheckEntered(const Waiting& waiting) {
  for (int peer = 0; peer < world_size(); ++peer) {
    const RankPage& theirs = *page(peer);
    if (theirs.failure.state.load(std::memory_order_acquire) ==
            static_cast<uint32_t>(RankState::kFailed) &&
        theirs.progress.finished.load(std::memory_order_acquire) < waiting.sequence) [[unlikely]] {
      return peer == rank() ? Failure() : Adopt(waiting, peer);
    }
  }
  return absl::OkStatus();
}

absl::Status ShmGroup::LookForTrouble(const Waiting& waiting, int peer,
                                      absl::FunctionRef<bool()> ready) {
  if (absl::Status failure = Failure(); !failure.ok()) return failure;
  const std::string doing = DescribeCall(waiting.operation, waiting.sequence);
  for (int other = 0; other < world_size(); ++other) {
    if (other == rank()) continue;
    const RankFailure& record = page(other)->failure;
    const auto state = static_cast<RankState>(record.state.load(std::memory_order_acquire));
    if (ready()) return absl::OkStatus();  // What failed there was a later operation.
    if (state == RankState::kFailed) return Adopt(waiting, other);
    if (other == peer && state == RankState::kLeft) {
      return Fail(
          absl::StatusCode::kUnavailable, peer,
          absl::StrCat(doing, " cannot end: rank ", peer,
                       " left the group; its last finished operation is ", LastOperationOf(peer)));
    }
  }
  if (peer != rank() && !members_[peer].process.Alive() && !ready()) {
    return Fail(
        absl::StatusCode::kUnavailable, peer,
        absl::StrCat(doing, " cannot end: rank ", peer, " (process ", members_[peer].process.pid(),
                     ") died; its last finished operation is ", LastOperationOf(peer)));
  }
  if (waiting.interruptible && options_.interrupted && options_.interrupted()) {
    return Fail(absl::StatusCode::kCancelled, -1, absl::StrCat(doing, " was interrupted"));
  }
  if (MonotonicNow() >= waiting.deadline) return Late(waiting, peer);
  return absl::OkStatus();
}

// Who is awaited may itself wait for another: the one to name is a rank that has not entered, else
// one that is stopped, else the one awaited.
absl::Status ShmGroup::Late(const Waiting& waiting, int peer) {
  const bool pairwise = waiting.operation.kind == CollectiveKind::kSend ||
                        waiting.operation.kind == CollectiveKind::kReceive;
  const auto entered = [&](int other) {
    return page(other)->calls[waiting.sequence % 2].sequence.load(std::memory_order_acquire) >=
           waiting.sequence;
  };
  int culprit = peer;
  if (!pairwise) {
    for (int other = world_size() - 1; other >= 0; --other) {
      if (other != rank() && members_[other].process.Stopped()) culprit = other;
    }
    if (entered(culprit)) {
      for (int other = world_size() - 1; other >= 0; --other) {
        if (other != rank() && !entered(other)) culprit = other;
      }
    }
  }
  const std::string what =
      pairwise
          ? (waiting.operation.kind == CollectiveKind::kSend ? " has not taken " : " has not sent ")
      : entered(culprit) ? " entered but did not go on in "
                         : " has not entered ";
  return Fail(absl::StatusCode::kDeadlineExceeded, culprit,
              absl::StrCat("rank ", culprit, " (process ", members_[culprit].process.pid(),
                           members_[culprit].process.Stopped() ? ", which is stopped" : "", ")",
                           what, DescribeCall(waiting.operation, waiting.sequence), " within ",
                           Seconds(waiting.operation.timeout), "; its last finished operation is ",
                           LastOperationOf(culprit)));
}

std::string ShmGroup::LastOperationOf(int peer) const {
  const RankPage& page = *this->page(peer);
  const uint64_t finished = page.progress.finished.load(std::memory_order_acquire);
  if (finished == 0) return "none";
  const HistoryRecord& record = page.history[finished % kCallRecords];
  if (record.sequence.load(std::memory_order_acquire) != finished) {
    return absl::StrCat("#", finished);
  }
  const uint32_t call = record.call.load(std::memory_order_relaxed);
  if ((call & 0xff) >= kCollectiveKinds || (call >> 8 & 0xff) >= kDataTypes ||
      (call >> 16 & 0xff) >= kReduceOps) {
    return absl::StrCat("#", finished);
  }
  Operation operation;
  operation.kind = static_cast<CollectiveKind>(call & 0xff);
  operation.type = static_cast<DataType>(call >> 8 & 0xff);
  operation.op = static_cast<ReduceOp>(call >> 16 & 0xff);
  operation.count = record.count.load(std::memory_order_relaxed);
  operation.peer = record.peer.load(std::memory_order_relaxed);
  return DescribeCall(operation, finished);
}

}  // namespace sheaf
