// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "sheaf/errors.h"

namespace sheaf::inline v1 {

Error::Error(ErrorInfo info)
    : std::runtime_error(info.message), info_(std::make_shared<const ErrorInfo>(std::move(info))) {}
Error::~Error() = default;
TaskError::TaskError(ErrorInfo info) : Error(std::move(info)) {}
TaskError::~TaskError() = default;

// Out of line, so that each type's vtable and typeinfo are in the library once.
TaskCancelledError::~TaskCancelledError() = default;
WorkerCrashedError::~WorkerCrashedError() = default;
OutOfMemoryError::~OutOfMemoryError() = default;
TaskUnschedulableError::~TaskUnschedulableError() = default;
ActorDiedError::~ActorDiedError() = default;
ActorUnavailableError::~ActorUnavailableError() = default;
ActorUnschedulableError::~ActorUnschedulableError() = default;
ActorNameTakenError::~ActorNameTakenError() = default;
PendingCallsLimitError::~PendingCallsLimitError() = default;
ObjectLostError::~ObjectLostError() = default;
OwnerDiedError::~OwnerDiedError() = default;
ReconstructionError::~ReconstructionError() = default;
StreamReplayError::~StreamReplayError() = default;
ObjectStoreFullError::~ObjectStoreFullError() = default;
OutOfDiskError::~OutOfDiskError() = default;
TimeoutError::~TimeoutError() = default;
EnvironmentError::~EnvironmentError() = default;
GroupRemovedError::~GroupRemovedError() = default;
NodeDiedError::~NodeDiedError() = default;
RayletDiedError::~RayletDiedError() = default;
InvalidArgumentError::~InvalidArgumentError() = default;
SerializationError::~SerializationError() = default;
NotFoundError::~NotFoundError() = default;
GcsStorageFullError::~GcsStorageFullError() = default;
SystemError::~SystemError() = default;

void Raise(ErrorInfo info) {
  switch (info.kind) {
    case ErrorKind::kTaskFailed:
      throw TaskError(std::move(info));
    case ErrorKind::kTaskCancelled:
      throw TaskCancelledError(std::move(info));
    case ErrorKind::kWorkerCrashed:
      throw WorkerCrashedError(std::move(info));
    case ErrorKind::kActorDied:
      throw ActorDiedError(std::move(info));
    case ErrorKind::kActorUnavailable:
      throw ActorUnavailableError(std::move(info));
    case ErrorKind::kActorUnschedulable:
      throw ActorUnschedulableError(std::move(info));
    case ErrorKind::kTaskUnschedulable:
      throw TaskUnschedulableError(std::move(info));
    case ErrorKind::kObjectLost:
      throw ObjectLostError(std::move(info));
    case ErrorKind::kOwnerDied:
      throw OwnerDiedError(std::move(info));
    case ErrorKind::kObjectStoreFull:
      throw ObjectStoreFullError(std::move(info));
    case ErrorKind::kOutOfDisk:
      throw OutOfDiskError(std::move(info));
    case ErrorKind::kOutOfMemory:
      throw OutOfMemoryError(std::move(info));
    case ErrorKind::kTimeout:
      throw TimeoutError(std::move(info));
    case ErrorKind::kEnvironmentFailed:
      throw EnvironmentError(std::move(info));
    case ErrorKind::kGroupRemoved:
    case ErrorKind::kActorGroupRemoved:
      throw GroupRemovedError(std::move(info));
    case ErrorKind::kPendingCallsLimit:
      throw PendingCallsLimitError(std::move(info));
    case ErrorKind::kNodeDied:
      throw NodeDiedError(std::move(info));
    case ErrorKind::kRayletDied:
      throw RayletDiedError(std::move(info));
    case ErrorKind::kReconstructionFailed:
      throw ReconstructionError(std::move(info));
    case ErrorKind::kStreamReplay:
      throw StreamReplayError(std::move(info));
    case ErrorKind::kInvalidArgument:
      throw InvalidArgumentError(std::move(info));
    case ErrorKind::kActorNameTaken:
      throw ActorNameTakenError(std::move(info));
    case ErrorKind::kNotFound:
      throw NotFoundError(std::move(info));
    case ErrorKind::kGcsStorageFull:
      throw GcsStorageFullError(std::move(info));
    case ErrorKind::kNone:
    case ErrorKind::kSystem:
      break;
  }
  throw SystemError(std::move(info));  // Also kinds of a newer peer.
}

}  // namespace sheaf::inline v1
