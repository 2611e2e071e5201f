// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node's metrics endpoint serves: the pages of all processes, with that of the raylet
// brought up to date first, and what user code counts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "metrics/page.h"
#include "metrics/registry.h"

namespace sheaf::cli {

// Thread-safe.
class NodeMetrics final : public prometheus::Collectable {
 public:
  explicit NodeMetrics(std::string version) : registry_(std::move(version)) {}
  // Called before each collection, by the endpoint's thread. Set it to nullptr before what it uses
  // goes: that waits for a collection that is under way.
  void SetRefresh(std::function<void()> refresh);
  void OnPage(metrics::Page& page, bool added) {
    added ? registry_.Add(page) : registry_.Remove(page);
  }
  // What user code counts lies there (metrics/user_metrics.h). Called once, before the first
  // collection.
  void SetUserDirectory(std::string directory) { user_directory_ = std::move(directory); }
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  metrics::Registry registry_;
  std::string user_directory_;
  mutable Mutex mutex_;  // Held while `refresh_` runs, too.
  std::function<void()> refresh_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf::cli
