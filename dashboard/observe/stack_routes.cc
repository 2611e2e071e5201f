// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/observe/stack_routes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "dashboard/observe/stack_text.h"
#include "dashboard/process_names.h"

namespace sheaf::dashboard {
namespace {

constexpr char kTextType[] = "text/plain; charset=utf-8";

absl::StatusOr<http::Response> Traceback(const AskNode& ask, ProcessId process) {
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer,
                         AskStacks(ask, process.ToString(), 0, kAskTime));
  return http::Response{.body = StacksText(answer), .content_type = kTextType};
}

absl::StatusOr<http::Response> StacksOfWorker(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(std::vector<NodeNumber> nodes,
                         FindNodes(ask, Parameter(request, "node_id"), Parameter(request, "ip")));
  SHEAF_ASSIGN_OR_RETURN(
      const ProcessId process,
      FindProcess(ask, {.pid = Parameter(request, "pid"), .nodes = std::move(nodes)}));
  return Traceback(ask, process);
}

absl::StatusOr<http::Response> StacksOfTask(const AskNode& ask, const http::Request& request) {
  const std::string task = Parameter(request, "task_id");
  if (task.empty()) return absl::InvalidArgumentError("task_id is missing");
  SHEAF_ASSIGN_OR_RETURN(const ProcessId process, FindProcess(ask, {.task = task}));
  return Traceback(ask, process);
}

absl::StatusOr<http::Response> StacksOfNode(const AskNode& ask, const http::Request& request) {
  uint32_t node = 0;
  const std::string text = Parameter(request, "node");
  if (!text.empty() && (!absl::SimpleAtoi(text, &node) || node == 0))
    return absl::InvalidArgumentError(absl::StrCat("node=", text, ": want the number of a node"));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, AskStacks(ask, "", node, kAskTime));
  return http::Response{.body = StacksJson(answer)};
}

absl::StatusOr<http::Response> OfProcess(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(const ProcessId process, ProcessId::FromText(request.Capture("process")));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer,
                         AskStacks(ask, process.ToString(), 0, kAskTime));
  return http::Response{.body = StacksJson(answer)};
}

}  // namespace

absl::StatusOr<proto::StateAnswer> AskStacks(const AskNode& ask, const std::string& process,
                                             uint32_t node, Nanos timeout) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::STACKS);
  query.set_id(process);
  query.set_node(node);
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, ask(query, timeout));
  if (!answer.error().empty()) return absl::NotFoundError(answer.error());
  if (!process.empty() && answer.stacks().empty() && answer.late_nodes().empty())
    return absl::NotFoundError(absl::StrCat("there is no process ", process, " now"));
  return answer;
}

void AddStackRoutes(http::Router& router, Asker& asker) {
  AddQuestion(router, asker, "/worker/traceback", StacksOfWorker);
  AddQuestion(router, asker, "/task/traceback", StacksOfTask);
  AddQuestion(router, asker, "/api/sheaf/stacks", StacksOfNode);
  AddQuestion(router, asker, "/api/sheaf/stacks/{process}", OfProcess);
}

}  // namespace sheaf::dashboard
