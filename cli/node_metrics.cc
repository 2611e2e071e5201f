// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/node_metrics.h"

#include <utility>

#include "cli/query.h"
#include "metrics/catalog.h"

namespace sheaf::cli {
namespace {

prometheus::MetricFamily DemandFamily(const std::map<std::string, uint64_t>& demand) {
  const metrics::Description& row = metrics::Shaped().front();
  prometheus::MetricFamily family{row.name, row.help, prometheus::MetricType::Gauge, {}};
  for (const auto& [shape, waiting] : demand) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({row.label, shape});
    metric.gauge.value = static_cast<double>(waiting);
  }
  return family;
}

proto::StateAnswer FunctionsOf(const std::string& session) {
  QueryOptions options;
  options.address = session;
  options.timeout = 2 * kSecond;
  proto::StateQuery query;
  query.set_what(proto::StateQuery::FUNCTIONS);
  query.set_this_node(true);
  return Ask(options, query).value_or(proto::StateAnswer());
}

}  // namespace

void NodeMetrics::SetRefresh(Refresh refresh) {
  const MutexLock lock(mutex_);
  refresh_ = std::move(refresh);
}

void NodeMetrics::ServeRayNames(RayLabels labels, std::string session) {
  const MutexLock lock(mutex_);
  ray_labels_ = std::move(labels);
  ray_session_ = std::move(session);
}

std::vector<prometheus::MetricFamily> NodeMetrics::Collect() const {
  const MutexLock lock(mutex_);
  const std::map<std::string, uint64_t> demand =
      refresh_ ? refresh_() : std::map<std::string, uint64_t>();
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  std::vector<prometheus::MetricFamily> ray;
  if (!ray_session_.empty()) ray = RayFamilies(families, FunctionsOf(ray_session_), ray_labels_);
  families.insert(families.end(), ray.begin(), ray.end());
  families.push_back(DemandFamily(demand));
  for (prometheus::MetricFamily& family : user_metrics_.Collect(user_directory_)) {
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace sheaf::cli
