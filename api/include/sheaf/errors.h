// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What goes wrong, as exceptions: one type per kind of failure, all derived from sheaf::Error.
// Result<T> is for callers who want values instead (TryGet).
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "sheaf/internal/export.h"

namespace sheaf::inline v1 {

// What a call ended with. docs/errors.md has the causes and what to do.
enum class ErrorKind : uint8_t {
  kNone = 0,                   // No error.
  kTaskFailed = 1,             // The function threw.
  kTaskCancelled = 2,          // Cancel was called for it.
  kWorkerCrashed = 3,          // The process of the task ended before the task did.
  kActorDied = 4,              // The actor is dead for good.
  kActorUnavailable = 5,       // Restarting; the call was or was not executed.
  kActorUnschedulable = 6,     // No node can ever run the actor.
  kTaskUnschedulable = 7,      // No node can ever run the task.
  kObjectLost = 8,             // All copies went with their nodes, and it cannot be made again.
  kOwnerDied = 9,              // Its maker has ended, and nobody else has a copy.
  kObjectStoreFull = 10,       // No room came free in time.
  kOutOfDisk = 11,             // The disk for spilled objects is full.
  kOutOfMemory = 12,           // The memory watch ended the worker.
  kTimeout = 13,               // A wait with a limit was over first.
  kEnvironmentFailed = 14,     // A runtime environment could not be set up.
  kGroupRemoved = 15,          // A placement group.
  kPendingCallsLimit = 16,     // Too many calls wait at the actor.
  kNodeDied = 17,              // The node that ran the task has died.
  kRayletDied = 18,            // The node of this process has ended.
  kReconstructionFailed = 19,  // A lost object cannot be made again.
  kStreamReplay = 20,          // A generator that ran again gave other items.
  kInvalidArgument = 21,       // An argument is wrong.
  kActorNameTaken = 22,        // An actor of that name lives.
  kNotFound = 23,              // There is nothing of that name.
  kGcsStorageFull = 24,        // The disk of the head is full: nothing was accepted.
  kSystem = 25,                // Anything else of Sheaf's own.
  kActorGroupRemoved = 26,     // The placement group of an actor that had not started.
};

// All that is known about a failure.
struct ErrorInfo {
  ErrorKind kind = ErrorKind::kNone;
  std::string message{};  // For people.
  // kTaskFailed:
  std::string function{};       // "app::Square"; empty when unknown.
  std::string cause_type{};     // "std::out_of_range": what the function threw.
  std::string cause_message{};  // Its what().
};

// The base of all exceptions of Sheaf. Copies share what they know.
class SHEAF_API Error : public std::runtime_error {
 public:
  // what() is `info.message`.
  explicit Error(ErrorInfo info);
  ~Error() override;
  // What happened, and all that is known about it; valid while this object lives.
  ErrorKind kind() const noexcept { return info_->kind; }
  const ErrorInfo& info() const noexcept { return *info_; }

 private:
  std::shared_ptr<const ErrorInfo> info_;  // Copies of exceptions must not throw.
};

// The function threw. what() names the function, the type of the exception and its text.
class SHEAF_API TaskError : public Error {
 public:
  // `info` is of kTaskFailed.
  explicit TaskError(ErrorInfo info);
  ~TaskError() override;
  // Of what failed and what it threw; ErrorInfo says how each looks. Valid while this object lives.
  const std::string& function() const noexcept { return info().function; }
  const std::string& cause_type() const noexcept { return info().cause_type; }
  const std::string& cause_message() const noexcept { return info().cause_message; }
};

// One exception of one kind; undefined below.
#define SHEAF_DEFINE_ERROR(Name, Base, kKind)                                                      \
  class SHEAF_API Name : public Base {                                                             \
   public:                                                                                         \
    explicit Name(ErrorInfo info) : Base(std::move(info)) {}                                       \
    explicit Name(std::string message) : Base(ErrorInfo{kKind, std::move(message), {}, {}, {}}) {} \
    ~Name() override;                                                                              \
  }

// The call was cancelled.
SHEAF_DEFINE_ERROR(TaskCancelledError, Error, ErrorKind::kTaskCancelled);
// The process of the task ended before the task did, and no retry is left.
SHEAF_DEFINE_ERROR(WorkerCrashedError, Error, ErrorKind::kWorkerCrashed);
// The machine ran short of memory, and the process of the task was ended for it.
SHEAF_DEFINE_ERROR(OutOfMemoryError, Error, ErrorKind::kOutOfMemory);
// No node can ever run the task.
SHEAF_DEFINE_ERROR(TaskUnschedulableError, Error, ErrorKind::kTaskUnschedulable);
// The actor is dead for good; the message says why.
SHEAF_DEFINE_ERROR(ActorDiedError, Error, ErrorKind::kActorDied);
// The actor restarts, or its node is not reached; the call may have run.
SHEAF_DEFINE_ERROR(ActorUnavailableError, Error, ErrorKind::kActorUnavailable);
// No node can ever run the actor.
SHEAF_DEFINE_ERROR(ActorUnschedulableError, Error, ErrorKind::kActorUnschedulable);
// An actor of that name lives.
SHEAF_DEFINE_ERROR(ActorNameTakenError, Error, ErrorKind::kActorNameTaken);
// More calls wait at the actor than it or its caller may have.
SHEAF_DEFINE_ERROR(PendingCallsLimitError, Error, ErrorKind::kPendingCallsLimit);
// All copies of the object went with their nodes, and it cannot be made again.
SHEAF_DEFINE_ERROR(ObjectLostError, Error, ErrorKind::kObjectLost);
// The process that made the object has ended, and nobody else has a copy.
SHEAF_DEFINE_ERROR(OwnerDiedError, ObjectLostError, ErrorKind::kOwnerDied);
// The object was lost, and a task that it needs cannot run again.
SHEAF_DEFINE_ERROR(ReconstructionError, ObjectLostError, ErrorKind::kReconstructionFailed);
// A generator ran again for lost items and gave fewer than before.
SHEAF_DEFINE_ERROR(StreamReplayError, Error, ErrorKind::kStreamReplay);
// No room in the object store came free in time.
SHEAF_DEFINE_ERROR(ObjectStoreFullError, Error, ErrorKind::kObjectStoreFull);
// The disk to which objects are spilled is full.
SHEAF_DEFINE_ERROR(OutOfDiskError, Error, ErrorKind::kOutOfDisk);
// A wait with a limit was over first; what it waited for goes on.
SHEAF_DEFINE_ERROR(TimeoutError, Error, ErrorKind::kTimeout);
// The runtime environment of the task or actor could not be set up.
SHEAF_DEFINE_ERROR(EnvironmentError, Error, ErrorKind::kEnvironmentFailed);
// The placement group of the task or actor was removed (kGroupRemoved or kActorGroupRemoved).
SHEAF_DEFINE_ERROR(GroupRemovedError, Error, ErrorKind::kGroupRemoved);
// The node that ran the task has died, and no retry is left.
SHEAF_DEFINE_ERROR(NodeDiedError, Error, ErrorKind::kNodeDied);
// The node of this process has ended.
SHEAF_DEFINE_ERROR(RayletDiedError, Error, ErrorKind::kRayletDied);
// An argument is wrong; the message shows it and says what is wanted.
SHEAF_DEFINE_ERROR(InvalidArgumentError, Error, ErrorKind::kInvalidArgument);
// Bytes that are not the value they are read as.
SHEAF_DEFINE_ERROR(SerializationError, InvalidArgumentError, ErrorKind::kInvalidArgument);
// There is no actor, node or program of that name.
SHEAF_DEFINE_ERROR(NotFoundError, Error, ErrorKind::kNotFound);
// The disk of the head is full. Nothing was accepted that is not on it.
SHEAF_DEFINE_ERROR(GcsStorageFullError, Error, ErrorKind::kGcsStorageFull);
// Something of Sheaf's own failed; the message says what.
SHEAF_DEFINE_ERROR(SystemError, Error, ErrorKind::kSystem);
#undef SHEAF_DEFINE_ERROR

// Throws the exception type of `info.kind`, which is not kNone.
[[noreturn]] SHEAF_API void Raise(ErrorInfo info);

// A T (or nothing, for void), or why there is none. Small: one pointer more than T at most.
template <class T>
class [[nodiscard]] Result {
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
  using Failure = std::shared_ptr<const ErrorInfo>;

 public:
  Result()
    requires std::is_void_v<T>
  = default;
  // A value, or why there is none.
  Result(Value value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(ErrorInfo info)
      : state_(std::in_place_index<1>, std::make_shared<const ErrorInfo>(std::move(info))) {}

  // Whether there is a value.
  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  // The value; throws what Raise(error()) throws if there is none.
  const Value& value() const& {
    if (!ok()) Raise(error());
    return *std::get_if<0>(&state_);
  }
  Value& value() & {
    if (!ok()) Raise(error());
    return *std::get_if<0>(&state_);
  }
  Value&& value() && { return std::move(value()); }
  const Value& operator*() const& { return value(); }
  Value& operator*() & { return value(); }
  Value&& operator*() && { return std::move(value()); }
  const Value* operator->() const { return &value(); }
  Value* operator->() { return &value(); }
  Value value_or(Value other) const& { return ok() ? value() : std::move(other); }
  Value value_or(Value other) && { return ok() ? std::move(value()) : std::move(other); }

  // Why there is no value. `error` only when !ok(); `kind` is kNone otherwise.
  const ErrorInfo& error() const noexcept { return **std::get_if<1>(&state_); }
  ErrorKind kind() const noexcept { return ok() ? ErrorKind::kNone : error().kind; }

 private:
  std::variant<Value, Failure> state_;
};

}  // namespace sheaf::inline v1
