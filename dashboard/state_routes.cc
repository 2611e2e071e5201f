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

// What nodes can say of rows themselves, by the columns of Ray's tables.
struct NodeKey {
  std::string_view kind, column, key;
};
constexpr std::array<NodeKey, 15> kNodeKeys = {
    {{"actors", "actor_id", "actor_id"},
     {"actors", "class_name", "class_name"},
     {"actors", "name", "name"},
     {"actors", "ray_namespace", "name_space"},
     {"objects", "object_id", "object_id"},
     {"placement_groups", "placement_group_id", "group_id"},
     {"placement_groups", "name", "name"},
     {"tasks", "task_id", "task_id"},
     {"tasks", "name", "name"},
     {"tasks", "func_or_class_name", "name"},
     {"tasks", "actor_id", "actor_id"},
     {"tasks", "type", "type"},
     {"tasks", "error_type", "error_type"},
     {"workers", "pid", "os_pid"},
     {"workers", "node_id", "node"}}};

google::protobuf::RepeatedPtrField<proto::StateFilter> ForNodes(
    const StateKind& kind, const std::vector<Filter>& filters) {
  google::protobuf::RepeatedPtrField<proto::StateFilter> for_nodes;
  for (const Filter& filter : filters) {
    const auto known = std::find_if(kNodeKeys.begin(), kNodeKeys.end(), [&](const NodeKey& key) {
      return key.kind == kind.name && key.column == filter.key;
    });
    if (known == kNodeKeys.end() || !filter.equal || filter.value.empty()) continue;
    std::string value = filter.value;
    if (known->key == "node") {
      const absl::StatusOr<uint32_t> node = NodeOfId(value);
      if (!node.ok()) continue;
      value = absl::StrCat(*node);
    }
    proto::StateFilter& wanted = *for_nodes.Add();
    wanted.set_key(std::string(known->key));
    wanted.set_value(std::move(value));
  }
  return for_nodes;
}

absl::StatusOr<proto::StateAnswer> Question(
    const Asker& asker, proto::StateQuery::What what, Nanos timeout,
    google::protobuf::RepeatedPtrField<proto::StateFilter> filters = {}) {
  proto::StateQuery query;
  *query.mutable_filters() = std::move(filters);
  query.set_what(what);
  query.set_limit(kMaxLimit);
  query.set_ended(what == proto::StateQuery::TASKS);
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, asker.Ask(query, timeout));
  if (!answer.error().empty()) return absl::InternalError(answer.error());
  return answer;
}

// All rows of a kind, as many as nodes tell. Where there are more, `filters` are theirs, too, so that
// what is wanted is not among those that are left out; `total` says how many there were before.
absl::StatusOr<StateTable> TableOf(const Asker& asker, const StateKind& kind, int64_t timeout_s,
                                   const std::vector<Filter>& filters, size_t* total = nullptr) {
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
  if (total != nullptr) *total = table.rows.size();
  auto for_nodes = ForNodes(kind, filters);
  if (answers.rows.truncated() && !for_nodes.empty()) {
    SHEAF_ASSIGN_OR_RETURN(answers.rows, Question(asker, kind.what, timeout, std::move(for_nodes)));
    table = kind.table(answers);
  }
  table.truncated = answers.rows.truncated();
  return table;
}

absl::StatusOr<http::Response> List(const Asker& asker, const StateKind& kind,
                                    const ListOptions& options) {
  size_t total = 0;
  SHEAF_ASSIGN_OR_RETURN(StateTable table,
                         TableOf(asker, kind, options.timeout_s, options.filters, &total));
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
               TableOf(asker, *FindStateKind(name), options.timeout_s, options.filters);
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
