// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_routes.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/logs/log_finder.h"
#include "dashboard/logs/log_search.h"
#include "dashboard/process_names.h"
#include "dashboard/state_table.h"

namespace sheaf::dashboard {
namespace {

constexpr int64_t kDefaultLines = 1000;
constexpr char kTextType[] = "text/plain; charset=utf-8";

template <class Number>
absl::Status ReadNumber(const http::Request& request, const char* name, const char* wanted,
                        Number* number) {
  const std::string text(request.Query(name).value_or(""));
  if (text.empty() || absl::SimpleAtoi(text, number)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", text, ": want ", wanted));
}

absl::StatusOr<LogWanted> WantedBy(const http::Request& request) {
  const auto text = [&](const char* name) { return std::string(request.Query(name).value_or("")); };
  LogWanted wanted{.node_id = text("node_id"),
                   .node_ip = text("node_ip"),
                   .name = text("filename"),
                   .submission_id = text("submission_id"),
                   .actor_id = text("actor_id"),
                   .task_id = text("task_id")};
  SHEAF_RETURN_IF_ERROR(
      ReadNumber(request, "attempt_number", "the number of an attempt", &wanted.attempt));
  if (!text("pid").empty()) {
    wanted.pid = 0;
    SHEAF_RETURN_IF_ERROR(ReadNumber(request, "pid", "the pid of a worker", &*wanted.pid));
  }
  const std::string suffix = text("suffix");
  if (!suffix.empty() && suffix != "out" && suffix != "err") {
    return absl::InvalidArgumentError(absl::StrCat("suffix=", suffix, ": want out or err"));
  }
  wanted.errors = suffix == "err";
  return wanted;
}

// A log with its end, or all of it, before what comes later.
struct Opened {
  NodeLog log;
  LogText text;
  std::string begin{};  // Of what is wanted.
  uint64_t left = 0;    // Of what is there already.
};

absl::StatusOr<Opened> Open(const Asker& asker, NodeNumber here, const http::Request& request) {
  int64_t lines = kDefaultLines;
  SHEAF_RETURN_IF_ERROR(ReadNumber(request, "lines", "a number; -1: all", &lines));
  SHEAF_ASSIGN_OR_RETURN(const LogWanted wanted, WantedBy(request));
  SHEAF_ASSIGN_OR_RETURN(LogName name, FindLog(asker.ask(), here, wanted));
  const bool plain =
      absl::EqualsIgnoreCase(std::string(request.Query("filter_ansi_code").value_or("")), "true");
  Opened opened{NodeLog(asker.ask(), std::move(name)),
                LogText(plain ? LogText::Form::kWithoutAnsiCodes : LogText::Form::kAsItIs)};
  SHEAF_ASSIGN_OR_RETURN(const proto::LogPiece piece, opened.log.Last(lines, kLogPieceBytes));
  if (lines < 0) opened.begin = NoteOn(piece, 0);
  opened.begin += opened.text.Next(piece.bytes());
  opened.left = piece.left();
  return opened;
}

// The rest of `opened`, and with `follows` what comes then.
void Follow(LogFollower& follower, Opened opened, bool follows, const http::Reply& reply) {
  TailedLog rest{.log = std::move(opened.log), .text = std::move(opened.text)};
  if (!follows) rest.until = rest.log.offset() + opened.left;
  if (auto refusal = follower.Refusal()) return reply.Send(*std::move(refusal));
  std::shared_ptr<http::Stream> stream = reply.Open({.content_type = kTextType});
  stream->Write(std::move(opened.begin));
  follower.Add(std::move(stream), std::move(rest));
}

void AddRead(http::Router& router, Asker& asker, LogFollower& follower, NodeNumber here,
             const char* path, bool follows) {
  router.Add({.method = "GET",
              .pattern = path,
              .handler = [&asker, &follower, here, follows](const http::Request& request,
                                                            const http::Reply& reply) {
                asker.Answer(reply, [&asker, &follower, here, follows, request, reply] {
                  absl::StatusOr<Opened> opened = Open(asker, here, request);
                  if (!opened.ok()) {
                    return http::PlainText(HttpStatusOf(opened.status()),
                                           std::string(opened.status().message()));
                  }
                  if (!follows && opened->left == 0) {
                    return http::Response{.body = opened->begin + opened->text.Last(),
                                          .content_type = kTextType};
                  }
                  Follow(follower, *std::move(opened), follows, reply);
                  return http::Response{};  // The stream is the answer.
                });
              }});
}

// {"worker_out":["worker-1.3.out",...],...}
absl::StatusOr<std::string> Groups(const Asker& asker, NodeNumber here,
                                   const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(const LogWanted wanted, WantedBy(request));
  SHEAF_ASSIGN_OR_RETURN(const NodeNumber node,
                         FindNode(asker.ask(), wanted.node_id, wanted.node_ip, here));
  SHEAF_ASSIGN_OR_RETURN(
      const proto::StateAnswer answer,
      ListLogs(asker.ask(), node, std::string(request.Query("glob").value_or(""))));
  std::map<std::string, JsonArray> groups;
  for (const proto::LogFile& file : answer.log_files())
    groups[file.group()].Add(JsonString(file.name()));
  JsonObject object;
  for (const auto& [group, names] : groups) object.Add(group, names.Done());
  return object.Done();
}

}  // namespace

void AddLogRoutes(http::Router& router, Asker& asker, LogFollower& follower, NodeNumber here) {
  router.Add({.method = "GET",
              .pattern = "/api/v0/logs",
              .handler = [&asker, here](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, here, request] {
                  const absl::StatusOr<std::string> groups = Groups(asker, here, request);
                  if (!groups.ok()) {
                    return ErrorAnswer(HttpStatusOf(groups.status()),
                                       std::string(groups.status().message()));
                  }
                  return http::Response{.body = DataAnswer(*groups)};
                });
              }});
  AddLogSearch(router, asker);
  AddRead(router, asker, follower, here, "/api/v0/logs/file", false);
  AddRead(router, asker, follower, here, "/api/v0/logs/stream", true);
}

}  // namespace sheaf::dashboard
