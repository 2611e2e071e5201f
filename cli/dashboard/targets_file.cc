// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/dashboard/targets_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/unique_fd.h"

namespace sheaf::cli {

namespace {

// A Prometheus runs as a user of its own. That a node keeps its files to itself (its umask) is not meant
// for this one, which has addresses and no secret. False: errno says why.
bool WriteForAll(const std::string& path, std::string_view text) {
  constexpr mode_t kAllRead = 0644;
  const UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kAllRead));
  if (!file.valid() || fchmod(file.get(), kAllRead) != 0) return false;
  while (!text.empty()) {
    const ssize_t wrote = write(file.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return true;
}

}  // namespace

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
  const std::string text = dashboard::ScrapeTargetsJson(targets, head_) + "\n";
  if (WriteForAll(partial, text) && std::rename(partial.c_str(), path_.c_str()) == 0) {
    changed_ = failed_ = false;
    return;
  }
  if (!std::exchange(failed_, true)) {
    Log(LogLevel::kWarning, "the list of nodes for Prometheus cannot be written to ", path_, ": ",
        std::strerror(errno), " (--sd-file)");
  }
}

}  // namespace sheaf::cli
