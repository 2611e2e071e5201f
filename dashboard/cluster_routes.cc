// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/cluster_routes.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/text/json.h"
#include "base/version.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

// Of the API that these routes are, which clients of Ray compare with what they need.
constexpr char kApiVersion[] = "4";
constexpr char kRayVersion[] = "2.60.0";
constexpr Nanos kHealthTime = 5 * kSecond;
constexpr Nanos kStatusTime = 10 * kSecond;

std::string VersionJson(const std::string& session) {
  return JsonObject()
      .Add("version", JsonString(kApiVersion))
      .Add("ray_version", JsonString(kRayVersion))
      .Add("ray_commit", "\"\"")
      .Add("session_name", JsonString(session.substr(session.rfind('/') + 1)))
      .Add("sheaf_version", JsonString(kSheafVersion))
      .Done();
}

http::Response Health(const Asker& asker, proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  query.set_limit(1);
  const absl::StatusOr<proto::StateAnswer> answer = asker.Ask(query, kHealthTime);
  if (!answer.ok()) return http::PlainText(503, std::string(answer.status().message()));
  if (!answer->error().empty()) return http::PlainText(503, answer->error());
  return {.body = "success", .content_type = "text/plain; charset=utf-8"};
}

// Ray's autoscaler tells more; what there is of it without one is what nodes have and use.
std::string ClusterStatusJson(const proto::StateAnswer& status) {
  std::map<std::string, std::pair<int64_t, int64_t>> amounts;  // Available, total.
  uint64_t alive = 0, dead = 0;
  for (const proto::NodeRow& node : status.nodes()) {
    if (node.state() == "DEAD") {
      ++dead;
      continue;
    }
    ++alive;
    for (const auto& [name, amount] : node.total().amounts()) amounts[name].second += amount;
    for (const auto& [name, amount] : node.available().amounts()) amounts[name].first += amount;
  }
  JsonObject usage;
  for (const auto& [name, amount] : amounts) {
    const auto [available, total] = amount;
    usage.Add(
        name,
        JsonArray().Add(JsonAmount(name, total - available)).Add(JsonAmount(name, total)).Done());
  }
  JsonArray demand;
  for (const proto::DemandRow& row : status.demand()) {
    JsonObject shape;
    for (const auto& [name, amount] : row.resources().amounts()) {
      shape.Add(name, JsonAmount(name, amount));
    }
    demand.Add(JsonArray().Add(shape.Done()).Add(JsonNumber(uint64_t{row.count()})).Done());
  }
  return JsonObject()
      .Add("loadMetricsReport",
           JsonObject().Add("usage", usage.Done()).Add("resourceDemand", demand.Done()).Done())
      .Add("autoscalerReport",
           JsonObject()
               .Add("activeNodes", JsonObject().Add("node", JsonNumber(alive)).Done())
               .Add("failedNodes", JsonNumber(dead))
               .Done())
      .Done();
}

http::Response ClusterStatus(const Asker& asker) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::STATUS);
  const absl::StatusOr<proto::StateAnswer> answer = asker.Ask(query, kStatusTime);
  if (!answer.ok()) return http::PlainText(503, std::string(answer.status().message()));
  return {.body = JsonObject()
                      .Add("result", "true")
                      .Add("msg", JsonString("Got cluster status."))
                      .Add("data", JsonObject()
                                       .Add("autoscalingStatus", "null")
                                       .Add("autoscalingError", "null")
                                       .Add("clusterStatus", ClusterStatusJson(*answer))
                                       .Done())
                      .Done()};
}

void AddHealth(http::Router& router, Asker& asker, const char* path, proto::StateQuery::What what) {
  router.Add({.method = "GET",
              .pattern = path,
              .right = http::Right::kOpen,
              .handler = [&asker, what](const http::Request&, const http::Reply& reply) {
                asker.Answer(reply, [&asker, what] { return Health(asker, what); });
              }});
}

}  // namespace

void AddClusterRoutes(http::Router& router, Asker& asker, const std::string& session) {
  for (const char* path : {"/api/version", "/api/ray/version"}) {
    router.Add(
        {.method = "GET",
         .pattern = path,
         .handler = [body = VersionJson(session)](const http::Request&, const http::Reply& reply) {
           reply.Send({.body = body});
         }});
  }
  router.Add({.method = "GET",
              .pattern = "/api/cluster_status",
              .handler = [&asker](const http::Request&, const http::Reply& reply) {
                asker.Answer(reply, [&asker] { return ClusterStatus(asker); });
              }});
  // Workers are known to the node, jobs to the GCS.
  AddHealth(router, asker, "/api/healthz", proto::StateQuery::JOBS);
  AddHealth(router, asker, "/api/gcs_healthz", proto::StateQuery::JOBS);
  AddHealth(router, asker, "/api/local_raylet_healthz", proto::StateQuery::WORKERS);
}

}  // namespace sheaf::dashboard
