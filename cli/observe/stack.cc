// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/stack.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "dashboard/observe/stack_routes.h"
#include "dashboard/observe/stack_text.h"
#include "dashboard/process_names.h"
#include "dashboard/tables/cells.h"

namespace sheaf::cli {
namespace {

absl::StatusOr<ProcessId> Resolve(const dashboard::AskNode& ask, const StackOptions& options,
                                  const std::string& name) {
  if (const auto process = ProcessId::FromText(name); process.ok()) return *process;
  if (TaskId::FromHex(name).ok()) {
    const auto actor = dashboard::FindProcess(ask, {.actor = name});
    if (!absl::IsNotFound(actor.status())) return actor;
    const auto task = dashboard::FindProcess(ask, {.task = name});
    if (!absl::IsNotFound(task.status())) return task;
    return absl::NotFoundError(
        absl::StrCat("no actor with a process, and no task that runs, is named ", name));
  }
  if (name.empty() || !std::all_of(name.begin(), name.end(), absl::ascii_isdigit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(name),
                     "': want a pid, NODE.PROCESS, or the 32 hexadecimal digits of an actor or a "
                     "task"));
  }
  std::vector<NodeNumber> nodes;
  if (options.node != 0) nodes.push_back(options.node);
  return dashboard::FindProcess(ask, {.pid = name, .nodes = std::move(nodes)});
}

}  // namespace

absl::StatusOr<proto::StateAnswer> CollectStacks(const StackOptions& options) {
  const Nanos timeout = options.query.timeout;
  const dashboard::AskNode ask = [&](const proto::StateQuery& question, Nanos) {
    return Ask(options.query, question);
  };
  if (options.names.empty()) return dashboard::AskStacks(ask, "", options.node, timeout);
  proto::StateAnswer all;
  for (const std::string& name : options.names) {
    SHEAF_ASSIGN_OR_RETURN(const ProcessId process, Resolve(ask, options, name));
    SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer,
                           dashboard::AskStacks(ask, process.ToString(), 0, timeout));
    all.MergeFrom(answer);
  }
  return all;
}

int RunStack(const StackOptions& given) {
  const absl::StatusOr<RunningNode> node = FindNode(given.query);
  if (!node.ok()) return Complain(node.status());
  StackOptions options = given;
  options.query.address = node->session;
  const absl::StatusOr<proto::StateAnswer> answer = CollectStacks(options);
  if (!answer.ok()) {
    const int code = Complain(answer.status());
    return absl::IsNotFound(answer.status()) ? kNotThere : code;
  }
  const std::string text =
      options.query.json ? dashboard::StacksJson(*answer) + "\n" : dashboard::StacksText(*answer);
  std::fputs(text.c_str(), stdout);
  return kDone;
}

}  // namespace sheaf::cli
