// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From the runtime's errors to the public ones, and user exceptions into errors that travel.
#pragma once

#include "api/core.h"

namespace sheaf::inline v1::internal {

// What a failed call of the runtime means to the user. `exhausted`: which limit kResourceExhausted
// speaks of.
ErrorInfo InfoOf(const absl::Status& status, ErrorKind exhausted = ErrorKind::kSystem);
// What an object holds in place of a value.
ErrorInfo InfoOf(const CoreError& error);

[[noreturn]] inline void ThrowStatus(const absl::Status& status,
                                     ErrorKind exhausted = ErrorKind::kSystem) {
  Raise(InfoOf(status, exhausted));
}
inline void ThrowIfFailed(const absl::Status& status, ErrorKind exhausted = ErrorKind::kSystem) {
  if (!status.ok()) [[unlikely]]
    ThrowStatus(status, exhausted);
}
template <class T>
T ValueOrThrow(absl::StatusOr<T> result, ErrorKind exhausted = ErrorKind::kSystem) {
  if (!result.ok()) [[unlikely]]
    ThrowStatus(result.status(), exhausted);
  return *std::move(result);
}

// The exception being handled, as the error of a call of `function`.
CoreError CurrentExceptionAsError(const std::string& function);

}  // namespace sheaf::inline v1::internal
