// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Why an operation of a group cannot end: which rank is named for it, and how the others hear of it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collective/call_record.h"
#include "collective/net/net_group.h"

namespace sheaf {
namespace {

bool IsPairwise(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kReceive;
}

}  // namespace

absl::Status NetGroup::FailLocked(absl::StatusCode code, int culprit, const std::string& text,
                                  const std::string& others_text) {
  if (!failure_.ok()) return failure_;
  failure_ = absl::Status(code, text);
  if (culprit >= 0) failure_ = WithRank(failure_, culprit);
  broken_ = true;
  const absl::Status failure = failure_;
  changed_.NotifyAll();
  mutex_.Unlock();
  const FailureRecord record{static_cast<uint32_t>(code), culprit};
  links_->SendAll(
      LinkFrameKind::kFailure,
      EncodeRecord(record,
                   std::string_view(others_text.empty() ? text : others_text).substr(0, 2000)));
  EndOthers(text);
  mutex_.Lock();
  return failure;
}

absl::Status NetGroup::Fail(absl::StatusCode code, int culprit, absl::string_view text) {
  const MutexLock lock(mutex_);
  return FailLocked(code, culprit, std::string(text));
}

absl::Status NetGroup::Failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

absl::Status NetGroup::Adopt(const Waiting& waiting) {
  if (!failure_.ok()) return failure_;
  int from = 0;
  while (from < world_size() && !At(from).failure.has_value()) ++from;
  if (from == world_size()) return Lost(waiting, rank());
  const FailureRecord& record = *At(from).failure;
  auto code = static_cast<absl::StatusCode>(record.code);
  if (code != absl::StatusCode::kDeadlineExceeded && code != absl::StatusCode::kInvalidArgument) {
    code = absl::StatusCode::kUnavailable;
  }
  const int culprit = record.culprit >= 0 && record.culprit < world_size() ? record.culprit : from;
  return FailLocked(code, culprit,
                    absl::StrCat(DescribeCall(waiting.operation, waiting.sequence),
                                 " ended, as rank ", from, " gave up: ", At(from).failure_text));
}

std::string NetGroup::NameOfRank(int rank) const {
  return absl::StrCat("rank ", rank, " (process ", member(rank).pid, " at ", member(rank).host);
}

std::string NetGroup::LastOperationOf(int rank) const {
  const Peer& peer = At(rank);
  const uint64_t sequence = peer.finished.value_or(peer.entered);
  const char* const what = peer.finished.has_value() ? "its last finished operation is "
                                                     : "the last operation that it entered is ";
  if (sequence == 0) return "its last finished operation is none";
  if (sequence > sequence_ || sequence + kHistory <= sequence_) {
    return absl::StrCat(what, "#", sequence);
  }
  return absl::StrCat(what, DescribeCall(history_[sequence % kHistory], sequence));
}

absl::Status NetGroup::Lost(const Waiting& waiting, int peer) {
  const std::string doing = DescribeCall(waiting.operation, waiting.sequence);
  const std::string last = LastOperationOf(peer);
  if (At(peer).left) {
    return FailLocked(absl::StatusCode::kUnavailable, peer,
                      absl::StrCat(doing, " cannot end: rank ", peer, " left the group; ", last));
  }
  return FailLocked(absl::StatusCode::kUnavailable, peer,
                    absl::StrCat(doing, " cannot end: ", NameOfRank(peer), ") died; ", last));
}

// Who is awaited may itself wait for another: all are asked how far they are. The one to name is a
// rank that does not answer, else one that has not entered, else the one awaited.
absl::Status NetGroup::Late(const Waiting& waiting, int peer) {
  const uint64_t ping = ++pings_;
  mutex_.Unlock();
  links_->SendAll(LinkFrameKind::kPing, EncodeRecord(PingRecord{ping}));
  mutex_.Lock();
  const auto answered = [&](int other) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return other == rank() || At(other).pong >= ping;
  };
  const auto all_answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int other = 0; other < world_size(); ++other) {
      if (!answered(other) && !At(other).gone) return false;
    }
    return true;
  };
  const Nanos until = MonotonicNow() + kPingTime;
  while (failure_.ok() && !broken_ && !all_answered() && MonotonicNow() < until) {
    AwaitNews(until - MonotonicNow(), all_answered);
  }
  if (!failure_.ok()) return failure_;
  if (broken_) return Adopt(waiting);
  const bool pairwise = IsPairwise(waiting.operation.kind);
  const auto entered = [&](int other) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return other == rank() || At(other).entered >= waiting.sequence;
  };
  int culprit = peer;
  if (!pairwise) {
    for (int other = world_size() - 1; other >= 0; --other) {
      if (!entered(other)) culprit = other;
    }
    for (int other = world_size() - 1; other >= 0; --other) {
      if (!answered(other) && (!entered(other) || entered(culprit))) culprit = other;
    }
  }
  if (At(culprit).gone) return Lost(waiting, culprit);
  const std::string what =
      pairwise
          ? (waiting.operation.kind == CollectiveKind::kSend ? " has not taken " : " has not sent ")
      : entered(culprit) ? " entered but did not go on in "
                         : " has not entered ";
  return FailLocked(
      absl::StatusCode::kDeadlineExceeded, culprit,
      absl::StrCat(NameOfRank(culprit), answered(culprit) ? ")" : ", which does not answer)", what,
                   DescribeCall(waiting.operation, waiting.sequence), " within ",
                   absl::FormatDuration(absl::Nanoseconds(waiting.operation.timeout)), "; ",
                   LastOperationOf(culprit)));
}

void NetGroup::AwaitEnd(int peer, Nanos until) {
  const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failure_.ok() || broken_ || At(peer).gone;
  };
  while (!ended() && MonotonicNow() < until) AwaitNews(until - MonotonicNow(), ended);
}

absl::Status NetGroup::FailInterrupted(const Waiting& waiting) {
  return FailLocked(
      absl::StatusCode::kCancelled, -1,
      absl::StrCat(DescribeCall(waiting.operation, waiting.sequence), " was interrupted"));
}

// The reason comes over the links, or the link breaks as well.
absl::Status NetGroup::FailBroken(const Waiting& waiting, int peer) {
  if (peer < 0) peer = rank();
  AwaitEnd(peer, MonotonicNow() + kBreakTime);
  if (!failure_.ok()) return failure_;
  if (broken_) return Adopt(waiting);
  if (At(peer).gone) return Lost(waiting, peer);
  return FailLocked(absl::StatusCode::kUnavailable, peer,
                    absl::StrCat(DescribeCall(waiting.operation, waiting.sequence),
                                 " cannot end: the connection with ", NameOfRank(peer), ") broke; ",
                                 LastOperationOf(peer)));
}

absl::Status NetGroup::FailPart(const Waiting& waiting, const absl::Status& status, int culprit) {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (broken_) return Adopt(waiting);
  if (absl::IsCancelled(status) && waiting.interruptible) return FailInterrupted(waiting);
  if (culprit < 0 || culprit == rank()) {
    return FailLocked(status.code(), culprit, std::string(status.message()));
  }
  if (absl::IsDeadlineExceeded(status)) return Late(waiting, culprit);
  // Its end comes over the link as well, with its words.
  AwaitEnd(culprit, MonotonicNow() + kBreakTime);
  if (!failure_.ok()) return failure_;
  if (broken_) return Adopt(waiting);
  if (absl::IsUnavailable(status)) return Lost(waiting, culprit);
  return FailLocked(status.code(), culprit, std::string(status.message()));
}

}  // namespace sheaf
