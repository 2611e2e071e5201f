// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/tables/table_routes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/tables/listing.h"
#include "dashboard/tables/table_page.h"

namespace sheaf::dashboard {
namespace {

constexpr Nanos kAskTime = 10 * kSecond;
constexpr std::array<const char*, 7> kTaskKeys = {"task_id",  "name", "state",     "job",
                                                  "actor_id", "type", "error_type"};
constexpr std::array<const char*, 5> kLiveStates = {"WAITING_FOR_ARGUMENTS", "WAITING_FOR_LEASE",
                                                    "WAITING_FOR_ACTOR", "PUSHED", "RUNNING"};

absl::StatusOr<proto::StateAnswer> Asked(const AskNode& ask, const proto::StateQuery& query) {
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, ask(query, kAskTime));
  if (!answer.error().empty()) return absl::NotFoundError(answer.error());
  return answer;
}

void AddFilter(proto::StateQuery& query, const std::string& key, bool is_not,
               const std::string& value) {
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key(key);
  filter.set_not_equal(is_not);
  filter.set_value(value);
}

// Nodes choose among their calls themselves: no listing holds them all.
absl::StatusOr<proto::StateQuery> TaskQuery(const PageOptions& options) {
  if (!options.order.empty() || !options.group.empty()) {
    return absl::InvalidArgumentError(
        "tasks come live ones first, then the last that ended: they take no order and no group; "
        "functions are counted at /api/sheaf/functions");
  }
  proto::StateQuery query = ListQuery("tasks");
  query.set_limit(options.limit);
  query.set_ended(options.ended != PageOptions::Ended::kNot);
  query.set_ended_before_ns(options.after);
  for (const RowFilter& filter : options.filters) {
    if (std::find(kTaskKeys.begin(), kTaskKeys.end(), filter.key) == kTaskKeys.end() ||
        filter.test == RowFilter::Test::kContains) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tasks are filtered by their nodes: want KEY=VALUE or KEY!=VALUE, with one of the keys ",
          absl::StrJoin(kTaskKeys, ", ")));
    }
    AddFilter(query, filter.key, filter.test == RowFilter::Test::kIsNot, filter.value);
  }
  if (options.ended == PageOptions::Ended::kOnly || options.after != 0) {
    for (const char* const state : kLiveStates) AddFilter(query, "state", true, state);
  }
  return query;
}

// What nodes can say of a row themselves, so that a listing that is cut short has what is wanted. They
// compare words; a filter that they do not know is looked at here alone, as all are here once more.
proto::StateQuery QueryOf(const char* name, const PageOptions& options) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kKnown = {
      {{"actors", "actor_id"},
       {"actors", "class_name"},
       {"actors", "name"},
       {"actors", "name_space"},
       {"objects", "object_id"},
       {"objects", "where"},
       {"objects", "owner"},
       {"groups", "group_id"},
       {"groups", "name"},
       {"workers", "process"},
       {"workers", "os_pid"},
       {"workers", "state"},
       {"workers", "owner"},
       {"workers", "node"}}};
  proto::StateQuery query = ListQuery(name);
  for (const RowFilter& filter : options.filters) {
    if (filter.test != RowFilter::Test::kIs || filter.value.empty() || filter.value[0] == '"' ||
        filter.value == "null" ||
        std::find(kKnown.begin(), kKnown.end(),
                  std::pair<std::string_view, std::string_view>(name, filter.key)) == kKnown.end())
      continue;
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
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query));
  Page page{.rows = ListingOf("tasks", answer).Json()};
  if (answer.truncated() && answer.tasks_size() > 0 && query.ended()) {
    // Behind live ones come those that ended until now.
    const int64_t last = answer.tasks(answer.tasks_size() - 1).end_unix_ns();
    page.next = JsonString(absl::StrCat(last == 0 ? UnixNow() : last));
  }
  return http::Response{.body = PageJson(page, answer)};
}

// Counted where they are, however many there are.
absl::StatusOr<std::string> ObjectsByPlace(const AskNode& ask) {
  proto::StateQuery query = ListQuery("objects");
  query.set_counts_only(true);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query));
  std::vector<ValueCount> counts;
  for (const proto::CountRow& row : answer.counts())
    counts.push_back({JsonString(row.key()), row.count(), row.bytes()});
  return CountsJson(std::move(counts));
}

template <size_t kind>
absl::StatusOr<http::Response> List(const AskNode& ask, const http::Request& request) {
  const char* const name = kListKinds[kind];
  SHEAF_ASSIGN_OR_RETURN(const PageOptions options, ParsePageOptions(request.query));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, QueryOf(name, options)));
  Listing table = ListingOf(name, answer);
  SHEAF_RETURN_IF_ERROR(Arrange(options, table));
  Page page{.total = JsonNumber(uint64_t{table.rows.size()})};
  if (!options.group.empty()) {
    const bool is_counted =
        std::string_view(name) == "objects" && options.group == "where" && options.filters.empty();
    SHEAF_ASSIGN_OR_RETURN(page.groups,
                           is_counted ? ObjectsByPlace(ask) : CountsOf(table, options.group));
  }
  const size_t begin = std::min(static_cast<size_t>(options.after), table.rows.size());
  const size_t end = std::min(begin + options.limit, table.rows.size());
  if (end < table.rows.size()) page.next = JsonString(absl::StrCat(end));
  table.rows.resize(end);
  table.rows.erase(table.rows.begin(), table.rows.begin() + static_cast<std::ptrdiff_t>(begin));
  page.rows = table.Json();
  return http::Response{.body = PageJson(page, answer)};
}

absl::StatusOr<http::Response> Why(const AskNode& ask, const http::Request& request) {
  const std::string id(request.Capture("id"));
  if (!TaskId::FromHex(id).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", id.substr(0, 80), "' is no id: want 32 hexadecimal digits"));
  }
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WHY);
  query.set_id(id);
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query));
  return http::Response{
      .body = JsonObject().Add("id", JsonString(id)).Add("why", JsonString(answer.words())).Done()};
}

http::Response Drain(const AskNode& ask, const std::string& id) {
  uint32_t node = 0;
  if (!absl::SimpleAtoi(id, &node) || node == 0) {
    return http::PlainText(400,
                           absl::StrCat("'", id.substr(0, 80), "': want the number of a node"));
  }
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  query.set_id(absl::StrCat(node));
  const absl::StatusOr<proto::StateAnswer> answer = Asked(ask, query);
  if (!answer.ok()) {
    return http::PlainText(HttpStatusOf(answer.status()), std::string(answer.status().message()));
  }
  return {.body = JsonObject().Add("node", JsonNumber(uint64_t{node})).Done()};
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
  AddQuestion(router, asker, "/api/sheaf/why/{id}", Why);
  router.Add({.method = "POST",
              .pattern = "/api/sheaf/nodes/{id}/drain",
              .right = http::Right::kChange,
              .handler = [&asker](const http::Request& request, const http::Reply& reply) {
                asker.Answer(reply, [&asker, id = std::string(request.Capture("id"))] {
                  return Drain(asker.ask(), id);
                });
              }});
}

}  // namespace sheaf::dashboard
