// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/table_routes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/message_limits.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/gcs_question.h"
#include "dashboard/tables/listing.h"
#include "dashboard/tables/table_page.h"
#include "dashboard/tables/train_runs.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kAskTime = 10 * kSecond;
constexpr int64_t kMostLivePaged = 10'000;  // Live tasks that pages reach; a filter finds others.
constexpr std::array<const char*, 7> kTaskKeys = {"task_id",  "name", "state",     "job",
                                                  "actor_id", "type", "error_type"};
constexpr std::array<const char*, 5> kLiveStates = {"WAITING_FOR_ARGUMENTS", "WAITING_FOR_LEASE",
                                                    "WAITING_FOR_ACTOR", "PUSHED", "RUNNING"};

void AddFilter(proto::StateQuery& query, const std::string& key, bool is_not,
               const std::string& value) {
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key(key);
  filter.set_not_equal(is_not);
  filter.set_value(value);
}

// A cursor of tasks is a number of live ones before the page, or when the last one ended, which was
// not in the first second of 1970.
bool IsAmongLive(const PageOptions& options) { return options.after < kSecond; }
int64_t BeforeOf(const PageOptions& options) { return IsAmongLive(options) ? options.after : 0; }

// A value that no task can have: an empty listing would say that there is none just now.
absl::Status CheckTaskFilter(const RowFilter& filter) {
  const auto want = [&filter](const std::string& wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter=", filter.key, "=", filter.value.substr(0, 80), ": want ", wanted));
  };
  uint32_t job = 0;
  if (filter.key == "job" && !absl::SimpleAtoi(filter.value, &job)) return want("a number");
  constexpr std::array<const char*, 3> kEndedStates = {"FINISHED", "FAILED", "CANCELLED"};
  constexpr std::array<const char*, 3> kTypes = {"NORMAL_TASK", "ACTOR_CREATION_TASK",
                                                 "ACTOR_TASK"};
  const auto is_one_of = [&filter](const auto& names) {
    return std::any_of(names.begin(), names.end(), [&filter](const char* name) {
      return absl::EqualsIgnoreCase(name, filter.value);
    });
  };
  if (filter.key == "state" && !is_one_of(kLiveStates) && !is_one_of(kEndedStates)) {
    return want(absl::StrCat("one of ", absl::StrJoin(kLiveStates, ", "), ", ",
                             absl::StrJoin(kEndedStates, ", ")));
  }
  if (filter.key == "type" && !is_one_of(kTypes))
    return want(absl::StrCat("one of ", absl::StrJoin(kTypes, ", ")));
  return absl::OkStatus();
}

// Nodes choose among their calls themselves: no listing holds them all.
absl::StatusOr<proto::StateQuery> TaskQuery(const PageOptions& options) {
  if (!options.order.empty() || !options.group.empty()) {
    return absl::InvalidArgumentError(
        "tasks come live ones first, then the last that ended: they take no order and no group; "
        "functions are counted at /api/sheaf/functions");
  }
  proto::StateQuery query = ListQuery("tasks");
  query.set_limit(static_cast<uint32_t>(BeforeOf(options)) + options.limit);
  query.set_ended(options.ended != PageOptions::Ended::kNot);
  if (!IsAmongLive(options)) query.set_ended_before_ns(options.after);
  for (const RowFilter& filter : options.filters) {
    if (std::find(kTaskKeys.begin(), kTaskKeys.end(), filter.key) == kTaskKeys.end() ||
        filter.test == RowFilter::Test::kContains) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tasks are filtered by their nodes: want KEY=VALUE or KEY!=VALUE, with one of the keys ",
          absl::StrJoin(kTaskKeys, ", ")));
    }
    SHEAF_RETURN_IF_ERROR(CheckTaskFilter(filter));
    AddFilter(query, filter.key, filter.test == RowFilter::Test::kIsNot, filter.value);
  }
  if (options.ended == PageOptions::Ended::kOnly || !IsAmongLive(options)) {
    for (const char* const state : kLiveStates) AddFilter(query, "state", true, state);
  }
  return query;
}

// What nodes can say of a row themselves, so that a listing that is cut short has what is wanted. They
// compare words; a filter that they do not know is looked at here alone, as all are here once more.
proto::StateQuery QueryOf(const char* name, const PageOptions& options) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kKnown = {
      {{"actors", "actor_id"},
       {"actors", "class_name"},
       {"actors", "name"},
       {"actors", "name_space"},
       {"objects", "object_id"},
       {"objects", "where"},
       {"objects", "owner"},
       {"objects", "may_leak"},
       {"groups", "group_id"},
       {"groups", "name"},
       {"workers", "process"},
       {"workers", "os_pid"},
       {"workers", "state"},
       {"workers", "owner"},
       {"workers", "node"}}};
  proto::StateQuery query = ListQuery(name);
  // What is chosen here alone is so of all rows that an answer can hold; an order, which pages ask for
  // every few seconds, is of those that a listing has.
  for (const RowFilter& filter : options.filters) {
    if (filter.test != RowFilter::Test::kIs || filter.value.empty() || filter.value[0] == '"' ||
        filter.value == "null" ||
        std::find(kKnown.begin(), kKnown.end(),
                  std::pair<std::string_view, std::string_view>(name, filter.key)) ==
            kKnown.end()) {
      query.set_limit(kMaxStateRows);
      continue;
    }
    AddFilter(query, filter.key, false, filter.value);
    uint32_t node = 0;
    if (filter.key == "node" && absl::SimpleAtoi(filter.value, &node)) query.set_node(node);
  }
  return query;
}

struct Page {
  std::string rows{};
  std::string total = "null";  // Of the rows that fit; null: nobody has counted them.
  std::string next = "null";
  std::string groups = "null";
};

// The rows of `table` that stand on the page.
void Cut(const PageOptions& options, Listing& table, Page& page) {
  const size_t begin = std::min(static_cast<size_t>(options.after), table.rows.size());
  const size_t end = std::min(begin + options.limit, table.rows.size());
  if (end < table.rows.size()) page.next = JsonString(absl::StrCat(end));
  table.rows.resize(end);
  table.rows.erase(table.rows.begin(), table.rows.begin() + static_cast<std::ptrdiff_t>(begin));
  page.rows = table.Json();
}

std::string PageJson(const Page& page, const proto::StateAnswer& answer) {
  const std::vector<uint32_t> late(answer.late_nodes().begin(), answer.late_nodes().end());
  return JsonObject()
      .Add("rows", page.rows)
      .Add("total", page.total)
      .Add("next", page.next)
      .Add("groups", page.groups)
      .Add("truncated", JsonBool(answer.truncated()))
      .Add("late_nodes", NumbersCell(late).json)
      .Add("events_lost", JsonNumber(uint64_t{answer.events_lost()}))
      .Done();
}

absl::StatusOr<http::Response> Tasks(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(const PageOptions options, ParsePageOptions(request.query));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateQuery query, TaskQuery(options));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query, kAskTime));
  Listing table = ListingOf("tasks", answer);
  const int64_t before = std::min(BeforeOf(options), static_cast<int64_t>(table.rows.size()));
  table.rows.erase(table.rows.begin(), table.rows.begin() + before);
  Page page{.rows = table.Json()};
  if (answer.truncated() && answer.tasks_size() > 0) {
    const int64_t last = answer.tasks(answer.tasks_size() - 1).end_unix_ns();
    const int64_t next = before + options.limit;
    if (last != 0) {
      page.next = JsonString(absl::StrCat(last));
    } else if (next + options.limit <= kMostLivePaged) {
      page.next = JsonString(absl::StrCat(next));
    } else if (query.ended()) {  // Behind live ones come those that ended until now.
      page.next = JsonString(absl::StrCat(UnixNow()));
    }
  }
  return http::Response{.body = PageJson(page, answer)};
}

// Counted where they are, however many there are.
absl::StatusOr<std::string> ObjectsByPlace(const AskNode& ask) {
  proto::StateQuery query = ListQuery("objects");
  query.set_counts_only(true);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query, kAskTime));
  std::vector<ValueCount> counts;
  for (const proto::CountRow& row : answer.counts())
    counts.push_back({JsonString(row.key()), row.count(), row.bytes()});
  return CountsJson(std::move(counts));
}

// Of all functions: no page holds the rows that this would else be summed from.
absl::StatusOr<std::string> CallsByState(const proto::StateAnswer& answer) {
  constexpr std::array<const char*, 7> kStates = {"WAITING_FOR_ARGUMENTS",
                                                  "WAITING_FOR_LEASE",
                                                  "PUSHED",
                                                  "RUNNING",
                                                  "FINISHED",
                                                  "FAILED",
                                                  "CANCELLED"};
  std::vector<ValueCount> sums;
  for (const char* const state : kStates) sums.push_back({JsonString(state)});
  for (const proto::FunctionRow& row : answer.functions()) {
    const std::array<uint64_t, kStates.size()> calls = {
        row.waiting_for_arguments(),
        row.waiting_for_place(),
        row.pushed() - std::min(row.pushed(), row.running()),
        row.running(),
        row.finished(),
        row.failed(),
        row.cancelled()};
    for (size_t i = 0; i < calls.size(); ++i) sums[i].rows += calls[i];
  }
  return CountsJson(std::move(sums));
}

template <size_t kind>
absl::StatusOr<http::Response> List(const AskNode& ask, const http::Request& request) {
  const char* const name = kListKinds[kind];
  SHEAF_ASSIGN_OR_RETURN(const PageOptions options, ParsePageOptions(request.query));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer,
                         Asked(ask, QueryOf(name, options), kAskTime));
  Listing table = ListingOf(name, answer);
  SHEAF_RETURN_IF_ERROR(Arrange(options, table));
  // Of a listing that is cut short nobody knows how many rows fit.
  Page page{.total = answer.truncated() ? "null" : JsonNumber(uint64_t{table.rows.size()})};
  if (!options.group.empty()) {
    const bool is_counted =
        std::string_view(name) == "objects" && options.group == "where" && options.filters.empty();
    const bool is_by_state = std::string_view(name) == "functions" && options.group == "state";
    SHEAF_ASSIGN_OR_RETURN(page.groups, is_counted    ? ObjectsByPlace(ask)
                                        : is_by_state ? CallsByState(answer)
                                                      : CountsOf(table, options.group));
  }
  Cut(options, table, page);
  return http::Response{.body = PageJson(page, answer)};
}

absl::StatusOr<http::Response> Runs(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(const PageOptions options, ParsePageOptions(request.query));
  SHEAF_ASSIGN_OR_RETURN(Listing table, ListTrainRuns(ask, kAskTime));
  SHEAF_RETURN_IF_ERROR(Arrange(options, table));
  Page page{.total = JsonNumber(uint64_t{table.rows.size()})};
  if (!options.group.empty()) {
    SHEAF_ASSIGN_OR_RETURN(page.groups, CountsOf(table, options.group));
  }
  Cut(options, table, page);
  return http::Response{.body = PageJson(page, {})};
}

absl::StatusOr<http::Response> OneRun(const AskNode& ask, const http::Request& request) {
  SHEAF_ASSIGN_OR_RETURN(std::string body,
                         TrainRunJson(ask, std::string(request.Capture("id")), kAskTime));
  return http::Response{.body = std::move(body)};
}

absl::Status NoId(const std::string& id) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", id.substr(0, 80), "' is no id: want 32 hexadecimal digits"));
}

absl::StatusOr<http::Response> Why(const AskNode& ask, const http::Request& request) {
  const std::string id(request.Capture("id"));
  if (!TaskId::FromHex(id).ok()) return NoId(id);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WHY);
  query.set_id(id);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query, kAskTime));
  return http::Response{
      .body = JsonObject().Add("id", JsonString(id)).Add("why", JsonString(answer.words())).Done()};
}

absl::StatusOr<std::string> Drain(const AskNode& ask, const std::string& id) {
  uint32_t node = 0;
  if (!absl::SimpleAtoi(id, &node) || node == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", id.substr(0, 80), "': want the number of a node"));
  }
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  query.set_id(absl::StrCat(node));
  SHEAF_RETURN_IF_ERROR(Asked(ask, query, kAskTime).status());
  return JsonObject().Add("node", JsonNumber(uint64_t{node})).Done();
}

// For good, as sheaf.kill(actor) does.
absl::StatusOr<std::string> Kill(const AskNode& ask, const std::string& id) {
  const absl::StatusOr<ActorId> actor = ActorId::FromHex(id);
  if (!actor.ok()) return NoId(id);
  proto::StateQuery query = ListQuery("actors");
  AddFilter(query, "actor_id", false, actor->ToHex());
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer known, Asked(ask, query, kAskTime));
  const bool is_known =
      std::any_of(known.actors().begin(), known.actors().end(),
                  [&](const auto& row) { return row.actor_id() == actor->ToHex(); });
  if (!is_known) {
    return absl::NotFoundError(absl::StrCat("There is no actor ", id, " that a node knows of."));
  }
  proto::GcsRequest request;
  request.mutable_end_actor()->set_actor_id(actor->Binary());
  request.mutable_end_actor()->mutable_death()->set_cause(proto::Death::KILLED);
  request.mutable_end_actor()->mutable_death()->set_message("it was killed from the dashboard");
  SHEAF_ASSIGN_OR_RETURN(const proto::GcsReply reply, AskGcs(ask, request, kAskTime));
  if (reply.error() != 0) return absl::UnavailableError(reply.message());
  return JsonObject().Add("actor_id", JsonString(id)).Done();
}

// A change that POST asks for, of what the pattern's {id} names.
using Change = absl::StatusOr<std::string> (*)(const AskNode& ask, const std::string& id);
void AddChange(http::Router& router, Asker& asker, const char* pattern, Change change) {
  router.Add({.method = "POST",
              .pattern = pattern,
              .right = http::Right::kChange,
              .handler = [&asker, change](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, change, id = std::string(request.Capture("id"))] {
                  absl::StatusOr<std::string> body = change(asker.ask(), id);
                  if (body.ok()) return http::Response{.body = *std::move(body)};
                  return http::PlainText(HttpStatusOf(body.status()),
                                         std::string(body.status().message()));
                });
              }});
}

template <size_t kind>
void AddList(http::Router& router, Asker& asker) {
  AddQuestion(router, asker, absl::StrCat("/api/sheaf/", kListKinds[kind]).c_str(), List<kind>);
}

}  // namespace

void AddTableRoutes(http::Router& router, Asker& asker) {
  static_assert(std::string_view(kListKinds[2]) == "tasks");
  AddQuestion(router, asker, "/api/sheaf/tasks", Tasks);
  AddList<0>(router, asker);
  AddList<1>(router, asker);
  AddList<3>(router, asker);
  AddList<4>(router, asker);
  AddList<5>(router, asker);
  AddList<6>(router, asker);
  AddList<7>(router, asker);
  AddQuestion(router, asker, "/api/sheaf/train_runs", Runs);
  AddQuestion(router, asker, "/api/sheaf/train_runs/{id}", OneRun);
  AddQuestion(router, asker, "/api/sheaf/why/{id}", Why);
  AddChange(router, asker, "/api/sheaf/nodes/{id}/drain", Drain);
  AddChange(router, asker, "/api/sheaf/actors/{id}/kill", Kill);
}

}  // namespace sheaf::dashboard
