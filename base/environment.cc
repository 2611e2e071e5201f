// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/environment.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

bool IsIdentifier(std::string_view name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  for (char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  }
  return true;
}

// These tell a process that it is a worker, and which one: not for users to set.
bool IsReserved(std::string_view name) {
  return name == kWorkerVariable || name == kSocketVariable || name == kTemplateVariable ||
         name == kJobVariable || name == kRuntimeEnvironmentVariable;
}

absl::Status CheckEntry(std::string_view name, std::string_view value) {
  const bool other = !name.empty() && name[0] == '@';
  if (!IsIdentifier(other ? name.substr(1) : name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", Abseil(name), "' is no name of an environment variable: want letters, digits and _"));
  }
  if (IsReserved(name)) {
    return absl::InvalidArgumentError(absl::StrCat(Abseil(name), " is set by Sheaf itself"));
  }
  if (value.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value of ", Abseil(name), " contains a NUL"));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(size_t bytes) {
  if (bytes <= kMaxEnvironmentBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the environment has ", bytes, " bytes; at most ",
                                                 kMaxEnvironmentBytes, " are allowed"));
}

}  // namespace

absl::StatusOr<std::string> EncodeEnvironment(const RuntimeEnvironment& environment) {
  std::string out;
  for (const auto* part :
       {&environment.others, &environment.variables}) {  // '@' sorts before letters.
    for (const auto& [name, value] : *part) {
      SHEAF_RETURN_IF_ERROR(CheckEntry(name, value));
      if ((name[0] == '@') != (part == &environment.others)) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", name, "' is in the wrong part of the environment"));
      }
      absl::StrAppend(&out, name, "=", value);
      out.push_back('\0');
    }
  }
  SHEAF_RETURN_IF_ERROR(CheckSize(out.size()));
  return out;
}

absl::StatusOr<RuntimeEnvironment> DecodeEnvironment(std::string_view bytes) {
  SHEAF_RETURN_IF_ERROR(CheckSize(bytes.size()));
  RuntimeEnvironment out;
  std::string_view previous;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\0');
    const std::string_view entry = bytes.substr(0, end);
    const size_t equals = entry.find('=');
    if (end == std::string_view::npos || equals == std::string_view::npos) {
      return absl::InvalidArgumentError("an environment entry is not NAME=value and NUL");
    }
    const std::string_view name = entry.substr(0, equals);
    SHEAF_RETURN_IF_ERROR(CheckEntry(name, entry.substr(equals + 1)));
    if (name <= previous) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Abseil(name), "' comes twice or out of order"));
    }
    (name[0] == '@' ? out.others : out.variables).emplace(name, entry.substr(equals + 1));
    previous = name;
    bytes.remove_prefix(end + 1);
  }
  return out;
}

absl::StatusOr<std::string> MergeEnvironments(std::string_view defaults, std::string_view own) {
  SHEAF_ASSIGN_OR_RETURN(RuntimeEnvironment merged, DecodeEnvironment(own));
  SHEAF_ASSIGN_OR_RETURN(RuntimeEnvironment below, DecodeEnvironment(defaults));
  merged.variables.merge(below.variables);  // Keeps what is there.
  merged.others.merge(below.others);
  return EncodeEnvironment(merged);
}

}  // namespace sheaf
