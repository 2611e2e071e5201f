// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/error_kind.h"

namespace sheaf {

const char* ErrorName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kNone:
      return "None";
    case ErrorKind::kTaskFailed:
      return "TaskFailed";
    case ErrorKind::kTaskCancelled:
      return "TaskCancelled";
    case ErrorKind::kWorkerCrashed:
      return "WorkerCrashed";
    case ErrorKind::kActorDied:
      return "ActorDied";
    case ErrorKind::kActorUnavailable:
      return "ActorUnavailable";
    case ErrorKind::kActorUnschedulable:
      return "ActorUnschedulable";
    case ErrorKind::kTaskUnschedulable:
      return "TaskUnschedulable";
    case ErrorKind::kObjectLost:
      return "ObjectLost";
    case ErrorKind::kOwnerDied:
      return "OwnerDied";
    case ErrorKind::kObjectStoreFull:
      return "ObjectStoreFull";
    case ErrorKind::kOutOfDisk:
      return "OutOfDisk";
    case ErrorKind::kOutOfMemory:
      return "OutOfMemory";
    case ErrorKind::kTimeout:
      return "Timeout";
    case ErrorKind::kEnvironmentFailed:
      return "EnvironmentFailed";
    case ErrorKind::kGroupRemoved:
      return "GroupRemoved";
    case ErrorKind::kPendingCallsLimit:
      return "PendingCallsLimit";
    case ErrorKind::kNodeDied:
      return "NodeDied";
    case ErrorKind::kRayletDied:
      return "RayletDied";
    case ErrorKind::kReconstructionFailed:
      return "ReconstructionFailed";
    case ErrorKind::kStreamReplay:
      return "StreamReplay";
    case ErrorKind::kInvalidArgument:
      return "InvalidArgument";
    case ErrorKind::kActorNameTaken:
      return "ActorNameTaken";
    case ErrorKind::kNotFound:
      return "NotFound";
    case ErrorKind::kGcsStorageFull:
      return "GcsStorageFull";
    case ErrorKind::kSystem:
      return "System";
    case ErrorKind::kActorGroupRemoved:
      return "ActorGroupRemoved";
  }
  return "Unknown";
}

}  // namespace sheaf
