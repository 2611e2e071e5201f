// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/logs/command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "cli/dashboard/asker.h"
#include "dashboard/logs/log_finder.h"
#include "dashboard/logs/log_tail.h"
#include "dashboard/process_names.h"
#include "dashboard/state_rows.h"
#include "dashboard/tables/cells.h"

namespace sheaf::cli {
namespace {

using dashboard::AskNode;
using dashboard::LogTail;

constexpr useconds_t kPeriodUs = 200'000;

int ComplainOfLog(const absl::Status& status) {
  Complain(status);
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:  // Its node has died.
      return kNotThere;
    case absl::StatusCode::kUnavailable:
      return kTimedOut;
    default:
      return kFailed;
  }
}

// "2" means the node of that number, as elsewhere on the command line.
std::string NodeIdOf(const std::string& node) {
  NodeNumber number = 0;
  return node.size() < 20 && absl::SimpleAtoi(node, &number) ? dashboard::NodeIdText(number) : node;
}

absl::StatusOr<dashboard::LogWanted> WantedBy(const LogsOptions& options) {
  dashboard::LogWanted wanted{.node_id = NodeIdOf(options.node),
                              .node_ip = options.node_ip,
                              .attempt = options.attempt,
                              .errors = options.errors};
  const std::string& name = options.id.empty() ? options.name : options.id;
  if (name.empty() && options.what != "cluster") {
    return absl::InvalidArgumentError(
        absl::StrCat("sheaf logs ", options.what, " wants ",
                     options.what == "worker" ? "the pid of a worker" : "an id"));
  }
  if (options.what == "actor") wanted.actor_id = name;
  if (options.what == "task") wanted.task_id = name;
  if (options.what == "job") {
    wanted.submission_id = name;
    wanted.waits = options.follow;
  }
  if (options.what == "worker" && !absl::SimpleAtoi(name, &wanted.pid.emplace()))
    return absl::InvalidArgumentError(absl::StrCat("'", Printable(name), "' is no pid"));
  return wanted;
}

int Show(const AskNode& ask, const LogsOptions& options, dashboard::LogName name) {
  dashboard::TailedLog log{.log = dashboard::NodeLog(ask, std::move(name))};
  const bool waits = options.follow && options.what == "job";
  absl::StatusOr<proto::LogPiece> begin = proto::LogPiece();
  if (log.log.log().node != 0) begin = log.log.Last(options.tail, dashboard::kLogPieceBytes);
  // A job that is about to start has no log yet.
  if (waits && absl::IsNotFound(begin.status())) begin = proto::LogPiece();
  if (!begin.ok()) return ComplainOfLog(begin.status());
  const auto print = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  print((options.tail < 0 ? log.text.Words(dashboard::NoteOn(*begin, 0)) : "") +
        log.text.Next(begin->bytes()));
  if (!options.follow) log.until = log.log.offset() + begin->left();
  if (waits) log.submission_id = options.id.empty() ? options.name : options.id;
  LogTail tail(ask, std::move(log));
  while (true) {
    const LogTail::Step step = tail.Next();
    print(step.text);
    if (step.end != LogTail::End::kNone) return step.end == LogTail::End::kAll ? kDone : kFailed;
    if (!step.more) usleep(kPeriodUs);
  }
}

struct Listed {
  NodeNumber node;
  proto::LogFile file;
};

// Of one node, or of all that live; those that do not answer go to `late`.
absl::StatusOr<std::vector<Listed>> List(const AskNode& ask, NodeNumber only,
                                         const std::string& glob, std::vector<NodeNumber>* late) {
  std::vector<NodeNumber> nodes = {only};
  if (only == 0) {
    proto::StateQuery query;
    query.set_what(proto::StateQuery::NODES);
    SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, ask(query, 10 * kSecond));
    nodes.clear();
    for (const proto::NodeRow& row : answer.nodes()) {
      if (row.state() != "DEAD") nodes.push_back(row.node());
    }
  }
  std::vector<Listed> listed;
  for (const NodeNumber node : nodes) {
    const absl::StatusOr<proto::StateAnswer> answer = dashboard::ListLogs(ask, node, glob);
    if (!answer.ok() && only != 0) return answer.status();
    if (absl::IsInvalidArgument(answer.status())) return answer.status();
    if (!answer.ok()) {
      late->push_back(node);
      continue;
    }
    for (const proto::LogFile& file : answer->log_files()) listed.push_back({node, file});
  }
  return listed;
}

int Print(const std::vector<Listed>& listed, const std::vector<NodeNumber>& late, bool json) {
  Listing table{{{"NODE", "node"},
                 {"NAME", "name"},
                 {"GROUP", "group"},
                 {"SIZE", "size_bytes"},
                 {"WRITTEN", "modified_unix_s"}},
                {}};
  for (const Listed& one : listed) {
    table.rows.push_back({IdCell(one.node), TextCell(one.file.name()), TextCell(one.file.group()),
                          BytesCell(one.file.size_bytes()), TimeCell(one.file.modified_unix_s())});
  }
  if (json) {
    JsonArray nodes;
    for (const NodeNumber node : late) nodes.Add(JsonNumber(uint64_t{node}));
    std::printf(
        "%s\n",
        JsonObject().Add("logs", table.Json()).Add("late_nodes", nodes.Done()).Done().c_str());
    return kDone;
  }
  std::fputs(listed.empty() ? "No logs.\n" : table.Text().c_str(), stdout);
  if (!late.empty())
    std::printf("(without those of nodes %s, which did not answer)\n",
                absl::StrJoin(late, ", ").c_str());
  return kDone;
}

int RunCluster(const AskNode& ask, NodeNumber here, const LogsOptions& options) {
  const absl::StatusOr<dashboard::LogWanted> wanted = WantedBy(options);
  if (!wanted.ok()) return ComplainOfLog(wanted.status());
  const absl::StatusOr<NodeNumber> node =
      dashboard::FindNode(ask, wanted->node_id, wanted->node_ip, here);
  if (!node.ok()) return ComplainOfLog(node.status());
  std::vector<NodeNumber> late;
  const absl::StatusOr<std::vector<Listed>> listed = List(ask, *node, options.name, &late);
  if (!listed.ok()) return ComplainOfLog(listed.status());
  if (options.name.empty() || options.query.json || listed->size() > 1)
    return Print(*listed, late, options.query.json);
  if (listed->empty()) {
    const std::string words = absl::StrCat("no node has a log '", Printable(options.name), "'");
    return ComplainOfLog(late.empty() ? absl::NotFoundError(words)
                                      : absl::UnavailableError(absl::StrCat(
                                            words, " but nodes ", absl::StrJoin(late, ", "),
                                            ", which did not answer, may")));
  }
  return Show(ask, options, {listed->front().node, listed->front().file.name(), true});
}

}  // namespace

int RunLogs(const LogsOptions& given) {
  LogsOptions options = given;
  const std::vector<std::string> kinds = {"cluster", "actor", "task", "worker", "job"};
  if (std::find(kinds.begin(), kinds.end(), options.what) == kinds.end()) {
    options.name = options.what;
    options.what = "cluster";
  }
  const absl::StatusOr<RunningNode> node = FindNode(options.query);
  if (!node.ok()) return Complain(node.status());
  const AskNode ask = AskerOf(node->session);
  if (options.what == "cluster") return RunCluster(ask, NumberOf(*node), options);
  const absl::StatusOr<dashboard::LogWanted> wanted = WantedBy(options);
  if (!wanted.ok()) return ComplainOfLog(wanted.status());
  absl::StatusOr<dashboard::LogName> name = dashboard::FindLog(ask, NumberOf(*node), *wanted);
  if (!name.ok()) return ComplainOfLog(name.status());
  return Show(ask, options, *std::move(name));
}

}  // namespace sheaf::cli
