// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the raylet starts and ends commands that were submitted. Implemented by
// raylet/entrypoints/entrypoint_processes.h on real nodes, by fakes in tests; reports back through
// Raylet::OnEntrypointRunning and OnEntrypointEnded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/gcs.pb.h"

namespace sheaf {

class EntrypointLauncher {
 public:
  virtual ~EntrypointLauncher() = default;
  // Starts the command and returns at once; of its submission none runs here. Later
  // OnEntrypointRunning, unless it fails before, and in any case OnEntrypointEnded: when it and all
  // its descendants are gone.
  virtual void StartEntrypoint(const proto::Entrypoint& entrypoint,
                               const std::vector<uint32_t>& gpu_ids) = 0;
  // Asks it and its descendants to end, and kills what is left after a while. A repeat, and one for
  // what is gone, change nothing.
  virtual void StopEntrypoint(const std::string& submission_id) = 0;
};

}  // namespace sheaf
