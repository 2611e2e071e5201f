// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "sheaf/collective.h"

#include "api/failures.h"
#include "api/group_state.h"
#include "api/process.h"
#include "collective/net/hierarchical_communicator.h"
#include "object_store/machine_memory.h"
#include "sheaf/task.h"
#include "worker/gcs_rendezvous.h"

namespace sheaf::inline v1::collective {
namespace {

static_assert(static_cast<int>(DataType::kFloat64) == static_cast<int>(sheaf::DataType::kFloat64) &&
              static_cast<int>(DataType::kFloat16) == static_cast<int>(sheaf::DataType::kFloat16) &&
              static_cast<int>(Op::kAverage) == static_cast<int>(ReduceOp::kAverage) &&
              static_cast<int>(internal::Kind::kReceive) ==
                  static_cast<int>(CollectiveKind::kReceive));

}  // namespace

void ThrowIfFailed(const absl::Status& status) {
  if (status.ok()) [[likely]]
    return;
  ErrorInfo info;
  info.kind = ErrorKind::kSystem;
  info.message = std::string(status.message());
  const std::optional<int> rank = RankOf(status);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      info.kind = ErrorKind::kInvalidArgument;
      if (!rank.has_value()) throw InvalidArgumentError(std::move(info));
      throw MismatchError(std::move(info), rank);
    case absl::StatusCode::kDeadlineExceeded:
      info.kind = ErrorKind::kTimeout;
      throw LateRankError(std::move(info), rank);
    case absl::StatusCode::kUnavailable:
      throw LostRankError(std::move(info), rank);
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kCancelled:
      throw DeadGroupError(std::move(info), rank);
    default:
      throw CollectiveError(std::move(info), rank);
  }
}

namespace {

Nanos NanosOf(std::chrono::nanoseconds duration) {
  return duration == std::chrono::nanoseconds::max() ? kNever : duration.count();
}

}  // namespace

CollectiveError::~CollectiveError() = default;
LateRankError::~LateRankError() = default;
LostRankError::~LostRankError() = default;
MismatchError::~MismatchError() = default;
DeadGroupError::~DeadGroupError() = default;

Communicator& CommunicatorIn(const std::shared_ptr<GroupState>& state) {
  if (state == nullptr) throw InvalidArgumentError("a Group that was never formed: call Init");
  return *state->communicator;
}

namespace {

Operation OperationOf(const internal::Call& call, Nanos timeout) {
  return {static_cast<CollectiveKind>(call.kind),
          static_cast<sheaf::DataType>(call.type),
          static_cast<ReduceOp>(call.op),
          call.input,
          call.output,
          call.count,
          call.peer,
          timeout};
}

}  // namespace

void internal::ThrowSize(const char* operation, size_t got, size_t want) {
  throw InvalidArgumentError(std::string(operation) + ": an array of " + std::to_string(got) +
                             " elements, want " + std::to_string(want));
}

Group Group::Init(const std::string& name, int world_size, int rank, const GroupOptions& options) {
  CommunicatorOptions core;
  core.name = name;
  core.world_size = world_size;
  core.rank = rank;
  core.epoch = options.epoch;
  core.arena_bytes = options.arena_bytes;
  core.check_memory = &CheckMemoryFor;
  core.formation_timeout = NanosOf(options.formation_timeout);
  core.interrupted = [] { return IsCancelled(); };
  Runtime& runtime = v1::internal::TheRuntime();
  GcsRendezvous rendezvous(runtime, name);
  const absl::StatusOr<CollectivePlace> place =
      PlaceOfThisNode(runtime, Deadline(MonotonicNow(), core.formation_timeout));
  ThrowIfFailed(place.status());
  core.node = place->node;
  core.host = place->host;
  absl::StatusOr<std::unique_ptr<Communicator>> formed = FormCommunicator(core, rendezvous);
  ThrowIfFailed(formed.status());
  Group group;
  group.state_ = std::make_shared<GroupState>(*std::move(formed), NanosOf(options.timeout));
  return group;
}

int Group::rank() const { return CommunicatorIn(state_).rank(); }
int Group::world_size() const { return CommunicatorIn(state_).world_size(); }
uint64_t Group::epoch() const { return CommunicatorIn(state_).epoch(); }
bool Group::healthy() const { return CommunicatorIn(state_).Health().ok(); }
void Group::Abort(const std::string& why) { CommunicatorIn(state_).Abort(why); }

void Group::Run(const internal::Call& call) {
  Communicator& communicator = CommunicatorIn(state_);
  ThrowIfFailed(communicator.Run(OperationOf(call, state_->timeout)));
}

collective::Work Group::Start(const internal::Call& call) {
  Communicator& communicator = CommunicatorIn(state_);
  Work work;
  work.work_ = communicator.Start(OperationOf(call, state_->timeout));
  return work;
}

std::shared_ptr<std::byte> Group::AllocateBytes(size_t bytes) {
  absl::StatusOr<std::shared_ptr<std::byte>> memory = CommunicatorIn(state_).Allocate(bytes);
  ThrowIfFailed(memory.status());
  return *std::move(memory);
}

bool Work::Done() const {
  return work_ == nullptr || static_cast<sheaf::Work*>(work_.get())->Done();
}

bool Work::Wait(std::chrono::nanoseconds timeout) const {
  if (work_ == nullptr) return true;
  auto* const work = static_cast<sheaf::Work*>(work_.get());
  const absl::Status status = work->Wait(NanosOf(timeout));
  if (!work->Done() && absl::IsDeadlineExceeded(status)) return false;
  ThrowIfFailed(status);
  return true;
}

}  // namespace sheaf::inline v1::collective
