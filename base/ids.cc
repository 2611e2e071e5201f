// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace sheaf {

std::string ProcessId::ToString() const { return absl::StrFormat("%d.%d", node, process); }

absl::StatusOr<ProcessId> ProcessId::FromText(std::string_view text) {
  const absl::string_view whole(text.data(), text.size());
  const size_t dot = whole.find('.');
  ProcessId id;
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  if (dot == absl::string_view::npos || dot == 0 || !is_digit(text.front()) ||
      !absl::SimpleAtoi(whole.substr(0, dot), &id.node) ||
      !std::all_of(text.begin() + static_cast<ptrdiff_t>(dot) + 1, text.end(), is_digit) ||
      !absl::SimpleAtoi(whole.substr(dot + 1), &id.process) || id.node == 0 || id.process == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no process: want NODE.PROCESS, as 3.17", absl::CHexEscape(whole)));
  }
  return id;
}

template <class Tag>
std::string Id<Tag>::ToHex() const {
  return absl::StrFormat("%016x%016x", maker_bits, sequence_bits);
}

template <class Tag>
absl::StatusOr<Id<Tag>> Id<Tag>::FromHex(std::string_view hex) {
  Id id;
  const absl::string_view text(hex.data(), hex.size());
  auto is_digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  if (hex.size() != 32 || !std::all_of(hex.begin(), hex.end(), is_digit) ||
      !absl::SimpleHexAtoi(text.substr(0, 16), &id.maker_bits) ||
      !absl::SimpleHexAtoi(text.substr(16), &id.sequence_bits)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no id: want 32 hexadecimal digits", text));
  }
  return id;
}

template struct Id<TaskTag>;
template struct Id<ObjectTag>;
template struct Id<ActorTag>;
template struct Id<PlacementGroupTag>;

}  // namespace sheaf
