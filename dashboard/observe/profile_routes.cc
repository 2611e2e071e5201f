// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/profile_routes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dashboard/observe/profile_formats.h"
#include "dashboard/process_names.h"

namespace sheaf::dashboard {
namespace {

constexpr uint32_t kMostNodes = 20'000;  // Of the tree.

// Seconds since 1970; below 0 before now. Empty: 0.
absl::StatusOr<int64_t> TimeOf(const http::Request& request, const char* name) {
  const std::string text = Parameter(request, name);
  double seconds = 0;
  if (text.empty()) return 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > -1e9 && seconds < 9e9)) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, "=", text, ": want seconds since 1970, or, below 0, seconds before now"));
  }
  return static_cast<int64_t>(seconds * 1e9) + (seconds < 0 ? UnixNow() : 0);
}

absl::Status ReadNumber(const http::Request& request, const char* name, uint32_t* number) {
  const std::string text = Parameter(request, name);
  if (text.empty() || absl::SimpleAtoi(text, number)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", text, ": want a number"));
}

absl::StatusOr<http::Response> Answer(const AskNode& ask, proto::StateQuery query,
                                      ProfileFormat format) {
  query.set_what(proto::StateQuery::PROFILE);
  query.set_limit(kMostNodes);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, ask(query, kAskTime));
  if (!answer.error().empty()) return absl::NotFoundError(answer.error());
  const int64_t to = query.to_unix_ns() == 0 ? UnixNow() : query.to_unix_ns();
  return http::Response{.body = FormatProfile(answer, format, query.from_unix_ns(), to),
                        .content_type = ContentTypeOf(format)};
}

absl::StatusOr<ProfileFormat> FormatOf(const http::Request& request, const char* otherwise) {
  std::string name = Parameter(request, "format");
  if (name.empty()) name = otherwise;
  if (name == "flamegraph") name = "svg";  // As Ray names them.
  if (name == "raw") name = "folded";
  const auto format = ProfileFormatOf(name);
  if (format) return *format;
  return absl::InvalidArgumentError(
      absl::StrCat("format=", name, ": want one of ", kProfileFormats));
}

absl::StatusOr<http::Response> OfCluster(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(const ProfileFormat format, FormatOf(request, "json"));
  proto::StateQuery query;
  query.set_function(Parameter(request, "function"));
  uint32_t job = 0, node = 0;
  SHEAF_RETURN_IF_ERROR(ReadNumber(request, "job", &job));
  SHEAF_RETURN_IF_ERROR(ReadNumber(request, "node", &node));
  query.set_job(job);
  query.set_node(node);
  SHEAF_ASSIGN_OR_RETURN(const int64_t from, TimeOf(request, "from"));
  SHEAF_ASSIGN_OR_RETURN(const int64_t to, TimeOf(request, "to"));
  query.set_from_unix_ns(from);
  query.set_to_unix_ns(to);
  return Answer(ask, std::move(query), format);
}

absl::StatusOr<http::Response> OfProcess(const AskNode& ask, const http::Request& request,
                                         const ProcessName& name) {
  SHEAF_ASSIGN_OR_RETURN(const ProfileFormat format, FormatOf(request, "flamegraph"));
  SHEAF_ASSIGN_OR_RETURN(const ProcessId process, FindProcess(ask, name));
  proto::StateQuery query;
  query.set_id(process.ToString());
  return Answer(ask, std::move(query), format);
}

absl::StatusOr<http::Response> ProfileOfWorker(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(std::vector<NodeNumber> nodes,
                         FindNodes(ask, Parameter(request, "node_id"), Parameter(request, "ip")));
  return OfProcess(ask, request, {.pid = Parameter(request, "pid"), .nodes = std::move(nodes)});
}

absl::StatusOr<http::Response> ProfileOfTask(const AskNode& ask, const http::Request& request) {
  const std::string task = Parameter(request, "task_id");
  if (task.empty()) return absl::InvalidArgumentError("task_id is missing");
  return OfProcess(ask, request, {.task = task});
}

}  // namespace

void AddProfileRoutes(http::Router& router, Asker& asker) {
  AddQuestion(router, asker, "/api/sheaf/profile", OfCluster);
  AddQuestion(router, asker, "/worker/cpu_profile", ProfileOfWorker);
  AddQuestion(router, asker, "/task/cpu_profile", ProfileOfTask);
}

}  // namespace sheaf::dashboard
