// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/state_routes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "dashboard/state_rows.h"
#include "dashboard/summaries.h"
#include "telemetry/call_trace.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kTimelineTimeout = 30 * kSecond;  // For each page of it.
// Calls of a timeline: what the memory of this process (256 MiB) has room for.
constexpr size_t kMostInChrome = 100'000;
constexpr size_t kMostInPerfetto = 500'000;

// What Ray's clients read the reason from.
http::Response ErrorOf(const absl::Status& status) {
  const std::string why(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ErrorAnswer(400, why);
    case absl::StatusCode::kDeadlineExceeded:
      return ErrorAnswer(504, why);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnavailable:
      return ErrorAnswer(503, why);
    default:
      return ErrorAnswer(500, why);
  }
}

absl::StatusOr<proto::StateAnswer> Question(const Asker& asker, proto::StateQuery::What what,
                                            Nanos timeout) {
  proto::StateQuery query;
  query.set_what(what);
  query.set_limit(kMaxLimit);
  query.set_ended(what == proto::StateQuery::TASKS);
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, asker.Ask(query, timeout));
  if (!answer.error().empty()) return absl::InternalError(answer.error());
  return answer;
}

// All rows of a kind, as many as nodes tell.
absl::StatusOr<StateTable> TableOf(const Asker& asker, const StateKind& kind, int64_t timeout_s) {
  const Nanos timeout = std::max<int64_t>(timeout_s, 1) * kSecond;
  Answers answers;
  SHEAF_ASSIGN_OR_RETURN(answers.rows, Question(asker, kind.what, timeout));
  if (kind.wants_nodes) {
    SHEAF_ASSIGN_OR_RETURN(answers.nodes, Question(asker, proto::StateQuery::NODES, timeout));
  }
  if (kind.wants_workers) {
    SHEAF_ASSIGN_OR_RETURN(answers.workers, Question(asker, proto::StateQuery::WORKERS, timeout));
  }
  if (kind.wants_jobs) {
    SHEAF_ASSIGN_OR_RETURN(answers.jobs, Question(asker, proto::StateQuery::JOBS, timeout));
  }
  StateTable table = kind.table(answers);
  table.truncated = answers.rows.truncated();
  return table;
}

absl::StatusOr<http::Response> List(const Asker& asker, const StateKind& kind,
                                    const ListOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(StateTable table, TableOf(asker, kind, options.timeout_s));
  const size_t total = table.rows.size();
  std::vector<std::string> warnings;
  if (table.truncated) {
    warnings.push_back(absl::StrCat("The cluster has more ", kind.name, " than the ", total,
                                    " that were looked through."));
  }
  SHEAF_RETURN_IF_ERROR(Choose(options.filters, table));
  return http::Response{.body = ListAnswer(table, options, total, warnings)};
}

void AddList(http::Router& router, Asker& asker, const StateKind& kind) {
  router.Add({.method = "GET",
              .pattern = absl::StrCat("/api/v0/", kind.name),
              .handler = [&asker, &kind](const http::Request& request, const http::Reply& reply) {
                absl::StatusOr<ListOptions> options = ParseListOptions(request.query);
                if (!options.ok()) return reply.Send(ErrorOf(options.status()));
                asker.Answer(reply, [&asker, &kind, options = *std::move(options)] {
                  absl::StatusOr<http::Response> response = List(asker, kind, options);
                  return response.ok() ? *std::move(response) : ErrorOf(response.status());
                });
              }});
}

void AddSummary(http::Router& router, Asker& asker, const char* name,
                std::string (*summary)(const StateTable& table)) {
  router.Add(
      {.method = "GET",
       .pattern = absl::StrCat("/api/v0/", name, "/summarize"),
       .handler = [&asker, name, summary](const http::Request& request, const http::Reply& reply) {
         absl::StatusOr<ListOptions> options = ParseListOptions(request.query);
         if (!options.ok()) return reply.Send(ErrorOf(options.status()));
         asker.Answer(reply, [&asker, name, summary, options = *std::move(options)] {
           absl::StatusOr<StateTable> table =
               TableOf(asker, *FindStateKind(name), options.timeout_s);
           if (!table.ok()) return ErrorOf(table.status());
           if (const absl::Status chosen = Choose(options.filters, *table); !chosen.ok()) {
             return ErrorOf(chosen);
           }
           return http::Response{.body = summary(*table)};
         });
       }});
}

// Counted by the nodes: no table holds all calls.
void AddTaskSummary(http::Router& router, Asker& asker) {
  router.Add({.method = "GET",
              .pattern = "/api/v0/tasks/summarize",
              .handler = [&asker](const http::Request& request, const http::Reply& reply) {
                absl::StatusOr<ListOptions> options = ParseListOptions(request.query);
                if (!options.ok()) return reply.Send(ErrorOf(options.status()));
                if (!options->filters.empty()) {
                  return reply.Send(ErrorAnswer(400, "a summary of tasks takes no filters"));
                }
                asker.Answer(reply, [&asker, timeout_s = options->timeout_s] {
                  const absl::StatusOr<proto::StateAnswer> answer =
                      Question(asker, proto::StateQuery::FUNCTIONS,
                               std::max<int64_t>(timeout_s, 1) * kSecond);
                  if (!answer.ok()) return ErrorOf(answer.status());
                  return http::Response{.body = TaskSummary(*answer)};
                });
              }});
}

// The last calls that ended, as a file for viewers of traces.
absl::StatusOr<http::Response> Timeline(const Asker& asker, const http::Pairs& query) {
  http::Response response;
  telemetry::TraceFormat format = telemetry::TraceFormat::kChrome;
  uint32_t job = 0;
  bool download = false;
  for (const auto& [name, value] : query) {
    if (name == "format") {
      SHEAF_ASSIGN_OR_RETURN(format, telemetry::ParseTraceFormat(value));
    } else if (name == "download") {
      download = value == "1" || value == "true";
    } else if (name != "job_id") {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name.substr(0, 80), "': want job_id, format or download"));
    } else if (!absl::SimpleHexAtoi(value, &job) || job == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job_id=", value.substr(0, 80), ": want the hexadecimal digits of a job, as 00000001"));
    }
  }
  const bool perfetto = format == telemetry::TraceFormat::kPerfetto;
  SHEAF_ASSIGN_OR_RETURN(
      const telemetry::CallTrace trace,
      telemetry::CollectCalls(
          [&asker](const proto::StateQuery& asked) { return asker.Ask(asked, kTimelineTimeout); },
          perfetto ? kMostInPerfetto : kMostInChrome, job));
  response.body = telemetry::WriteTrace(trace, format);
  if (perfetto) response.content_type = "application/octet-stream";
  response.headers.emplace_back("X-Sheaf-Events-Lost", absl::StrCat(trace.lost));
  if (download || perfetto) {
    response.headers.emplace_back("Content-Disposition",
                                  absl::StrCat("attachment; filename=\"timeline.",
                                               perfetto ? "perfetto-trace" : "json", "\""));
  }
  return response;
}

void AddTimeline(http::Router& router, Asker& asker) {
  router.Add({.method = "GET",
              .pattern = "/api/v0/tasks/timeline",
              .handler = [&asker](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, query = request.query] {
                  absl::StatusOr<http::Response> response = Timeline(asker, query);
                  return response.ok() ? *std::move(response) : ErrorOf(response.status());
                });
              }});
}

}  // namespace

void AddStateRoutes(http::Router& router, Asker& asker) {
  for (const std::string& name : StateKindNames()) AddList(router, asker, *FindStateKind(name));
  AddTaskSummary(router, asker);
  AddTimeline(router, asker);
  AddSummary(router, asker, "actors", ActorSummary);
  AddSummary(router, asker, "objects", ObjectSummary);
  router.Add({.method = "GET",
              .pattern = "/api/v0/{kind}",
              .handler = [](const http::Request& request, const http::Reply& reply) {
                reply.Send(ErrorAnswer(
                    404, absl::StrCat("There is no listing of ",
                                      std::string(request.Capture("kind").substr(0, 80)),
                                      "; there are ", absl::StrJoin(StateKindNames(), ", "))));
              }});
}

}  // namespace sheaf::dashboard
