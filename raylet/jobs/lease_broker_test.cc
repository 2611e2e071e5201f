// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Leases between owners, workers and other raylets.
#include "raylet/jobs/lease_broker.h"

#include <catch2/catch.hpp>

#include "object_store/store_node_for_test.h"
#include "raylet/jobs/job_parts_for_test.h"

namespace sheaf {
namespace lease_broker_test {

constexpr ProcessId kFarDriver{2, 7};

struct Node : JobParts, ClusterFollower::Observer {
  void OnRoom() override {}
  void OnNodeDead(NodeNumber, const std::string&) override {}
  void OnDraining() override {}
  void OnJobOver(const proto::JobInfo&) override {}

  StoreNode store{8 * kMiB, {.node = kNode}};
  ArgumentAdmission arguments{clock, transport, *store.server};
  Contacts contacts{{.node = kNode,
                     .clock = clock,
                     .transport = transport,
                     .links = links,
                     .metrics = page,
                     .view = view,
                     .processes = processes,
                     .deaths = deaths}};
  ClusterFollower follower{{.options = options,
                            .clock = clock,
                            .gcs = gcs,
                            .links = links,
                            .queue = queue,
                            .view = view,
                            .deaths = deaths,
                            .observer = *this}};
  LeaseBroker leases{{.node = kNode,
                      .clock = clock,
                      .transport = transport,
                      .metrics = page,
                      .switchboard = switchboard,
                      .queue = queue,
                      .pool = pool,
                      .launcher = launcher,
                      .processes = processes,
                      .worker_of = worker_of,
                      .deaths = deaths,
                      .jobs = jobs,
                      .groups = groups,
                      .detached = actors,
                      .contacts = contacts,
                      .follower = follower,
                      .arguments = arguments,
                      .job_of_dead = [](ProcessId) { return 0; },
                      .on_infeasible = [](const LeaseSpec*, const std::string&) {}}};

  static proto::LeaseDemand DemandOf(uint64_t key, uint32_t wanted, double cpus, bool actor) {
    proto::LeaseDemand demand;
    demand.set_key(key);
    demand.set_wanted(wanted);
    demand.set_backlog(wanted);
    Resources::Cpu(cpus).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
    demand.mutable_spec()->set_name("f");
    demand.mutable_spec()->set_actor(actor);
    return demand;
  }
  void Demand(ProcessId owner, uint64_t key, uint32_t wanted, double cpus = 1, bool actor = false) {
    const proto::LeaseDemand demand = DemandOf(key, wanted, cpus, actor);
    REQUIRE(leases.OnDemand(owner, Of(FrameKind::kLeaseDemand, demand)).ok());
    Settle();
  }
  // Workers that were started come, and are bound.
  void Settle() {
    for (bool more = true; more;) {
      more = leases.Settle();
      more |= !WorkersReady().empty();
    }
  }
  std::vector<proto::LeaseGrant> Grants(ProcessId owner) {
    return Received<proto::LeaseGrant>(owner, FrameKind::kLeaseGrant);
  }
  proto::LeaseGrant Lease(ProcessId owner, bool actor = false) {
    Demand(owner, 1, 1, 1, actor);
    const auto grants = Grants(owner);
    REQUIRE(grants.size() == 1);
    return grants[0];
  }
  void Return(ProcessId from, LeaseNumber lease, bool discard = false) {
    proto::LeaseReturn message;
    message.set_lease(lease);
    message.set_discard_worker(discard);
    REQUIRE(leases.OnReturn(from, Of(FrameKind::kLeaseReturn, message)).ok());
    Settle();
  }
  // Node 2 hands on a demand of its driver.
  void HandedOn(uint32_t wanted) {
    proto::RemoteJob job;
    job.set_job(9);
    job.set_driver(kFarDriver.packed());
    REQUIRE(jobs.OnRemoteJob(Of(FrameKind::kRemoteJob, job)).ok());
    proto::SpillbackDemand message;
    message.set_owner(kFarDriver.packed());
    message.set_driver(kFarDriver.packed());
    message.set_hops(1);
    *message.mutable_demand() = DemandOf(3, wanted, 1, false);
    REQUIRE(leases.OnSpillbackDemand(RayletOf(2), Of(FrameKind::kSpillbackDemand, message)).ok());
    Settle();
  }
};

SCENARIO("a lease joins owner and worker, and tells the worker first") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  CHECK(node.switchboard.AreJoined(driver, worker));
  CHECK(node.worker_of.at(grant.lease()) == worker);
  CHECK(node.processes.at(worker).lease == grant.lease());
  const auto begins = node.Received<proto::LeaseBegin>(worker, FrameKind::kLeaseBegin);
  REQUIRE(begins.size() == 1);
  CHECK(begins[0].owner() == driver.packed());
  CHECK(begins[0].job() == 5);
  CHECK(begins[0].name_space() == "space");
  WHEN("it is returned") {
    node.Demand(driver, 1, 0);
    node.Return(driver, grant.lease());
    CHECK(node.Received<proto::LeaseEnd>(worker, FrameKind::kLeaseEnd).size() == 1);
    CHECK(node.pool.Find(worker)->state == WorkerState::kIdle);
    CHECK(node.worker_of.empty());
  }
  WHEN("it is returned with its worker") {
    node.Demand(driver, 1, 0);
    node.Return(driver, grant.lease(), /*discard=*/true);
    CHECK(node.pool.Find(worker)->state == WorkerState::kDying);
    CHECK(node.Received<proto::Shutdown>(worker, FrameKind::kShutdown).size() == 1);
    CHECK(node.worker_of.empty());
  }
  WHEN("somebody else returns it") {
    node.Return(worker, grant.lease());
    CHECK(node.worker_of.size() == 1);
  }
  WHEN("its owner is gone") {
    node.processes.erase(driver);
    node.leases.OnProcessGone(driver);
    node.Settle();
    CHECK(node.launcher.WasKilled(worker));
  }
}

SCENARIO("a driver without a job gets nothing") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.Demand(driver, 1, 1);
  const auto refused = node.Received<proto::LeaseRefused>(driver, FrameKind::kLeaseRefused);
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0].message(), Catch::Contains("no job"));
}

SCENARIO("a worker that cannot be joined with its owner is not used again") {
  Node node;
  const ProcessId driver = node.Driver();
  node.switchboard.error = absl::ResourceExhaustedError("no descriptors");
  node.Demand(driver, 1, 1);
  const auto refused = node.Received<proto::LeaseRefused>(driver, FrameKind::kLeaseRefused);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].message() == "no descriptors");
  CHECK_FALSE(node.launcher.killed.empty());
  CHECK(node.worker_of.empty());
}

SCENARIO("an owner that does not answer loses its lease when its worker gives it back") {
  Node node;
  const ProcessId silent = node.Driver();
  const ProcessId other = node.Driver(6);
  node.Demand(silent, 1, 2, 1);
  const auto grants = node.Grants(silent);
  REQUIRE(grants.size() == 2);
  node.Demand(other, 1, 1, 1);
  for (int i = 0; i < 30; ++i) {
    node.clock.Advance(100 * kMillisecond);
    node.queue.OnTick(node.clock.Now());
    node.leases.Tick();
    node.Settle();
  }
  const auto asked = node.Received<proto::LeaseRevoke>(silent, FrameKind::kLeaseRevoke);
  REQUIRE(asked.size() >= 2);  // Asked, and told when it was overdue.
  const LeaseNumber lease = asked[0].lease();
  const ProcessId worker = node.worker_of.at(lease);
  CHECK_FALSE(node.Received<proto::LeaseRevoke>(worker, FrameKind::kLeaseRevoke).empty());
  node.Return(worker, lease);
  CHECK(node.Grants(other).size() == 1);
  node.Return(silent, lease);  // It goes on, and hears of it.
  CHECK_FALSE(node.worker_of.contains(lease));
}

SCENARIO("a demand of another node's owner: the worker is in contact with it") {
  Node node;
  node.HandedOn(1);
  CHECK(node.view.nodes.at(2).draining);  // It has spoken, and is not described yet.
  const auto grants = node.Grants(kFarDriver);
  REQUIRE(grants.size() == 1);
  const ProcessId worker = ProcessId::Unpack(grants[0].worker());
  CHECK(node.contacts.OnProcessDied(worker, proto::Death(),
                                    [](ProcessId) { return proto::ProcessDied(); },
                                    {}) == absl::btree_set<ProcessId>{kFarDriver});
  proto::SpillbackDemand wrong;
  wrong.set_owner(RayletOf(2).packed());
  CHECK_FALSE(
      node.leases.OnSpillbackDemand(RayletOf(2), node.Of(FrameKind::kSpillbackDemand, wrong)).ok());
}

SCENARIO("a demand without room here goes to another node, behind its job") {
  Node node;
  const ProcessId driver = node.Driver();
  node.AddNode(2, "CPU:8");
  node.Demand(driver, 1, 1, /*cpus=*/8);
  const auto frames = node.transport.Take(RayletOf(2));
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].As<proto::RemoteJob>().job() == 5);
  const auto handed = frames[1].As<proto::SpillbackDemand>();
  CHECK(handed.owner() == driver.packed());
  CHECK(handed.demand().wanted() == 1);
}

SCENARIO("damage in a ring: what is no user's own program ends") {
  Node node;
  const ProcessId driver = node.Driver();
  const ProcessId worker = ProcessId::Unpack(node.Lease(driver).worker());
  proto::KillWorker message;
  message.set_process(worker.packed());
  message.set_reason("damaged");
  const ProcessId stranger = node.Driver(6);
  REQUIRE(node.leases.OnKillWorker(stranger, node.Of(FrameKind::kKillWorker, message)).ok());
  CHECK_FALSE(node.launcher.WasKilled(worker));
  REQUIRE(node.leases.OnKillWorker(driver, node.Of(FrameKind::kKillWorker, message)).ok());
  CHECK(node.launcher.WasKilled(worker));
  CHECK_FALSE(node.launcher.WasKilled(driver));
}

SCENARIO("a worker that may leave by itself is told to, and killed when it has not") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  node.transport.Take(worker);
  proto::KillWorker message;
  message.set_lease(grant.lease());
  message.set_process(worker.packed());
  message.set_reason("no handle of it is left");
  message.set_patience_ns(INT64_MAX);
  REQUIRE(node.leases.OnKillWorker(driver, node.Of(FrameKind::kKillWorker, message)).ok());
  const auto frames = node.transport.Take(worker);
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].kind == FrameKind::kShutdown);
  node.clock.Advance(20 * kSecond);
  CHECK_FALSE(node.leases.SweepWorker(worker));
  CHECK_FALSE(node.launcher.WasKilled(worker));
  message.set_patience_ns(0);
  REQUIRE(node.leases.OnKillWorker(driver, node.Of(FrameKind::kKillWorker, message)).ok());
  CHECK(node.launcher.WasKilled(worker));
}

SCENARIO("a worker whose actor nobody wanted when it was granted is not killed: it leaves") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver, /*actor=*/true);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  node.transport.Take(worker);
  node.Return(driver, grant.lease(), /*discard=*/true);
  CHECK_FALSE(node.launcher.WasKilled(worker));
  const auto frames = node.transport.Take(worker);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].kind == FrameKind::kLeaseEnd);
  CHECK(frames[1].kind == FrameKind::kShutdown);
  CHECK(node.queue.Find(grant.lease()) == nullptr);
}

SCENARIO("an actor that leaves goes on when its owner is gone") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver, /*actor=*/true);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  proto::KillWorker message;
  message.set_lease(grant.lease());
  message.set_process(worker.packed());
  message.set_patience_ns(INT64_MAX);
  REQUIRE(node.leases.OnKillWorker(driver, node.Of(FrameKind::kKillWorker, message)).ok());
  CHECK(node.queue.Find(grant.lease())->blocked_since != 0);  // Its CPU is lent.
  node.processes.erase(driver);
  node.leases.OnProcessGone(driver);
  CHECK_FALSE(node.leases.SweepLease(grant.lease()));
  node.Settle();
  CHECK_FALSE(node.launcher.WasKilled(worker));
  CHECK(node.queue.Find(grant.lease()) != nullptr);  // Until its process is gone.
}

SCENARIO("a blocked worker lends its CPUs") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  proto::Blocked message;
  message.set_blocked(true);
  REQUIRE(node.leases.OnBlocked(worker, node.Of(FrameKind::kBlocked, message)).ok());
  CHECK(node.pool.Find(worker)->state == WorkerState::kBlocked);
  CHECK(node.queue.Find(grant.lease())->blocked_since != 0);
  message.set_blocked(false);
  REQUIRE(node.leases.OnBlocked(worker, node.Of(FrameKind::kBlocked, message)).ok());
  CHECK(node.queue.Find(grant.lease())->blocked_since == 0);
}

SCENARIO("what a worker had started is said of its lease alone, to the owner of that") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  node.switchboard.started[{worker, driver}] = {grant.lease(), 17};
  node.switchboard.started[{worker, kFarDriver}] = {grant.lease(), 3};
  CHECK(node.leases.StartedFor(worker, grant.lease(), driver) == 17);
  CHECK(node.leases.StartedFor(worker, grant.lease(), kFarDriver) == 0);
  node.switchboard.started[{worker, driver}] = {grant.lease() + 1, 17};
  CHECK(node.leases.StartedFor(worker, grant.lease(), driver) == 0);
  node.switchboard.started[{worker, driver}] = {0, 17};
  CHECK(node.leases.StartedFor(worker, 0, driver) == 0);
}

SCENARIO("the sweep repairs leases and workers that have lost each other") {
  Node node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  CHECK_FALSE(node.leases.SweepLease(grant.lease()));
  CHECK_FALSE(node.leases.SweepWorker(worker));
  node.processes.at(worker).lease = 0;
  CHECK(node.leases.SweepLease(grant.lease()));
  CHECK(node.worker_of.empty());
  CHECK(node.leases.SweepWorker(worker));
  CHECK(node.launcher.WasKilled(worker));
}

}  // namespace lease_broker_test
}  // namespace sheaf
