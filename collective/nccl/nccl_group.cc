// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/nccl_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "collective/group_epochs.h"

namespace sheaf {
namespace {

constexpr Nanos kSpin = 200 * kMicrosecond;       // Before a wait for the device sleeps.
constexpr Nanos kLookPeriod = 10 * kMillisecond;  // At the other ranks, while data moves.
// Another rank's trouble ends an operation only after this: it may have been its last one's end.
constexpr Nanos kGrace = 200 * kMillisecond;
constexpr Nanos kShortestPause = 20 * kMicrosecond;
constexpr Nanos kLongestPause = kMillisecond;
constexpr Nanos kPausesOfWait =
    16;  // A pause is this part of the wait so far: late by 6 % at most.

std::string Seconds(Nanos duration) { return absl::FormatDuration(absl::Nanoseconds(duration)); }

std::string Doing(const NcclGroup::Waiting& waiting) {
  if (waiting.sequence == 0) return "the group's forming in NCCL";
  return Describe(CallOf(waiting.operation, waiting.sequence));
}

absl::Status WithCulprit(absl::Status status, const absl::Status& from) {
  const std::optional<int> rank = RankOf(from);
  return rank.has_value() ? WithRank(std::move(status), *rank) : status;
}

}  // namespace

thread_local int NcclGroup::UserThread::count_ = 0;

std::function<bool()> NcclGroup::OnUserThread(std::function<bool()> interrupted) {
  if (!interrupted) return nullptr;
  // Before a group is formed only its maker's thread asks.
  return [interrupted = std::move(interrupted)] { return UserThread::count_ > 0 && interrupted(); };
}

NcclGroup::NcclGroup(const NcclOptions& options, std::unique_ptr<Communicator> control)
    : options_(options.group),
      stream_(options.stream),
      forks_(Forks()),
      control_(std::move(control)) {}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Form(const NcclOptions& options,
                                                           std::unique_ptr<Communicator> control) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(options, std::move(control)));
  if (absl::Status status = group->Open(options); !status.ok()) {
    group->control_->Abort(status.message());  // The others need not wait.
    return status;
  }
  const std::string version = nccl::VersionText(group->nccl_->version());
  SHEAF_ASSIGN_OR_RETURN(
      group->board_, RankBoard::Form(*group->control_, version, options.group.formation_timeout));
  for (int rank = 0; rank < group->world_size(); ++rank) {
    const std::string theirs = group->board_->about(rank).c_str();
    if (theirs == version) continue;
    return WithRank(absl::FailedPreconditionError(absl::StrCat(
                        "rank ", rank, " has NCCL ", theirs, ", rank ", group->rank(), " has ",
                        version, " (", group->nccl_->path(),
                        "): want one version on all ranks; SHEAF_NCCL_LIB names a library")),
                    rank);
  }
  return group;
}

absl::Status NcclGroup::Open(const NcclOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(nccl_, nccl::Library::Load(options.folders));
  SHEAF_ASSIGN_OR_RETURN(std::shared_ptr<const CudaLibrary> cuda,
                         CudaLibrary::Load(options.folders));
  SHEAF_ASSIGN_OR_RETURN(device_, CudaDevice::Open(std::move(cuda), options.device));
  return absl::OkStatus();
}

bool NcclGroup::Forked() const { return Forks() != forks_; }

Nanos NcclGroup::Left(const Waiting& waiting) const {
  return std::max<Nanos>(waiting.deadline - MonotonicNow(), kMillisecond);
}

absl::StatusOr<std::unique_ptr<nccl::Lane>> NcclGroup::MeetAll() {
  Waiting waiting;
  waiting.operation.timeout = options_.formation_timeout;
  waiting.deadline = Deadline(MonotonicNow(), options_.formation_timeout);
  nccl::UniqueId id = {};
  absl::Status status;
  if (rank() == 0) status = nccl_->StatusOf((*nccl_)->ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (!status.ok()) return Fail(std::move(status));
  status = control_->Broadcast(&id, sizeof id, DataType::kUint8, /*root=*/0, Left(waiting));
  if (!status.ok()) return FailInControl(waiting, status);
  auto lane = std::make_unique<nccl::Lane>(nccl_, device_, stream_);
  SHEAF_RETURN_IF_ERROR(Meet(*lane, id, world_size(), rank(), waiting));
  return lane;
}

absl::Status NcclGroup::Meet(nccl::Lane& lane, const nccl::UniqueId& id, int ranks, int rank,
                             const Waiting& waiting) {
  if (absl::Status status = lane.Begin(id, ranks, rank); !status.ok()) {
    return FailWith(waiting, status);
  }
  return Await(waiting, [&] { return lane.Ready(); });
}

absl::Status NcclGroup::Agree(const Waiting& waiting) {
  board_->Begin(waiting.sequence);
  if (world_size() == 1) return absl::OkStatus();
  const NcclCall call = CallOf(waiting.operation, waiting.sequence);
  std::vector<NcclCall> calls(static_cast<size_t>(world_size()));
  const absl::Status status =
      control_->AllGather(&call, calls.data(), sizeof call, DataType::kUint8, Left(waiting));
  if (!status.ok()) return FailInControl(waiting, status);
  if (absl::Status mismatch = Compare(calls); !mismatch.ok()) return Fail(std::move(mismatch));
  return absl::OkStatus();
}

absl::StatusOr<nccl::UniqueId> NcclGroup::AgreePair(const Waiting& waiting, bool first) {
  NcclMessage message = {};
  absl::Status status;
  if (waiting.operation.kind == CollectiveKind::kSend) {
    message.call = CallOf(waiting.operation, waiting.sequence);
    if (first) {
      status = nccl_->StatusOf((*nccl_)->ncclGetUniqueId(&message.id), "ncclGetUniqueId");
      if (!status.ok()) return FailWith(waiting, status);
    }
    status = control_->Send(&message, sizeof message, DataType::kUint8, waiting.operation.peer,
                            Left(waiting));
    if (!status.ok()) return FailInControl(waiting, status);
  } else {
    status = control_->Receive(&message, sizeof message, DataType::kUint8, waiting.operation.peer,
                               Left(waiting));
    if (!status.ok()) return FailInControl(waiting, status);
    status = Compare(message, waiting.operation, waiting.sequence, rank());
    if (!status.ok()) return Fail(std::move(status));
  }
  return message.id;
}

absl::Status NcclGroup::Await(const Waiting& waiting,
                              absl::FunctionRef<absl::StatusOr<bool>()> ready) {
  const Nanos began = MonotonicNow();
  Nanos look = began + kLookPeriod;
  while (true) {
    const absl::StatusOr<bool> done = ready();
    if (!done.ok()) return FailWith(waiting, done.status());
    if (*done) return absl::OkStatus();
    const Nanos now = MonotonicNow();
    if (now - began < kSpin) {
      std::this_thread::yield();
      continue;
    }
    if (absl::Status failure = Failure(); !failure.ok()) return failure;
    if (now >= look) {
      look = now + kLookPeriod;
      if (absl::Status trouble = Trouble(now); !trouble.ok()) {
        return Fail(
            WithCulprit(absl::Status(trouble.code(),
                                     absl::StrCat(Doing(waiting), " ended: ", trouble.message())),
                        trouble));
      }
      if (UserThread::count_ > 0 && options_.interrupted && options_.interrupted()) {
        return Fail(absl::CancelledError(absl::StrCat(Doing(waiting), " was interrupted")));
      }
    }
    if (now >= waiting.deadline) return Fail(Late(waiting));
    Pause(std::clamp((now - began) / kPausesOfWait, kShortestPause, kLongestPause));
  }
}

void NcclGroup::Pause(Nanos duration) {
  const MutexLock lock(mutex_);
  if (failure_.ok()) failed_.WaitFor(mutex_, duration);
}

// What befell another rank, once that is long enough ago.
absl::Status NcclGroup::Trouble(Nanos now) {
  absl::Status trouble = board_->Failure();
  if (trouble.ok()) trouble = board_->Absence();
  const MutexLock lock(mutex_);
  if (trouble.ok()) {
    trouble_since_ = 0;
  } else if (trouble_since_ == 0) {
    trouble_since_ = now;
  }
  return trouble.ok() || now - trouble_since_ < kGrace ? absl::OkStatus() : trouble;
}

absl::Status NcclGroup::Late(const Waiting& waiting) const {
  const bool pairwise = waiting.operation.kind == CollectiveKind::kSend ||
                        waiting.operation.kind == CollectiveKind::kReceive;
  const std::optional<int> culprit =
      pairwise ? std::optional<int>(waiting.operation.peer) : board_->Late(waiting.sequence);
  absl::Status late = absl::DeadlineExceededError(absl::StrCat(
      Doing(waiting), " did not end within ", Seconds(waiting.operation.timeout),
      culprit.has_value() ? absl::StrCat(": ", board_->Describe(*culprit), " did not go on")
                          : ": all ranks are in it, and the device or the network is not done"));
  return culprit.has_value() ? WithRank(std::move(late), *culprit) : late;
}

absl::Status NcclGroup::Fail(absl::Status status) {
  {
    const MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    failure_ = status;
    // Before the control group: who wakes there finds the reason here.
    if (!Forked() && board_ != nullptr) board_->Fail(status);
    failed_.NotifyAll();
  }
  if (!Forked()) control_->Abort(status.message());
  return status;
}

absl::Status NcclGroup::FailWith(const Waiting& waiting, const absl::Status& error) {
  // A rank that dies takes connections with it: its end is seen a moment later.
  absl::Status trouble;
  const Nanos until = MonotonicNow() + kGrace;
  while (trouble.ok() && MonotonicNow() < until && Failure().ok()) {
    trouble = board_->Failure();
    if (trouble.ok()) trouble = board_->Absence();
    if (trouble.ok()) Pause(kLongestPause);
  }
  std::string words = absl::StrCat(Doing(waiting), ": ", error.message());
  if (!trouble.ok()) absl::StrAppend(&words, "; ", trouble.message());
  return Fail(
      WithCulprit(absl::Status(trouble.ok() ? error.code() : trouble.code(), words), trouble));
}

absl::Status NcclGroup::FailInControl(const Waiting& waiting, const absl::Status& error) {
  const std::string doing = Doing(waiting);
  // Another rank's own words are better than what follows from them.
  if (absl::Status failure = board_->Failure(); !failure.ok()) {
    return Fail(WithCulprit(
        absl::Status(failure.code(), absl::StrCat(doing, " ended: ", failure.message())), failure));
  }
  const std::optional<int> culprit = RankOf(error);
  if (absl::IsDeadlineExceeded(error) && culprit.has_value()) {
    return Fail(WithRank(absl::DeadlineExceededError(
                             absl::StrCat(board_->Describe(*culprit), " has not entered ", doing,
                                          " within ", Seconds(waiting.operation.timeout))),
                         *culprit));
  }
  return Fail(WithCulprit(
      absl::Status(error.code(), absl::StrCat(doing, " did not begin: ", error.message())), error));
}

absl::Status NcclGroup::Failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

}  // namespace sheaf
