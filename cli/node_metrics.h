// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node's metrics endpoint serves: the pages of all processes, with that of the raylet
// brought up to date first, and what user code counts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cli/metrics/ray_names.h"
#include "metrics/page.h"
#include "metrics/registry.h"
#include "metrics/user_metrics.h"

namespace sheaf::cli {

// Thread-safe.
class NodeMetrics final : public prometheus::Collectable {
 public:
  explicit NodeMetrics(std::string version) : registry_(std::move(version)) {}
  // Called before each collection, by the endpoint's thread; it gives what waits, by shape. Set it to
  // nullptr before what it uses goes: that waits for a collection that is under way.
  using Refresh = std::function<std::map<std::string, uint64_t>()>;
  void SetRefresh(Refresh refresh);
  void OnPage(metrics::Page& page, bool added) {
    added ? registry_.Add(page) : registry_.Remove(page);
  }
  // What user code counts lies there (metrics/user_metrics.h). Called once, before the first
  // collection.
  void SetUserDirectory(std::string directory) { user_directory_ = std::move(directory); }
  // From now on all is served under Ray's names, too. `session` is the node's, which is asked at each
  // collection what became of calls; without an answer within two seconds there is no ray_tasks.
  void ServeRayNames(RayLabels labels, std::string session);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  metrics::Registry registry_;
  std::string user_directory_;
  mutable Mutex mutex_;  // Held while `refresh_` runs, too.
  Refresh refresh_ ABSL_GUARDED_BY(mutex_);
  RayLabels ray_labels_ ABSL_GUARDED_BY(mutex_);
  std::string ray_session_ ABSL_GUARDED_BY(mutex_);  // Empty: Ray's names are not served.
  mutable metrics::UserMetrics user_metrics_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf::cli
