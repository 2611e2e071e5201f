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

enum class ErrorKind : uint8_t {
  kNone = 0,
  kTaskFailed = 1,  // The function threw.
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
  kOutOfMemory = 12,  // The memory watch ended the worker.
  kTimeout = 13,
  kEnvironmentFailed = 14,
  kGroupRemoved = 15,  // A placement group.
  kPendingCallsLimit = 16,
  kNodeDied = 17,
  kRayletDied = 18,
  kReconstructionFailed = 19,
  kStreamReplay = 20,  // A generator that ran again gave other items.
  kInvalidArgument = 21,
  kActorNameTaken = 22,
  kNotFound = 23,
  kGcsStorageFull = 24,
  kSystem = 25,  // Anything else of Sheaf's own.
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

class SHEAF_API Error : public std::runtime_error {
 public:
  explicit Error(ErrorInfo info);
  ~Error() override;
  ErrorKind kind() const noexcept { return info_->kind; }
  const ErrorInfo& info() const noexcept { return *info_; }

 private:
  std::shared_ptr<const ErrorInfo> info_;  // Copies of exceptions must not throw.
};

// The function threw. what() names the function, the type of the exception and its text.
class SHEAF_API TaskError : public Error {
 public:
  explicit TaskError(ErrorInfo info);
  ~TaskError() override;
  const std::string& function() const noexcept { return info().function; }
  const std::string& cause_type() const noexcept { return info().cause_type; }
  const std::string& cause_message() const noexcept { return info().cause_message; }
};

#define SHEAF_DEFINE_ERROR(Name, Base, kKind)                                                      \
  class SHEAF_API Name : public Base {                                                             \
   public:                                                                                         \
    explicit Name(ErrorInfo info) : Base(std::move(info)) {}                                       \
    explicit Name(std::string message) : Base(ErrorInfo{kKind, std::move(message), {}, {}, {}}) {} \
    ~Name() override;                                                                              \
  }

SHEAF_DEFINE_ERROR(TaskCancelledError, Error, ErrorKind::kTaskCancelled);
SHEAF_DEFINE_ERROR(WorkerCrashedError, Error, ErrorKind::kWorkerCrashed);
SHEAF_DEFINE_ERROR(OutOfMemoryError, Error, ErrorKind::kOutOfMemory);
SHEAF_DEFINE_ERROR(TaskUnschedulableError, Error, ErrorKind::kTaskUnschedulable);
SHEAF_DEFINE_ERROR(ActorDiedError, Error, ErrorKind::kActorDied);
SHEAF_DEFINE_ERROR(ActorUnavailableError, Error, ErrorKind::kActorUnavailable);
SHEAF_DEFINE_ERROR(ActorUnschedulableError, Error, ErrorKind::kActorUnschedulable);
SHEAF_DEFINE_ERROR(ActorNameTakenError, Error, ErrorKind::kActorNameTaken);
SHEAF_DEFINE_ERROR(PendingCallsLimitError, Error, ErrorKind::kPendingCallsLimit);
SHEAF_DEFINE_ERROR(ObjectLostError, Error, ErrorKind::kObjectLost);
SHEAF_DEFINE_ERROR(OwnerDiedError, ObjectLostError, ErrorKind::kOwnerDied);
SHEAF_DEFINE_ERROR(ReconstructionError, ObjectLostError, ErrorKind::kReconstructionFailed);
SHEAF_DEFINE_ERROR(StreamReplayError, Error, ErrorKind::kStreamReplay);
SHEAF_DEFINE_ERROR(ObjectStoreFullError, Error, ErrorKind::kObjectStoreFull);
SHEAF_DEFINE_ERROR(OutOfDiskError, Error, ErrorKind::kOutOfDisk);
SHEAF_DEFINE_ERROR(TimeoutError, Error, ErrorKind::kTimeout);
SHEAF_DEFINE_ERROR(EnvironmentError, Error, ErrorKind::kEnvironmentFailed);
SHEAF_DEFINE_ERROR(GroupRemovedError, Error, ErrorKind::kGroupRemoved);
SHEAF_DEFINE_ERROR(NodeDiedError, Error, ErrorKind::kNodeDied);
SHEAF_DEFINE_ERROR(RayletDiedError, Error, ErrorKind::kRayletDied);
SHEAF_DEFINE_ERROR(InvalidArgumentError, Error, ErrorKind::kInvalidArgument);
// Bytes that are not the value they are read as.
SHEAF_DEFINE_ERROR(SerializationError, InvalidArgumentError, ErrorKind::kInvalidArgument);
SHEAF_DEFINE_ERROR(NotFoundError, Error, ErrorKind::kNotFound);
SHEAF_DEFINE_ERROR(GcsStorageFullError, Error, ErrorKind::kGcsStorageFull);
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
  Result(Value value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(ErrorInfo info)
      : state_(std::in_place_index<1>, std::make_shared<const ErrorInfo>(std::move(info))) {}

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

  // Only when !ok().
  const ErrorInfo& error() const noexcept { return **std::get_if<1>(&state_); }
  ErrorKind kind() const noexcept { return ok() ? ErrorKind::kNone : error().kind; }

 private:
  std::variant<Value, Failure> state_;
};

}  // namespace sheaf::inline v1
