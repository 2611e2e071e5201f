// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reads the logs of this node for those that ask, on a thread that is made for the first of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "raylet/logs/log_files.h"
#include "raylet/logs/node_logs.h"

namespace sheaf {

// What `files` say to `query`, with ErrorKind::kNotFound and kInvalidArgument where they refuse.
proto::StateAnswer AnswerAboutLogs(const LogFiles& files, const proto::StateQuery& query);

class LogReader final : public NodeLogs {
 public:
  // Both outlive this; `loop` runs the raylet.
  LogReader(Executor& loop, LogFiles& files) : loop_(loop), files_(files) {}
  void Ask(const proto::StateQuery& query, std::function<void(proto::StateAnswer)> done) override;
  void Remove(std::vector<std::string> names) override;

 private:
  ThreadExecutor& Thread();

  Executor& loop_;
  LogFiles& files_;
  std::unique_ptr<ThreadExecutor> thread_;
};

}  // namespace sheaf
