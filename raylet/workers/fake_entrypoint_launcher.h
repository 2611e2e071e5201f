// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Remembers what it was asked for, starts nothing.
#pragma once

#include <string>
#include <vector>

#include "raylet/workers/entrypoint_launcher.h"

namespace sheaf {

class FakeEntrypointLauncher final : public EntrypointLauncher {
 public:
  void StartEntrypoint(const proto::Entrypoint& entrypoint,
                       const std::vector<uint32_t>& gpu_ids) override {
    started.push_back(entrypoint.submission_id());
    gpus = gpu_ids;
  }
  void StopEntrypoint(const std::string& submission_id) override {
    stopped.push_back(submission_id);
  }

  std::vector<std::string> started;
  std::vector<std::string> stopped;
  std::vector<uint32_t> gpus;  // Of the last one started.
};

}  // namespace sheaf
