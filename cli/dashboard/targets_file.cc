// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/dashboard/targets_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "base/log.h"

namespace sheaf::cli {

void TargetsFile::Open(std::string path, uint32_t node) {
  const MutexLock lock(mutex_);
  path_ = std::move(path);
  head_ = node;
}

void TargetsFile::Note(const proto::NodeInfo& info) {
  const MutexLock lock(mutex_);
  const auto known = nodes_.find(info.node());
  if (info.state() == proto::NodeInfo::DEAD) {
    if (known == nodes_.end()) return;
    nodes_.erase(known);
  } else if (known == nodes_.end()) {
    nodes_[info.node()] = dashboard::TargetOf(info);
  } else {
    return;  // What it said when it registered stays.
  }
  changed_ = true;
}

void TargetsFile::Write() {
  const MutexLock lock(mutex_);
  if (path_.empty() || nodes_.empty() || !changed_) return;
  std::vector<dashboard::ScrapeTarget> targets;
  for (const auto& [node, target] : nodes_) targets.push_back(target);
  const std::string partial = path_ + ".partial";
  std::ofstream file(partial, std::ios::trunc);
  file << dashboard::ScrapeTargetsJson(targets, head_) << "\n";
  file.close();
  if (file && std::rename(partial.c_str(), path_.c_str()) == 0) {
    changed_ = failed_ = false;
    return;
  }
  if (!std::exchange(failed_, true)) {
    Log(LogLevel::kWarning, "the list of nodes for Prometheus cannot be written to ", path_, ": ",
        std::strerror(errno), " (--sd-file)");
  }
}

}  // namespace sheaf::cli
