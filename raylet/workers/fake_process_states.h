// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Keeps the questions, for the test to answer.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "raylet/workers/process_states.h"

namespace sheaf {

struct FakeProcessStates final : ProcessStates {
  struct Asked {
    std::vector<proto::ProcessStacks> processes;
    std::function<void(const std::vector<proto::ProcessStacks>&)> done;
  };
  void Describe(std::vector<proto::ProcessStacks> processes,
                std::function<void(const std::vector<proto::ProcessStacks>&)> done) override {
    asked.push_back({std::move(processes), std::move(done)});
  }
  std::vector<Asked> asked;
};

}  // namespace sheaf
