// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/process_names.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

absl::StatusOr<proto::StateAnswer> Question(const AskNode& ask, proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  query.set_limit(kMaxLimit);
  return ask(query, kAskTime);
}

absl::StatusOr<ProcessId> OfActor(const AskNode& ask, const std::string& actor) {
  SHEAF_ASSIGN_OR_RETURN(const auto answer, Question(ask, proto::StateQuery::ACTORS));
  for (const proto::ActorRow& row : answer.actors()) {
    if (row.actor_id() != actor) continue;
    if (row.process() != 0) return ProcessId::Unpack(row.process());
    return absl::NotFoundError(
        absl::StrCat("actor ", actor, " has no process: it is ", row.state()));
  }
  return absl::NotFoundError(absl::StrCat("there is no actor ", actor));
}

absl::StatusOr<ProcessId> ProcessOfTask(const AskNode& ask, const std::string& task) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::TASKS);
  query.set_limit(kMaxLimit);
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key("task_id");
  filter.set_value(task);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, ask(query, kAskTime));
  for (const proto::TaskRow& row : answer.tasks()) {
    if (row.task_id() == task && row.worker() != 0) return ProcessId::Unpack(row.worker());
  }
  return absl::NotFoundError(absl::StrCat("there is no running task ", task));
}

absl::StatusOr<ProcessId> OfPid(const AskNode& ask, const ProcessName& name) {
  int32_t pid = 0;
  if (!absl::SimpleAtoi(name.pid, &pid) || pid <= 0)
    return absl::InvalidArgumentError(
        absl::StrCat("'", name.pid, "': want the number of a process"));
  const auto fits = [&](uint64_t process, int32_t os_pid) {
    return os_pid == pid && IsOnOneOf(name.nodes, ProcessId::Unpack(process));
  };
  SHEAF_ASSIGN_OR_RETURN(const auto workers, Question(ask, proto::StateQuery::WORKERS));
  for (const proto::WorkerRow& row : workers.workers()) {
    if (fits(row.process(), row.os_pid())) return ProcessId::Unpack(row.process());
  }
  SHEAF_ASSIGN_OR_RETURN(const auto jobs, Question(ask, proto::StateQuery::JOBS));
  for (const proto::JobRow& row : jobs.jobs()) {
    if (row.state() == "RUNNING" && fits(row.driver(), row.os_pid()))
      return ProcessId::Unpack(row.driver());
  }
  return absl::NotFoundError(absl::StrCat("there is no worker with pid ", pid));
}

}  // namespace

absl::StatusOr<ProcessId> FindProcess(const AskNode& ask, const ProcessName& name) {
  if (!name.actor.empty()) return OfActor(ask, name.actor);
  if (!name.task.empty()) return ProcessOfTask(ask, name.task);
  return OfPid(ask, name);
}

bool IsOnOneOf(const std::vector<NodeNumber>& nodes, ProcessId process) {
  return nodes.empty() || std::find(nodes.begin(), nodes.end(), process.node) != nodes.end();
}

absl::StatusOr<std::vector<NodeNumber>> FindNodes(const AskNode& ask, std::string_view node_id,
                                                  std::string_view ip, NodeNumber here) {
  std::vector<NodeNumber> found;
  if (!node_id.empty()) {
    SHEAF_ASSIGN_OR_RETURN(const NodeNumber node, NodeOfId(node_id));
    found.push_back(node);
    return found;
  }
  if (ip.empty()) return found;
  SHEAF_ASSIGN_OR_RETURN(const auto answer, Question(ask, proto::StateQuery::NODES));
  for (const proto::NodeRow& row : answer.nodes()) {
    if (row.state() == "DEAD" || HostOfAddress(row.address()) != ip) continue;
    found.insert(row.node() == here ? found.begin() : found.end(), row.node());
  }
  if (!found.empty()) return found;
  return absl::NotFoundError(absl::StrCat(std::string(ip), ": no node has this address"));
}

absl::StatusOr<NodeNumber> FindNode(const AskNode& ask, std::string_view node_id,
                                    std::string_view ip, NodeNumber here) {
  SHEAF_ASSIGN_OR_RETURN(const std::vector<NodeNumber> nodes, FindNodes(ask, node_id, ip, here));
  return nodes.empty() ? 0 : nodes[0];
}

}  // namespace sheaf::dashboard
