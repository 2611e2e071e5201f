// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/cluster_routes.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "base/version.h"
#include "dashboard/cluster_status.h"
#include "dashboard/event_rows.h"
#include "dashboard/scrape_targets.h"
#include "dashboard/series_routes.h"
#include "dashboard/state_rows.h"

namespace sheaf::dashboard {
namespace {

// Of the API that these routes are, which clients of Ray compare with what they need.
constexpr char kApiVersion[] = "4";
constexpr char kRayVersion[] = "2.60.0";
constexpr Nanos kHealthTime = 5 * kSecond;
constexpr Nanos kHealthIsFresh = kSecond;
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

absl::StatusOr<proto::StateAnswer> Question(const Asker& asker, proto::StateQuery::What what) {
  proto::StateQuery query;
  query.set_what(what);
  SHEAF_ASSIGN_OR_RETURN(proto::StateAnswer answer, asker.Ask(query, kStatusTime));
  if (!answer.error().empty()) return absl::UnavailableError(answer.error());
  return answer;
}

absl::StatusOr<std::string> ClusterStatus(const Asker& asker) {
  SHEAF_ASSIGN_OR_RETURN(const auto nodes, Question(asker, proto::StateQuery::NODES));
  SHEAF_ASSIGN_OR_RETURN(const auto demand, Question(asker, proto::StateQuery::DEMAND));
  return JsonObject()
      .Add("result", "true")
      .Add("msg", JsonString("Got cluster status."))
      .Add("data", JsonObject()
                       .Add("autoscalingStatus", "null")
                       .Add("autoscalingError", "null")
                       .Add("clusterStatus", ClusterStatusJson(nodes, demand))
                       .Done())
      .Done();
}

absl::StatusOr<std::string> Demand(const Asker& asker) {
  SHEAF_ASSIGN_OR_RETURN(const auto demand, Question(asker, proto::StateQuery::DEMAND));
  return DemandJson(demand);
}

// For http_sd_configs of Prometheus.
absl::StatusOr<std::string> ScrapeTargets(const Asker& asker) {
  SHEAF_ASSIGN_OR_RETURN(const auto answer, Question(asker, proto::StateQuery::NODES));
  if (answer.truncated()) {
    return absl::UnavailableError("The head does not say which nodes there are; try again.");
  }
  std::vector<ScrapeTarget> targets;
  uint32_t head = 0;
  for (const proto::NodeRow& node : answer.nodes()) {
    if (node.state() != "DEAD") targets.push_back(TargetOf(node));
    if (node.is_head()) head = node.node();
  }
  return ScrapeTargetsJson(targets, head);
}

// A route that answers with JSON, or with 503 and why not.
void AddJson(http::Router& router, Asker& asker, const char* path,
             absl::StatusOr<std::string> (*json)(const Asker& asker)) {
  router.Add({.method = "GET",
              .pattern = path,
              .handler = [&asker, json](const http::Request&, const http::Reply& reply) {
                asker.Answer(reply, [&asker, json] {
                  absl::StatusOr<std::string> body = json(asker);
                  if (body.ok()) return http::Response{.body = *std::move(body)};
                  return http::PlainText(503, std::string(body.status().message()));
                });
              }});
}

// The last answer of a health route. These are open to all: whoever asks often is told what was so a
// second ago, and takes no thread of those that others wait for.
class LastHealth {
 public:
  // What may be told without asking.
  std::optional<http::Response> Recent() {
    const MutexLock lock(mutex_);
    if (!response_) return std::nullopt;
    const Nanos now = MonotonicNow();
    if (now - at_ < kHealthIsFresh || now < asked_until_) return response_;
    asked_until_ = now + kHealthTime;
    return std::nullopt;
  }
  void Note(const http::Response& response) {
    const MutexLock lock(mutex_);
    response_ = response;
    at_ = MonotonicNow();
    asked_until_ = 0;
  }

 private:
  Mutex mutex_;
  std::optional<http::Response> response_ ABSL_GUARDED_BY(mutex_);
  Nanos at_ ABSL_GUARDED_BY(mutex_) = 0;
  Nanos asked_until_ ABSL_GUARDED_BY(mutex_) = 0;  // Somebody asks anew.
};

void AddHealth(http::Router& router, Asker& asker, const char* path, proto::StateQuery::What what) {
  router.Add({.method = "GET",
              .pattern = path,
              .right = http::Right::kOpen,
              .handler = [&asker, what, last = std::make_shared<LastHealth>()](
                             const http::Request&, const http::Reply& reply) {
                if (auto recent = last->Recent()) return reply.Send(*std::move(recent));
                asker.Answer(reply, [&asker, what, last] {
                  http::Response response = Health(asker, what);
                  last->Note(response);
                  return response;
                });
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
  AddJson(router, asker, "/api/cluster_status", ClusterStatus);
  AddJson(router, asker, "/api/sheaf/demand", Demand);
  AddJson(router, asker, "/api/prometheus/sd", ScrapeTargets);
  AddEventRoutes(router, asker);
  AddSeriesRoutes(router, asker);
  // Workers are known to the node, jobs to the GCS.
  AddHealth(router, asker, "/api/healthz", proto::StateQuery::JOBS);
  AddHealth(router, asker, "/api/gcs_healthz", proto::StateQuery::JOBS);
  AddHealth(router, asker, "/api/local_raylet_healthz", proto::StateQuery::WORKERS);
}

}  // namespace sheaf::dashboard
