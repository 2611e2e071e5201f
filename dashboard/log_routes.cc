// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/log_routes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "dashboard/log_files.h"
#include "dashboard/process_names.h"
#include "dashboard/state_rows.h"
#include "dashboard/state_table.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kAskTime = 10 * kSecond;
constexpr int64_t kDefaultLines = 1000;

absl::StatusOr<proto::StateAnswer> Question(const Asker& asker, proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  query.set_limit(kMaxLimit);
  return asker.Ask(query, kAskTime);
}

// kNotFound: the request names another node than `place`'s, or none.
absl::Status CheckNode(const Asker& asker, const LogPlace& place, const http::Request& request) {
  const std::string id = Parameter(request, "node_id"), ip = Parameter(request, "node_ip");
  if (!id.empty()) {
    SHEAF_ASSIGN_OR_RETURN(const uint32_t node, NodeOfId(id));
    if (node == place.node) return absl::OkStatus();
  } else if (!ip.empty()) {
    SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer nodes,
                           Question(asker, proto::StateQuery::NODES));
    for (const proto::NodeRow& row : nodes.nodes()) {
      const bool there =
          row.address().empty() ? ip == "127.0.0.1" : absl::StartsWith(row.address(), ip + ":");
      if (there && row.node() == place.node) return absl::OkStatus();
    }
  } else {
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat("this dashboard reads the logs of node ", NodeIdText(place.node),
                   "; ask a dashboard of the other node: sheaf dashboard --address"));
}

// The process that the request names by pid, actor_id or task_id.
absl::StatusOr<ProcessId> ProcessOf(const Asker& asker, const http::Request& request) {
  const ProcessName name{.pid = Parameter(request, "pid"),
                         .actor = Parameter(request, "actor_id"),
                         .task = Parameter(request, "task_id")};
  if (name.pid.empty() && name.actor.empty() && name.task.empty()) {
    return absl::InvalidArgumentError(
        "name a log by filename, actor_id, task_id, pid or submission_id");
  }
  return FindProcess(asker.asks(), name);
}

absl::StatusOr<std::string> FileOf(const Asker& asker, const LogPlace& place,
                                   const http::Request& request) {
  SHEAF_RETURN_IF_ERROR(CheckNode(asker, place, request));
  if (const std::string name = Parameter(request, "filename"); !name.empty()) return name;
  if (const std::string id = Parameter(request, "submission_id"); !id.empty()) {
    return absl::StrCat("job-driver-", id, ".log");
  }
  std::string suffix = Parameter(request, "suffix");
  if (suffix.empty()) suffix = "out";
  if (suffix != "out" && suffix != "err") {
    return absl::InvalidArgumentError(absl::StrCat("suffix=", suffix, ": want out or err"));
  }
  SHEAF_ASSIGN_OR_RETURN(const ProcessId id, ProcessOf(asker, request));
  if (id.node != place.node) {
    return absl::NotFoundError(
        absl::StrCat("that runs on node ", NodeIdText(id.node), ", whose logs are not here"));
  }
  return absl::StrCat("worker-", id.ToString(), ".", suffix);
}

struct LogRequest {
  std::string name;
  LogPart part;
  bool plain = false;
};

absl::StatusOr<LogRequest> Read(const Asker& asker, const LogPlace& place,
                                const http::Request& request) {
  int64_t lines = kDefaultLines;
  const std::string text = Parameter(request, "lines");
  if (!text.empty() && !absl::SimpleAtoi(text, &lines)) {
    return absl::InvalidArgumentError(absl::StrCat("lines=", text, ": want a number; -1: all"));
  }
  LogRequest log;
  log.plain = absl::EqualsIgnoreCase(Parameter(request, "filter_ansi_code"), "true");
  SHEAF_ASSIGN_OR_RETURN(log.name, FileOf(asker, place, request));
  SHEAF_ASSIGN_OR_RETURN(log.part, ReadLogEnd(place.directory, log.name, lines));
  if (log.plain) log.part.bytes = WithoutAnsiCodes(log.part.bytes);
  return log;
}

constexpr char kTextType[] = "text/plain; charset=utf-8";

void AddFile(http::Router& router, Asker& asker, const LogPlace& place) {
  router.Add({.method = "GET",
              .pattern = "/api/v0/logs/file",
              .handler = [&asker, place](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, place, request] {
                  absl::StatusOr<LogRequest> log = Read(asker, place, request);
                  if (!log.ok()) {
                    return http::PlainText(HttpStatusOf(log.status()),
                                           std::string(log.status().message()));
                  }
                  return http::Response{.body = std::move(log->part.bytes),
                                        .content_type = kTextType};
                });
              }});
}

void AddStream(http::Router& router, Asker& asker, LogFollower& follower, const LogPlace& place) {
  router.Add({.method = "GET",
              .pattern = "/api/v0/logs/stream",
              .handler = [&asker, &follower, place](const http::Request& request,
                                                    const http::Reply& reply) {
                asker.Answer(reply, [&asker, &follower, place, request, reply] {
                  absl::StatusOr<LogRequest> log = Read(asker, place, request);
                  if (!log.ok()) {
                    return http::PlainText(HttpStatusOf(log.status()),
                                           std::string(log.status().message()));
                  }
                  std::shared_ptr<http::Stream> stream = reply.Open({.content_type = kTextType});
                  stream->Write(std::move(log->part.bytes));
                  follower.Add({std::move(stream), place.directory, std::move(log->name),
                                log->part.end, log->plain});
                  return http::Response{};  // The stream is the answer.
                });
              }});
}

}  // namespace

void AddLogRoutes(http::Router& router, Asker& asker, LogFollower& follower,
                  const LogPlace& place) {
  router.Add({.method = "GET",
              .pattern = "/api/v0/logs",
              .handler = [&asker, place](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, place, request] {
                  const absl::Status here = CheckNode(asker, place, request);
                  if (!here.ok())
                    return ErrorAnswer(HttpStatusOf(here), std::string(here.message()));
                  std::string glob = Parameter(request, "glob");
                  if (glob.empty()) glob = "*";
                  return http::Response{.body = DataAnswer(LogGroupsJson(place.directory, glob))};
                });
              }});
  AddFile(router, asker, place);
  AddStream(router, asker, follower, place);
}

}  // namespace sheaf::dashboard
