// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_finder.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "dashboard/gcs_question.h"
#include "dashboard/process_names.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

absl::StatusOr<proto::StateAnswer> Ask(const AskNode& ask, proto::StateQuery query) {
  absl::StatusOr<proto::StateAnswer> answer = ask(query, kAskTime);
  if (!answer.ok()) return absl::UnavailableError(answer.status().message());
  if (!answer->error().empty()) return absl::UnavailableError(answer->error());
  return answer;
}

absl::StatusOr<proto::StateAnswer> Ask(const AskNode& ask, proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  return Ask(ask, std::move(query));
}

absl::StatusOr<ProcessId> ProcessOfTask(const AskNode& ask, const std::string& task,
                                        uint32_t attempt) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::TASKS);
  query.set_ended(true);
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key("task_id");
  filter.set_value(task);
  SHEAF_ASSIGN_OR_RETURN(const auto answer, Ask(ask, std::move(query)));
  std::vector<uint32_t> attempts;
  for (const proto::TaskRow& row : answer.tasks()) {
    if (row.task_id() != task || row.worker() == 0) continue;
    if (row.attempt() == attempt) return ProcessId::Unpack(row.worker());
    attempts.push_back(row.attempt());
  }
  if (!attempts.empty()) {
    return absl::NotFoundError(absl::StrCat("task ", task, " is known of attempt ",
                                            absl::StrJoin(attempts, ", "), ", not of ", attempt));
  }
  return absl::NotFoundError(
      absl::StrCat("no node knows of a task ", task, " that runs or has run"));
}

absl::StatusOr<ProcessId> ProcessOfPid(const AskNode& ask, int32_t pid,
                                       const std::vector<NodeNumber>& nodes_named) {
  SHEAF_ASSIGN_OR_RETURN(const auto answer, Ask(ask, proto::StateQuery::WORKERS));
  std::vector<ProcessId> found;
  for (const proto::WorkerRow& row : answer.workers()) {
    const ProcessId process = ProcessId::Unpack(row.process());
    if (row.os_pid() == pid && IsOnOneOf(nodes_named, process)) found.push_back(process);
  }
  if (found.empty()) return absl::NotFoundError(absl::StrCat("there is no worker with pid ", pid));
  if (found.size() == 1) return found[0];
  std::vector<std::string> nodes;
  for (const ProcessId process : found) nodes.push_back(NodeIdText(process.node));
  return absl::InvalidArgumentError(absl::StrCat("workers of several nodes have the pid ", pid,
                                                 "; say with node_id which of ",
                                                 absl::StrJoin(nodes, ", ")));
}

absl::StatusOr<LogName> LogOfSubmission(const AskNode& ask, const std::string& id, bool waits) {
  proto::GcsRequest request;
  request.mutable_get_submission()->set_submission_id(id);
  SHEAF_ASSIGN_OR_RETURN(const proto::GcsReply reply, AskGcs(ask, request, kAskTime));
  if (reply.error() != 0) return absl::NotFoundError(reply.message());
  if (reply.submission().node() == 0 && !waits)
    return absl::NotFoundError(absl::StrCat("job ", id, " has not started yet"));
  return LogName{reply.submission().node(), JobLogOf(id)};
}

}  // namespace

std::string JobLogOf(const std::string& submission_id) {
  return absl::StrCat("job-driver-", submission_id, ".log");
}

absl::StatusOr<LogName> FindLog(const AskNode& ask, NodeNumber here, const LogWanted& wanted) {
  SHEAF_ASSIGN_OR_RETURN(const std::vector<NodeNumber> nodes,
                         FindNodes(ask, wanted.node_id, wanted.node_ip, here));
  if (!wanted.name.empty())
    return LogName{nodes.empty() ? 0 : nodes[0], wanted.name, /*only_file=*/true};
  if (!wanted.submission_id.empty())
    return LogOfSubmission(ask, wanted.submission_id, wanted.waits);
  absl::StatusOr<ProcessId> process =
      absl::InvalidArgumentError("name a log by filename, actor_id, task_id, pid or submission_id");
  if (!wanted.actor_id.empty()) {
    process = FindProcess(ask, {.actor = wanted.actor_id});
  } else if (!wanted.task_id.empty()) {
    process = ProcessOfTask(ask, wanted.task_id, wanted.attempt);
  } else if (wanted.pid) {
    process = ProcessOfPid(ask, *wanted.pid, nodes);
  }
  if (!process.ok()) return process.status();
  return LogName{process->node,
                 absl::StrCat("worker-", process->ToString(), wanted.errors ? ".err" : ".out")};
}

}  // namespace sheaf::dashboard
