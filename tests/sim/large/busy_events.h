// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What nodes remember of calls, in runs that look at large clusters: a busy worker's segment, which all
// nodes have in common, read by each as telemetry/task_collector.h reads those of its own.
#pragma once

#include <functional>
#include <memory>

#include "raylet/queries/task_events.h"
#include "shm/segment.h"
#include "telemetry/event_writer.h"
#include "telemetry/node_digests.h"
#include "telemetry/task_history.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class BusyWorker {
 public:
  BusyWorker();
  // On each of its threads calls of 5 ms, one after the other, from `begin` to `end`.
  void Work(Nanos begin, Nanos end);
  const telemetry::EventPage& page() const;

 private:
  std::shared_ptr<Mapping> segment_;
  std::unique_ptr<telemetry::EventWriter> writer_;
  uint16_t function_ = 0;
  uint64_t calls_ = 0;
};

class BusyEvents final : public TaskEvents {
 public:
  // `on_loop` runs work on the raylet's loop after a time.
  BusyEvents(const World& world, NodeNumber node, const BusyWorker& worker,
             std::function<void(Nanos, std::function<void()>)> on_loop);
  void Ask(const proto::StateQuery& query, uint32_t limit,
           std::function<void(proto::StateAnswer)> done) override;
  void PublishHost(metrics::Page&) override {}

 private:
  const World& world_;
  const std::function<void(Nanos, std::function<void()>)> on_loop_;
  telemetry::TaskHistory history_;
  telemetry::NodeDigests digests_;
};

}  // namespace sheaf::sim
