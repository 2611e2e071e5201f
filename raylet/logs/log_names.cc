// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/logs/log_names.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sheaf {
namespace {

constexpr char kJobPrefix[] = "job-driver-";
constexpr char kJobSuffix[] = ".log";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string JobLogName(std::string_view submission_id) {
  return absl::StrCat(kJobPrefix, View(submission_id), kJobSuffix);
}

std::optional<std::string> SubmissionOfLog(std::string_view name) {
  absl::string_view rest = View(name);
  if (!absl::ConsumePrefix(&rest, kJobPrefix) || !absl::ConsumeSuffix(&rest, kJobSuffix))
    return std::nullopt;
  return std::string(rest);
}

std::optional<ProcessId> WorkerOfLog(std::string_view name) {
  absl::string_view rest = View(name);
  if (!absl::ConsumePrefix(&rest, "worker-")) return std::nullopt;
  const size_t first = rest.find('.');
  const size_t second = first == absl::string_view::npos ? first : rest.find('.', first + 1);
  ProcessId process;
  if (second == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(0, first), &process.node) ||
      !absl::SimpleAtoi(rest.substr(first + 1, second - first - 1), &process.process))
    return std::nullopt;
  return process;
}

}  // namespace sheaf
