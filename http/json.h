// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// JSON that comes from outside, with Boost.JSON; what goes out is written by base/text/json.h.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf::http {

inline constexpr size_t kMaxJsonBytes = 1024 * 1024;
inline constexpr size_t kMaxJsonDepth = 32;

// kInvalidArgument: not JSON, not UTF-8, deeper than kMaxJsonDepth, or longer than kMaxJsonBytes;
// the text says which, and where. Of a key that stands twice in an object the last value counts.
absl::StatusOr<boost::json::value> ParseJson(std::string_view text);

}  // namespace sheaf::http
