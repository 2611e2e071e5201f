// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Keeps the questions, for the test to answer.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "raylet/queries/task_events.h"

namespace sheaf {

struct FakeTaskEvents final : TaskEvents {
  void Ask(const proto::StateQuery&, uint32_t,
           std::function<void(proto::StateAnswer)> done) override {
    asked.push_back(std::move(done));
  }
  void PublishHost(metrics::Page&) override {}
  std::vector<std::function<void(proto::StateAnswer)>> asked;
};

}  // namespace sheaf
