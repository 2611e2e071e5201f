// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/net_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace sheaf {

NetCommunicator::NetCommunicator(std::unique_ptr<NetGroup> group,
                                 std::unique_ptr<NetOperations> operations)
    : group_(std::move(group)),
      operations_(std::move(operations)),
      lines_(1 + 2 * static_cast<size_t>(group_->world_size())) {
  group_->OnFailure([this](const std::string& why) { operations_->End(why); });
}

NetCommunicator::~NetCommunicator() {
  if (group_->Forked()) {  // The threads of this process's parent are not this process's.
    for (OperationLine& line : lines_) line.executor.release();
    operations_->ForgetAfterFork();
    operations_.release();
    group_->ForgetAfterFork();
    return;
  }
  for (OperationLine& line : lines_) {
    if (line.started.load() == 0) continue;
    group_->Fail(absl::StatusCode::kCancelled, -1, "the group was destroyed while an operation ran")
        .IgnoreError();
  }
  for (OperationLine& line : lines_) line.executor.reset();
  group_->OnFailure(nullptr);
  operations_.reset();
}

absl::Status NetCommunicator::Check(const Operation& operation) const {
  SHEAF_RETURN_IF_ERROR(CheckUsable(*this, *group_));
  return CheckOperation(operation, rank(), world_size());
}

absl::Status NetCommunicator::RunNow(const Operation& operation, bool interruptible) {
  if (operation.kind == CollectiveKind::kSend || operation.kind == CollectiveKind::kReceive) {
    return operations_->RunPairwise(operation, interruptible);
  }
  Waiting waiting;
  group_->Announce(operation, interruptible, operations_->Inlined(operation), &waiting);
  operations_->Begin(operation);
  SHEAF_RETURN_IF_ERROR(group_->AwaitEntered(waiting));
  const absl::Status status = operations_->RunCollective(operation, waiting);
  // Nobody waits for a rank that could not do its part.
  if (!status.ok()) return group_->FailPart(waiting, status, group_->rank());
  group_->Finish(waiting);
  return absl::OkStatus();
}

absl::Status NetCommunicator::Run(const Operation& operation) {
  SHEAF_RETURN_IF_ERROR(Check(operation));
  OperationLine& line = LineOf(lines_, operation);
  if (line.started.load(std::memory_order_acquire) > 0) return Start(operation)->Wait(kForever);
  const MutexLock lock(line.running);
  SHEAF_RETURN_IF_ERROR(Check(operation));  // The one before may have ended the group.
  return RunNow(operation, /*interruptible=*/true);
}

std::shared_ptr<Work> NetCommunicator::Start(const Operation& operation) {
  if (absl::Status status = Check(operation); !status.ok()) return FinishedWork(status);
  return LineOf(lines_, operation).Start("collective", group_->options().interrupted, [=, this] {
    SHEAF_RETURN_IF_ERROR(Check(operation));
    return RunNow(operation, /*interruptible=*/false);
  });
}

void NetCommunicator::Abort(absl::string_view why) {
  if (group_->Forked()) return;
  group_->Fail(absl::StatusCode::kCancelled, -1, absl::StrCat("aborted: ", why)).IgnoreError();
}

absl::StatusOr<std::unique_ptr<NetGroup>> FormNetGroup(
    const CommunicatorOptions& options, Rendezvous& rendezvous, bool all_pairs,
    absl::FunctionRef<absl::Status(NetGroup& group, Nanos deadline)> complete) {
  const Nanos deadline = Deadline(MonotonicNow(), options.formation_timeout);
  CommunicatorOptions now = options;
  while (true) {
    SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<NetGroup> group, NetGroup::Form(now, rendezvous));
    const std::string& node = group->member(group->rank()).node;
    absl::Status status = group->ConnectBulk(
        [&](int rank) { return all_pairs || group->member(rank).node != node; }, deadline);
    if (status.ok()) status = complete(*group, deadline);
    // Whoever is lost before makes all begin again, not those alone who notice.
    if (status.ok()) status = group->AwaitFormed(deadline);
    if (status.ok()) return group;
    // A rank that has died meanwhile may have a successor.
    if (!absl::IsUnavailable(status) || MonotonicNow() >= deadline) return status;
    now.formation_timeout = std::max<Nanos>(deadline - MonotonicNow(), kMillisecond);
  }
}

}  // namespace sheaf
