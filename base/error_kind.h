// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Why a task, object or actor has no value. Travels in frames and messages; each kind is one
// exception type in C++ (sheaf/errors.h) and in Python (sheaf.exceptions).
#pragma once

#include <cstdint>
#include <string>

namespace sheaf {

enum class ErrorKind : uint8_t {
  kNone = 0,
  kTaskFailed = 1,  // User code threw; the payload is the language's own form of it.
  kTaskCancelled = 2,
  kWorkerCrashed = 3,
  kActorDied = 4,
  kActorUnavailable = 5,  // Restarting; the call was or was not executed.
  kActorUnschedulable = 6,
  kTaskUnschedulable = 7,
  kObjectLost = 8,
  kOwnerDied = 9,
  kObjectStoreFull = 10,
  kOutOfDisk = 11,
  kOutOfMemory = 12,  // The memory watch killed the worker.
  kTimeout = 13,
  kEnvironmentFailed = 14,
  kGroupRemoved = 15,  // Placement group.
  kPendingCallsLimit = 16,
  kNodeDied = 17,
  kRayletDied = 18,
  kReconstructionFailed = 19,
  kStreamReplay = 20,  // A generator re-run gave other items.
  kInvalidArgument = 21,
  kActorNameTaken = 22,
  kNotFound = 23,  // No actor of that name, no such function.
  kGcsStorageFull = 24,
  kSystem = 25,             // Anything else of Sheaf's own.
  kActorGroupRemoved = 26,  // The placement group of an actor that had not started.
};

struct Error {
  ErrorKind kind = ErrorKind::kNone;
  std::string message;  // For people: what happened to which thing, and the remedy if there is one.
  std::string payload;  // kTaskFailed: the user's exception as its language serialised it.
};

const char* ErrorName(ErrorKind kind);  // "WorkerCrashed"; "Unknown" for numbers of a newer peer.

}  // namespace sheaf
