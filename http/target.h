// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The target of a request line, taken apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "http/message.h"

namespace sheaf::http {

inline constexpr size_t kMaxTargetBytes = 8 * 1024;
inline constexpr size_t kMaxQueryPairs = 256;

struct Target {
  std::string path;  // As it came.
  // Each decoded by itself, so that a slash that came as %2F stays inside its segment. Without the
  // empty ones at both ends: "/a/b/" has two.
  std::vector<std::string> segments;
  Pairs query;  // Decoded; + is a space.
};

// Takes "/a/b?c=d" and "http://host/a/b?c=d". kInvalidArgument: neither, a percent sign without two
// hexadecimal digits, a NUL byte, or more than kMaxQueryPairs. kOutOfRange: over kMaxTargetBytes.
absl::StatusOr<Target> ParseTarget(std::string_view target);

// %41 -> A. kInvalidArgument: as above.
absl::StatusOr<std::string> PercentDecoded(std::string_view text, bool plus_is_space);

}  // namespace sheaf::http
