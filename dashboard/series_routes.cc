// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/series_routes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/ids.h"
#include "base/text/json.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

// kInvalidArgument: what is wrong with the request.
absl::StatusOr<proto::StateQuery> QueryOf(const http::Request& request) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::SERIES);
  for (const auto& [name, value] : request.query) {
    if (name == "name") {
      for (const absl::string_view one : absl::StrSplit(value, ',', absl::SkipEmpty())) {
        query.add_series(std::string(one));
      }
    } else if (name == "from") {
      int64_t from = 0;
      if (!absl::SimpleAtoi(value, &from) || from < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("from=", value.substr(0, 80), ": want milliseconds since 1970"));
      }
      query.set_from_unix_ms(from);
    } else if (name == "node") {
      const absl::StatusOr<uint32_t> node = NodeOfId(value);
      if (!node.ok()) return node.status();
      query.set_node(*node);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("there is no parameter ", name.substr(0, 80),
                                                     "; there are name, from, node"));
    }
  }
  return query;
}

// So many neighbours become one value, that an answer about all nodes has no more values than this.
constexpr int kMostValues = 500'000;
int StepOf(const proto::StateAnswer& answer) {
  int64_t values = 0;
  for (const proto::SeriesRow& row : answer.series()) values += row.values_size();
  return static_cast<int>((values + kMostValues - 1) / kMostValues);
}

// The mean of those from `begin` that are known; else NaN.
double MeanOf(const proto::SeriesRow& row, int begin, int end) {
  double sum = 0;
  int known = 0;
  for (int i = begin; i < end; ++i) {
    if (std::isnan(row.values(i))) continue;
    sum += row.values(i);
    ++known;
  }
  return known == 0 ? std::nan("") : sum / known;
}

std::string SeriesJson(const proto::SeriesRow& row, int step) {
  JsonArray values;
  for (int i = 0; i < row.values_size(); i += step) {
    values.Add(JsonNumber(MeanOf(row, i, std::min(i + step, row.values_size()))));
  }
  return JsonObject()
      .Add("node_id", JsonString(NodeIdText(row.node())))
      .Add("name", JsonString(row.name()))
      .Add("first_ms", JsonNumber(int64_t{row.first_unix_ms()}))
      .Add("period_ms", JsonNumber(row.period_ms() * step))
      .Add("values", values.Done())
      .Done();
}

http::Response Series(const Asker& asker, const proto::StateQuery& query) {
  const absl::StatusOr<proto::StateAnswer> answer = asker.Ask(query, kAskTime);
  if (!answer.ok()) return http::PlainText(503, std::string(answer.status().message()));
  if (!answer->error().empty()) return http::PlainText(400, answer->error());
  JsonArray series, processes, late;
  const int step = std::max(1, StepOf(*answer));
  for (const proto::SeriesRow& row : answer->series()) series.Add(SeriesJson(row, step));
  for (const proto::ProcessFiguresRow& row : answer->process_figures()) {
    processes.Add(JsonObject()
                      .Add("process", JsonString(ProcessId::Unpack(row.process()).ToString()))
                      .Add("pid", JsonNumber(int64_t{row.os_pid()}))
                      .Add("cpus", JsonNumber(double{row.cpus()}))
                      .Add("memory_bytes", JsonNumber(uint64_t{row.memory_bytes()}))
                      .Done());
  }
  for (const uint32_t node : answer->late_nodes()) late.Add(JsonString(NodeIdText(node)));
  return {.body = JsonObject()
                      .Add("series", series.Done())
                      .Add("processes", processes.Done())
                      .Add("truncated", JsonBool(answer->truncated()))
                      .Add("late_nodes", late.Done())
                      .Done()};
}

}  // namespace

void AddSeriesRoutes(http::Router& router, Asker& asker) {
  router.Add({.method = "GET",
              .pattern = "/api/sheaf/series",
              .handler = [&asker](const http::Request& request, const http::Reply& reply) {
                absl::StatusOr<proto::StateQuery> query = QueryOf(request);
                if (!query.ok()) {
                  return reply.Send(http::PlainText(400, std::string(query.status().message())));
                }
                asker.Answer(reply,
                             [&asker, query = *std::move(query)] { return Series(asker, query); });
              }});
}

}  // namespace sheaf::dashboard
