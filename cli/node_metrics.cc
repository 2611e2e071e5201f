// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/node_metrics.h"

#include <utility>

#include "metrics/user_metrics.h"

namespace sheaf::cli {

void NodeMetrics::SetRefresh(std::function<void()> refresh) {
  const MutexLock lock(mutex_);
  refresh_ = std::move(refresh);
}

std::vector<prometheus::MetricFamily> NodeMetrics::Collect() const {
  {
    const MutexLock lock(mutex_);
    if (refresh_) refresh_();
  }
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (prometheus::MetricFamily& family : metrics::CollectUserMetrics(user_directory_)) {
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace sheaf::cli
