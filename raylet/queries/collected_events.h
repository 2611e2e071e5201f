// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The ended calls and the machine of this node as telemetry's collector remembers them.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/executor.h"
#include "raylet/queries/task_events.h"
#include "raylet/workers/attach_info.h"
#include "telemetry/task_collector.h"

namespace sheaf {

class CollectedEvents final : public TaskEvents {
 public:
  // `loop` runs the raylet, and outlives this, as `spans`, which may be null, does. `disk`: a path on
  // the file system whose room is told.
  CollectedEvents(Executor& loop, const std::string& disk, telemetry::SpanQueue* spans);

  void OnSegment(ProcessId process, const AttachInfo& info, bool added) {
    added ? collector_.Add(process, info.os_pid, info.segment) : collector_.Remove(process);
  }
  void Ask(const proto::StateQuery& query, uint32_t limit,
           std::function<void(proto::StateAnswer)> done) override {
    collector_.Ask(query, limit, [this, done = std::move(done)](proto::StateAnswer answer) {
      loop_.Post([done, answer = std::move(answer)] { done(answer); });
    });
  }
  void PublishHost(metrics::Page& page) override;

 private:
  Executor& loop_;
  telemetry::TaskCollector collector_;
};

}  // namespace sheaf
