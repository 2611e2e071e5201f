// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/failures.h"

#include <cxxabi.h>

#include <cstdlib>
#include <exception>

#include "sheaf/serialize.h"

namespace sheaf::inline v1::internal {
namespace {

// CoreError::payload of C++ functions.
struct FailurePayload {
  std::string language = "c++";
  std::string function;
  std::string type;
  std::string message;
};

std::string Readable(const std::type_info* type) {
  if (type == nullptr) return "an unknown type";
  int status = 0;
  char* text = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type->name();
  std::free(text);
  for (const std::string_view hidden : {"sheaf::v1::", "std::__cxx11::"}) {
    for (size_t at = name.find(hidden); at != std::string::npos; at = name.find(hidden)) {
      name.replace(at, hidden.size(), hidden.substr(0, hidden.find("::") + 2));
    }
  }
  return name;
}

static_assert(static_cast<int>(ErrorKind::kActorGroupRemoved) ==
              static_cast<int>(CoreErrorKind::kActorGroupRemoved));
static_assert(static_cast<int>(ErrorKind::kTimeout) == static_cast<int>(CoreErrorKind::kTimeout));
static_assert(static_cast<int>(ErrorKind::kGcsStorageFull) ==
              static_cast<int>(CoreErrorKind::kGcsStorageFull));

}  // namespace

ErrorInfo InfoOf(const absl::Status& status, ErrorKind exhausted) {
  ErrorInfo info;
  info.message = std::string(status.message());
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      info.kind = ErrorKind::kTimeout;
      break;
    case absl::StatusCode::kCancelled:
      info.kind = ErrorKind::kTaskCancelled;
      break;
    case absl::StatusCode::kInvalidArgument:
      info.kind = ErrorKind::kInvalidArgument;
      break;
    case absl::StatusCode::kNotFound:
      info.kind = ErrorKind::kNotFound;
      break;
    case absl::StatusCode::kAlreadyExists:
      info.kind = ErrorKind::kActorNameTaken;
      break;
    case absl::StatusCode::kResourceExhausted:
      info.kind = exhausted;
      break;
    case absl::StatusCode::kAborted:
      info.kind = ErrorKind::kRayletDied;
      break;
    default:
      info.kind = ErrorKind::kSystem;
      break;
  }
  return info;
}

ErrorInfo InfoOf(const CoreError& error) {
  ErrorInfo info;
  info.kind = static_cast<ErrorKind>(error.kind);
  info.message = error.message.empty() ? ErrorName(error.kind) : error.message;
  if (info.kind != ErrorKind::kTaskFailed) return info;
  try {
    FailurePayload payload = Deserialize<FailurePayload>(error.payload);
    info.function = std::move(payload.function);
    info.cause_type = std::move(payload.type);
    info.cause_message = std::move(payload.message);
  } catch (const SerializationError&) {
    // Another language's: its text is in the message.
  }
  return info;
}

CoreError CurrentExceptionAsError(const std::string& function) {
  CoreError error;
  error.kind = CoreErrorKind::kTaskFailed;
  FailurePayload payload;
  payload.function = function;
  payload.type = Readable(abi::__cxa_current_exception_type());
  try {
    throw;
  } catch (
      const TaskError& inner) {  // A call that this function made: the first cause is what counts.
    error.message = "in " + function + ": " + inner.what();
    payload.type = inner.cause_type();
    payload.message = inner.cause_message();
  } catch (const std::exception& exception) {
    payload.message = exception.what();
    error.message = function + " threw " + payload.type + ": " + payload.message;
  } catch (...) {
    error.message = function + " threw " + payload.type;
  }
  error.payload = Serialize(payload);
  return error;
}

}  // namespace sheaf::inline v1::internal
