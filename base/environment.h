// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The runtime environment of tasks and actors, as bytes: WorkerSpec.environment,
// LeaseSpec.environment. Workers are shared only between equal bytes, so equal environments have
// equal bytes.
//
// Format: "NAME=value" and NUL for each variable, by name. Names that no variable can have are left
// to languages and travel along: "@working_dir=/data". No variables at all are no bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

// Of all of it: it travels to a worker in hexadecimal, as one variable, of which the kernel takes
// 128 KiB.
inline constexpr size_t kMaxEnvironmentBytes = 62 * 1024;

struct RuntimeEnvironment {
  std::map<std::string, std::string> variables;  // To set in the worker, before its main.
  std::map<std::string, std::string> others;     // Names that begin with '@': the language's.

  friend bool operator==(const RuntimeEnvironment&, const RuntimeEnvironment&) = default;
};

// kInvalidArgument: a name that is no identifier (and no '@' and identifier), a NUL in a value,
// SHEAF_WORKER and its like, or more than kMaxEnvironmentBytes. The text names it.
absl::StatusOr<std::string> EncodeEnvironment(const RuntimeEnvironment& environment);
// From a peer. kInvalidArgument: as above, or not sorted.
absl::StatusOr<RuntimeEnvironment> DecodeEnvironment(std::string_view bytes);
// The bytes of `defaults` with what `own` sets put over it. kInvalidArgument: one of them is no
// environment, or together they are too large.
absl::StatusOr<std::string> MergeEnvironments(std::string_view defaults, std::string_view own);

}  // namespace sheaf
