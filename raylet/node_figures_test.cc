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

SCENARIO("what waits is told by shape, and what could not ever run apart") {
  RayletNode node;  // Of two CPUs.
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 5);
  node.Demand(driver, 2, 3, 64);
  node.WorkersReady();
  const auto gauge = [&](GaugeId id) { return node.page().gauge(id).load(); };
  const std::map<std::string, uint64_t> shapes = node.raylet->figures().Publish();
  CHECK(shapes == std::map<std::string, uint64_t>{{"1 CPU", 3}, {"64 CPU", 3}});
  CHECK(gauge(GaugeId::kInfeasibleLeases) == 3);
  CHECK(gauge(GaugeId::kSchedulerStarved) == 0);
  WHEN("there are more shapes than are told one by one") {
    for (uint64_t key = 0; key < metrics::kMostShapes + 2; ++key)
      node.Demand(driver, 10 + key, 1, 100.0 + static_cast<double>(key));
    const std::map<std::string, uint64_t> more = node.raylet->figures().Publish();
    CHECK(more.size() == metrics::kMostShapes + 1);
    uint64_t all = 0;
    for (const auto& [shape, waiting] : more) all += waiting;
    CHECK(more.contains("others"));
    CHECK(all == 6 + metrics::kMostShapes + 2);
  }
}

SCENARIO("a placement group that no nodes could hold is told by the node that places it") {
  RayletNode node;  // Of two CPUs.
  const ProcessId driver = node.Driver();
  const auto gauge = [&](GaugeId id) {
    node.raylet->figures().Publish();
    return node.page().gauge(id).load();
  };
  CHECK(gauge(GaugeId::kInfeasibleGroups) == 0);
  for (const double cpus : {1.0, 64.0}) {
    proto::GroupRequest request;
    request.set_id(PlacementGroupId::Make(driver, static_cast<uint32_t>(cpus)).Binary());
    Resources::Cpu(cpus).ToMap(*request.add_bundles()->mutable_amounts());
    node.Send(driver, FrameKind::kGroupRequest, request);
  }
  CHECK(gauge(GaugeId::kInfeasibleGroups) == 1);
  CHECK(gauge(GaugeId::kInfeasibleLeases) == 0);
  node.AddNode(2, "CPU:64");
  node.Advance(kSecond);
  CHECK(gauge(GaugeId::kInfeasibleGroups) == 0);
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
