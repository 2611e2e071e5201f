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
#include "dashboard/tables/table_query.h"
#include "dashboard/tables/train_runs.h"

namespace sheaf::dashboard {
namespace {

constexpr int64_t kMostLivePaged = 10'000;  // Live tasks that pages reach; a filter finds others.

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
  SHEAF_ASSIGN_OR_RETURN(const proto::StateQuery query, QueryOf("tasks", options));
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
  SHEAF_ASSIGN_OR_RETURN(const proto::StateQuery query, QueryOf(name, options));
  SHEAF_ASSIGN_OR_RETURN(const proto::StateAnswer answer, Asked(ask, query, kAskTime));
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
