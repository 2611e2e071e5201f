// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/worker_start.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/environment.h"
#include "base/status_macros.h"
#include "base/worker_template.h"

namespace sheaf {

proto::Death MakeDeath(proto::Death::Cause cause, std::string message) {
  proto::Death death;
  death.set_cause(cause);
  death.set_message(std::move(message));
  return death;
}

absl::StatusOr<std::vector<std::string>> VariablesOf(const WorkerSpec& spec) {
  std::vector<std::string> variables;
  SHEAF_ASSIGN_OR_RETURN(const RuntimeEnvironment environment, DecodeEnvironment(spec.environment));
  for (const auto& [name, value] : environment.variables)
    variables.push_back(absl::StrCat(name, "=", value));
  if (!environment.others.empty()) {
    variables.push_back(
        absl::StrCat(kRuntimeEnvironmentVariable, "=", absl::BytesToHexString(spec.environment)));
  }
  if (!spec.gpu_ids.empty()) {
    variables.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", absl::StrJoin(spec.gpu_ids, ",")));
  }
  return variables;
}

absl::StatusOr<UniqueFd> OpenLog(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return absl::ErrnoToStatus(errno, path);
  return file;
}

}  // namespace sheaf
