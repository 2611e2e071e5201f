// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The file by which a Prometheus beside a head finds the metrics of all nodes (file_sd_configs). All
// users may read it, where they may look into its folder.
#pragma once

#include <map>
#include <string>

#include "base/mutex.h"
#include "dashboard/scrape_targets.h"
#include "proto/gcs.pb.h"

namespace sheaf::cli {

// Thread-safe.
class TargetsFile {
 public:
  // Of the head `node`, at `path`.
  void Open(std::string path, uint32_t node);
  // What the GCS says of a node.
  void Note(const proto::NodeInfo& info);
  // Puts the file in the place of the one before, whole, when it would say something else. What
  // cannot be written is logged, once, and tried again. Does nothing before Open, and before the GCS has spoken.
  void Write();

 private:
  Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  uint32_t head_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, dashboard::ScrapeTarget> nodes_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = true;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf::cli
