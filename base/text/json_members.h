// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Whether a text is a JSON object, and under which names its members stand; what they are is not
// looked at.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace sheaf {

struct JsonMembers {
  std::vector<std::string_view> names;  // As they are written, without quotes.
  std::string_view text;                // All of it between the braces.
};

// nullopt: not an object as RFC 8259 has it, not UTF-8, deeper than 32, or an object that cannot be
// taken apart by its names: one stands twice, or is written with escapes.
std::optional<JsonMembers> MembersOf(std::string_view json);

}  // namespace sheaf
