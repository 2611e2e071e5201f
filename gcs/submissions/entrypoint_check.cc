// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/submissions/entrypoint_check.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "scheduling/lease_spec.h"

namespace sheaf {
namespace {

constexpr size_t kMaxTextBytes = 96 * 1024;

bool IsIdCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

}  // namespace

std::string WhatIsWrong(const proto::SubmitEntrypoint& request) {
  const proto::Entrypoint& wanted = request.entrypoint();
  const std::string& id = wanted.submission_id();
  if (id.empty() || id.size() > kMaxSubmissionIdBytes ||
      !std::all_of(id.begin(), id.end(), IsIdCharacter))
    return "a submission id has 1 to 128 letters, digits, '_', '-' and '.'";
  if (id == "." || id == "..") return "a submission id names a file and a path, as . and .. cannot";
  if (wanted.command().empty()) return "an entrypoint is a command, not an empty text";
  if (wanted.ByteSizeLong() > kMaxEntrypointBytes)
    return "an entrypoint with its environment and metadata has at most 192 KiB";
  // Linux takes an argument or a variable of up to 128 KiB. The command is one; so is what the job is
  // told of its environment and metadata.
  const bool is_long =
      std::max(wanted.command().size(), wanted.runtime_env().size() + wanted.metadata().size()) >
          kMaxTextBytes ||
      std::any_of(wanted.environ().begin(), wanted.environ().end(),
                  [](const std::string& variable) { return variable.size() > kMaxTextBytes; });
  if (is_long)
    return "a command, a variable, and a runtime environment with its metadata have at most 96 KiB "
           "each";
  if (request.idempotency_key().size() > kMaxSubmissionIdBytes)
    return "an idempotency key has at most 128 bytes";
  for (const std::string& variable : wanted.environ()) {
    const size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos || variable.find('\0') != std::string::npos)
      return "a variable of the environment is NAME=value, without bytes of value 0";
  }
  if (wanted.command().find('\0') != std::string::npos)
    return "an entrypoint has no bytes of value 0";
  proto::LeaseSpec lease;
  *lease.mutable_resources() = wanted.resources();
  *lease.mutable_strategy()->add_selectors() = wanted.labels();
  if (const auto parsed = ParseLeaseSpec(lease); !parsed.ok())
    return std::string(parsed.status().message());
  return "";
}

}  // namespace sheaf
