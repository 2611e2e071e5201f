// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/node_figures.h"

#include "raylet/raylet_objects_for_test.h"

namespace sheaf {

using metrics::CounterId;
using metrics::GaugeId;

SCENARIO("the figures of a node are what its parts have") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 100);
  node.WorkersReady();
  const NodeStats stats = node.raylet->figures().Get();
  CHECK(stats.drivers == 1);
  CHECK(stats.processes > stats.drivers);
  CHECK(stats.leases > 0);
  CHECK(stats.leases + stats.scheduler_queue == 100);
  node.raylet->figures().Publish();
  const auto gauge = [&](GaugeId id) { return static_cast<size_t>(node.page().gauge(id)); };
  CHECK(gauge(GaugeId::kDrivers) == stats.drivers);
  CHECK(gauge(GaugeId::kProcesses) == stats.processes);
  CHECK(gauge(GaugeId::kLeasesHeld) == stats.leases);
  CHECK(gauge(GaugeId::kSchedulerQueue) == stats.scheduler_queue);
  CHECK(gauge(GaugeId::kStoreCapacityBytes) == node.store->Stats().capacity_bytes);
}

SCENARIO("what has happened is counted once, however often it is published") {
  Objects node;
  node.Fetch(node.driver, kFarObject, {2, 7, 3, 0});
  CHECK(node.Serve("hello") != 0);
  for (int i = 0; i < 3; ++i) {
    node.raylet->figures().Publish();
    CHECK(node.page().counter(CounterId::kPulls) == 1);
    CHECK(node.page().counter(CounterId::kPulledBytes) == 5);
  }
}

SCENARIO("a death is counted by its cause") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 1);
  ProcessId worker;
  for (const WorkerSpec& spec : node.launcher.TakeStarted())
    worker = node.Attach(ProcessRole::kWorker, spec.process);
  REQUIRE(worker.process != 0);
  node.Exit(worker, proto::Death::SIGNALLED, 9);
  node.Exit(worker, proto::Death::EXITED, 0);  // A repeat.
  CHECK(node.page().counter(CounterId::kWorkerDeathsSignalled) == 1);
  CHECK(node.page().counter(CounterId::kWorkerDeathsExited) == 0);
}

}  // namespace sheaf
