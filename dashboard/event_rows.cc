// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/event_rows.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

constexpr uint32_t kDefaultLimit = 100;

// "2026-11-26 13:40:00.123", local time, as Ray writes it.
std::string TimeText(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  char buffer[32];
  std::strftime(buffer, sizeof(buffer), "%Y-%m-%d %H:%M:%S", &local);
  return absl::StrFormat("%s.%03d", buffer, unix_ms % 1000);
}

std::string_view SourceOf(proto::EventRow::Kind kind) {
  switch (kind) {
    case proto::EventRow::NODE_JOINED:
    case proto::EventRow::NODE_DRAINING:
    case proto::EventRow::NODE_LEFT:
    case proto::EventRow::NODE_DIED:
      return "GCS";
    case proto::EventRow::JOB_STATE:
      return "JOBS";
    default:
      return "RAYLET";
  }
}

std::string EventId(const proto::EventRow& event) {
  return absl::StrCat(absl::Hex(event.number(), absl::kZeroPad16));
}

std::string NodeJson(const proto::EventRow& event) {
  return event.node() == 0 ? "null" : JsonString(NodeIdText(event.node()));
}
std::string JobJson(const proto::EventRow& event) {
  return event.job() == 0 ? "null"
                          : JsonString(absl::StrCat(absl::Hex(event.job(), absl::kZeroPad8)));
}
std::string IdJson(const proto::EventRow& event) {
  return event.id().empty() ? "null" : JsonString(event.id());
}

}  // namespace

std::string EventJson(const proto::EventRow& event) {
  return JsonObject()
      .Add("event_id", JsonString(EventId(event)))
      .Add("time_ms", JsonNumber(event.unix_ms()))
      .Add("severity", JsonString(proto::EventRow::Severity_Name(event.severity())))
      .Add("kind", JsonString(proto::EventRow::Kind_Name(event.kind())))
      .Add("message", JsonString(event.message()))
      .Add("node_id", NodeJson(event))
      .Add("job_id", JobJson(event))
      .Add("id", IdJson(event))
      .Done();
}

namespace {

constexpr size_t kEventIdDigits = 16;
constexpr size_t kNodeIdDigits = 56;

std::string Wrong(const std::string& name, const std::string& value, const std::string& wanted) {
  return absl::StrCat(name, "=", value.substr(0, 80), ": want ", wanted);
}

// The name of an enumerator in capitals, as the GCS compares it. kInvalidArgument: there is none of
// that name; the text has those that there are.
absl::StatusOr<std::string> NameAmong(const std::string& name, const std::string& value, int last,
                                      const std::string& (*name_of)(int)) {
  const std::string upper = absl::AsciiStrToUpper(value);
  std::vector<std::string> names;
  for (int i = 0; i <= last; ++i) names.push_back(name_of(i));
  if (std::find(names.begin(), names.end(), upper) != names.end()) return upper;
  return absl::InvalidArgumentError(
      Wrong(name, value, absl::StrCat("one of ", absl::StrJoin(names, ", "))));
}

// As the GCS compares it. kInvalidArgument: no event can have that value.
absl::StatusOr<std::string> FilterValue(const std::string& name, const std::string& value) {
  using Event = proto::EventRow;
  if (name == "severity")
    return NameAmong(name, value, Event::Severity_MAX, &Event::Severity_Name<int>);
  if (name == "kind") return NameAmong(name, value, Event::Kind_MAX, &Event::Kind_Name<int>);
  uint32_t number = 0;
  if (name == "node") {
    if (value.size() == kNodeIdDigits) {
      SHEAF_ASSIGN_OR_RETURN(number, NodeOfId(value));
    } else if (!absl::SimpleAtoi(value, &number)) {
      return absl::InvalidArgumentError(Wrong(name, value, "the number of a node, or its node_id"));
    }
    return absl::StrCat(number);
  }
  if (name == "job") {
    if (!absl::SimpleHexAtoi(value, &number))
      return absl::InvalidArgumentError(Wrong(name, value, "hexadecimal digits"));
    return absl::StrCat(number);
  }
  return value;
}

// kInvalidArgument: what is wrong with the request.
absl::StatusOr<proto::StateQuery> QueryOf(const http::Request& request) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::EVENTS);
  query.set_limit(kDefaultLimit);
  for (const auto& [name, value] : request.query) {
    uint32_t limit = 0;
    uint64_t after = 0;
    if (name == "limit") {
      if (!absl::SimpleAtoi(value, &limit) || limit == 0 || limit > kMaxLimit) {
        return absl::InvalidArgumentError(
            Wrong(name, value, absl::StrCat("a number from 1 to ", kMaxLimit)));
      }
      query.set_limit(limit);
    } else if (name == "after") {
      // Fewer digits than an event_id has are a number of another kind, behind which all events are.
      if (value.size() != kEventIdDigits || !absl::SimpleHexAtoi(value, &after))
        return absl::InvalidArgumentError(Wrong(name, value, "the event_id of an event"));
      query.set_after(after);
    } else if (name == "severity" || name == "kind" || name == "node" || name == "job" ||
               name == "id") {
      proto::StateFilter& filter = *query.add_filters();
      filter.set_key(name);
      SHEAF_ASSIGN_OR_RETURN(*filter.mutable_value(), FilterValue(name, value));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no parameter ", name.substr(0, 80),
                       "; there are after, limit, severity, kind, node, job, id"));
    }
  }
  return query;
}

http::Response Events(const Asker& asker, const proto::StateQuery& query) {
  const absl::StatusOr<proto::StateAnswer> answer = asker.Ask(query, kAskTime);
  if (!answer.ok()) return http::PlainText(503, std::string(answer.status().message()));
  if (!answer->error().empty()) return http::PlainText(503, answer->error());
  if (answer->truncated() && answer->events().empty()) {
    return http::PlainText(503, "The head does not answer; try again.");
  }
  JsonArray rows;
  for (const proto::EventRow& event : answer->events()) rows.Add(EventJson(event));
  const std::string last =
      answer->events().empty() ? "null" : JsonString(EventId(*answer->events().rbegin()));
  return {.body = JsonObject()
                      .Add("events", rows.Done())
                      .Add("matching", JsonNumber(uint64_t{answer->matching()}))
                      .Add("last", last)
                      .Done()};
}

}  // namespace

StateTable EventTable(const Answers& answers) {
  StateTable table{{{"severity"},
                    {"time", false},
                    {"source_type"},
                    {"message", false},
                    {"event_id"},
                    {"custom_fields", false, true}},
                   {}};
  for (const proto::EventRow& event : answers.rows.events()) {
    const std::string fields =
        JsonObject()
            .Add("kind", JsonString(proto::EventRow::Kind_Name(event.kind())))
            .Add("node_id", NodeJson(event))
            .Add("job_id", JobJson(event))
            .Add("id", IdJson(event))
            .Done();
    table.rows.push_back({Value::Text(proto::EventRow::Severity_Name(event.severity())),
                          Value::Text(TimeText(event.unix_ms())),
                          Value::Text(SourceOf(event.kind())), Value::Text(event.message()),
                          Value::Text(EventId(event)), Value::Json(fields)});
  }
  return table;
}

void AddEventRoutes(http::Router& router, Asker& asker) {
  router.Add({.method = "GET",
              .pattern = "/api/sheaf/events",
              .handler = [&asker](const http::Request& request, const http::Reply& reply) {
                absl::StatusOr<proto::StateQuery> query = QueryOf(request);
                if (!query.ok()) {
                  return reply.Send(http::PlainText(400, std::string(query.status().message())));
                }
                asker.Answer(reply,
                             [&asker, query = *std::move(query)] { return Events(asker, query); });
              }});
}

}  // namespace sheaf::dashboard
