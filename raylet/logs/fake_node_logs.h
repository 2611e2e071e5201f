// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Keeps the questions, for the test to answer.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "raylet/logs/node_logs.h"

namespace sheaf {

struct FakeNodeLogs final : NodeLogs {
  void Ask(const proto::StateQuery& query, std::function<void(proto::StateAnswer)> done) override {
    asked.emplace_back(query, std::move(done));
  }
  void Remove(std::vector<std::string> names) override {
    removed.insert(removed.end(), names.begin(), names.end());
  }
  std::vector<std::string> removed;
  std::vector<std::pair<proto::StateQuery, std::function<void(proto::StateAnswer)>>> asked;
};

}  // namespace sheaf
