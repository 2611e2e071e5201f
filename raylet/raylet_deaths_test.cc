// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What follows when a process dies: who is told, what ends, what stays for how long.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace raylet_deaths_test {

ObjectId Object(ProcessId owner, uint64_t sequence) { return ObjectId::Make(owner, sequence, 1); }

SCENARIO("a leased worker dies: its lessee hears how, and what it had started") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  const bool same_lease = GENERATE(true, false);
  node.switchboard.started[{worker, driver}] = {same_lease ? grant.lease() : grant.lease() + 1, 17};
  node.Exit(worker, proto::Death::SIGNALLED, 11);
  const auto died = node.Received<proto::ProcessDied>(driver, FrameKind::kProcessDied);
  REQUIRE(died.size() == 1);
  CHECK(died[0].process() == grant.worker());
  CHECK(died[0].death().cause() == proto::Death::SIGNALLED);
  CHECK(died[0].death().code() == 11);
  CHECK(died[0].started() == (same_lease ? 17 : 0));
  THEN("the demand stands and gets another worker") {
    node.WorkersReady();
    const auto grants = node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant);
    REQUIRE(grants.size() == 1);
    CHECK(grants[0].worker() != grant.worker());
  }
  THEN("its rings go when its peers have drained them") {
    CHECK(node.switchboard.removed.empty());
    node.Drained(driver, worker);
    CHECK(node.switchboard.removed == std::vector{worker});
    CHECK(node.transport.forgotten == std::vector{worker});
    CHECK(node.raylet->figures().Get().ended_processes == 0);
  }
  THEN("a repeat of its exit changes nothing") {
    node.Exit(worker);
    CHECK(node.Received<proto::ProcessDied>(driver, FrameKind::kProcessDied).empty());
  }
}

SCENARIO("two processes of different nodes that spoke with each other die together") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const ProcessId far{2, 5};
  const auto from_node_2 = [&](ProcessId to, FrameKind kind, const std::string& body) {
    node.raylet->OnRemoteFrame(RayletOf(2), to, Lane::kControl, {kind, body});
  };
  node.raylet->OnRemoteFrame(far, driver, Lane::kWork, {FrameKind::kTemplate, ""});
  node.Exit(driver);
  CHECK(node.raylet->figures().Get().ended_processes == 1);  // Until `far` has seen all of it.
  node.transport.Take(RayletOf(2));
  WHEN("the other node says that its process is no more") {
    proto::ConnectRefused refused;
    refused.set_peer(far.packed());
    from_node_2(RayletOf(RayletNode::kNode), FrameKind::kConnectRefused,
                refused.SerializeAsString());
    THEN("nobody is waited for") { CHECK(node.raylet->figures().Get().ended_processes == 0); }
  }
  WHEN("the other node tells the dead process about its own death") {
    proto::ProcessDied died;
    died.set_process(far.packed());
    from_node_2(driver, FrameKind::kProcessDied, died.SerializeAsString());
    THEN("it learns that nobody is there to drain anything") {
      const auto refusals =
          node.transport.Take<proto::ConnectRefused>(RayletOf(2), FrameKind::kConnectRefused);
      REQUIRE(refusals.size() == 1);
      CHECK(refusals[0].peer() == driver.packed());
    }
  }
}

SCENARIO("an actor dies: each of its callers, here and elsewhere, hears what was started for it") {
  RayletNode node;
  const ProcessId creator = node.Driver();
  const ProcessId other = node.Driver();
  const ProcessId far{2, 5};
  const proto::LeaseGrant grant = node.Lease(creator, 9, 1, true);
  const ProcessId actor = ProcessId::Unpack(grant.worker());
  node.raylet->OnRemoteFrame(far, actor, Lane::kControl, {FrameKind::kTemplate, ""});
  CHECK(node.switchboard.Connect(other, actor).ok());
  node.switchboard.started[{actor, creator}] = {grant.lease(), 100};
  node.switchboard.started[{actor, other}] = {grant.lease(), 2};
  node.switchboard.started[{actor, far}] = {grant.lease(), 5};
  node.transport.Take(RayletOf(2));
  node.Exit(actor);
  const auto told = [&](ProcessId caller) {
    const auto died = node.Received<proto::ProcessDied>(caller, FrameKind::kProcessDied);
    REQUIRE(died.size() == 1);
    return died[0].started();
  };
  CHECK(told(creator) == 100);
  CHECK(told(other) == 2);
  const auto died = node.transport.Take<proto::ProcessDied>(far, FrameKind::kProcessDied);
  REQUIRE(died.size() == 1);
  CHECK(died[0].started() == 5);
}

SCENARIO("what a worker had started is said of its lease alone") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  node.Demand(driver, 1, 0);
  node.Return(driver, grant.lease());
  node.switchboard.started[{worker, driver}] = {0, 17};  // Not of a lease, as its page says.
  node.Exit(worker);
  const auto died = node.Received<proto::ProcessDied>(driver, FrameKind::kProcessDied);
  REQUIRE(died.size() == 1);
  CHECK(died[0].started() == 0);
}

SCENARIO("the GCS hears no more of an actor whose creator has died") {
  RayletNode node;
  const ProcessId creator = node.Driver();
  const ProcessId other = node.Driver();
  const auto report = [&](ProcessId from) {
    proto::ActorReport message;
    message.mutable_actor()->set_actor_id(ActorId::Make(from, 5).ToHex());
    message.mutable_actor()->set_state("ALIVE");
    node.Send(from, FrameKind::kActorReport, message);
  };
  report(creator);
  report(other);
  node.Exit(creator);  // The GCS hears of that at once, of rows with the next tick.
  node.Advance(kSecond);
  std::vector<std::string> told;
  for (const proto::GcsRequest& request : node.Asked(proto::GcsRequest::kActorRows)) {
    for (const proto::ActorRow& row : request.actor_rows().rows()) told.push_back(row.actor_id());
  }
  CHECK(told == std::vector{ActorId::Make(other, 5).ToHex()});
}

SCENARIO("frames of the dead are not listened to") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Exit(driver);
  node.Demand(driver, 1, 1);
  CHECK(node.raylet->figures().Get().scheduler_queue == 0);
}

SCENARIO("an owner dies: its workers are ended, and nobody else's") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant of_driver = node.Lease(driver);
  const ProcessId owner = ProcessId::Unpack(of_driver.worker());
  const proto::LeaseGrant nested = node.Lease(owner);  // A task that has tasks of its own.
  node.Demand(owner, 2, 5);
  node.launcher.killed.clear();
  node.Exit(owner);
  CHECK(node.launcher.WasKilled(ProcessId::Unpack(nested.worker())));
  CHECK(node.launcher.killed.size() == 1);
  node.ExitKilled();
  node.WorkersReady();
  CHECK(node.raylet->figures().Get().scheduler_queue == 0);
  CHECK(node.raylet->figures().Get().leases == 1);  // The driver's demand has a new worker.
}

SCENARIO("a driver's death ends its job: workers, leases, groups, and the GCS hears of it") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const ProcessId other = node.Driver();
  node.WorkersReady();
  const proto::LeaseGrant grant = node.Lease(driver);
  const proto::LeaseGrant of_other = node.Lease(other);
  node.Lease(ProcessId::Unpack(grant.worker()), 1, 0);
  node.launcher.killed.clear();
  const bool clean = GENERATE(true, false);
  if (clean) {
    node.Send(driver, FrameKind::kGoodbye, proto::Goodbye());
  } else {
    node.Exit(driver);
  }
  node.ExitKilled();
  CHECK_FALSE(node.launcher.WasKilled(ProcessId::Unpack(of_other.worker())));
  const NodeStats stats = node.raylet->figures().Get();
  CHECK(stats.leases == 1);
  CHECK(stats.workers.leased == 1);
  CHECK(stats.drivers == 1);
  CHECK(node.launcher.jobs.size() == 1);
  const auto finished = node.Asked(proto::GcsRequest::kFinishJob);
  REQUIRE(finished.size() == 1);
  CHECK(finished[0].finish_job().job() == 1);
  CHECK(finished[0].finish_job().failed() == !clean);
  CHECK(node.Asked(proto::GcsRequest::kProcessGone).size() >= 2);
  node.Advance(20 * kSecond);
  CHECK(node.raylet->figures().Get().workers.idle == 1);  // Of the other job.
  CHECK(node.raylet->figures().Get().swept == 0);
}

SCENARIO("a driver that dies while the GCS registers its job leaves nothing behind") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.Send(driver, FrameKind::kJobStart, proto::JobStart());
  node.Exit(driver);
  node.ExitKilled();
  node.AnswerGcs();
  CHECK(node.Asked(proto::GcsRequest::kFinishJob).size() == 1);
  CHECK(node.launcher.jobs.empty());
  CHECK(node.raylet->figures().Get().workers.starting == 0);
}

SCENARIO("references of a dead process go only when its peers have drained its rings") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId borrower = node.Driver();
  const ProcessId peer = node.Driver();
  node.switchboard.Connect(borrower, peer).IgnoreError();
  node.Refs(borrower, 1, {Object(owner, 1)});
  REQUIRE(node.Received<proto::NodeRefs>(owner, FrameKind::kNodeRefs).size() == 1);
  proto::NodeRefsAck ack;
  ack.set_node(RayletNode::kNode);
  ack.set_version(1);
  node.Send(owner, FrameKind::kNodeRefsAck, ack);
  CHECK(node.Received<proto::RefsReported>(borrower, FrameKind::kRefsReported).size() == 1);

  node.Exit(borrower);
  CHECK(node.Received<proto::ProcessDied>(peer, FrameKind::kProcessDied).size() == 1);
  CHECK(node.Received<proto::NodeRefs>(owner, FrameKind::kNodeRefs).empty());
  GIVEN("the peer found a reference in the ring, and drained it") {
    node.Refs(peer, 1, {Object(owner, 1)});
    node.Drained(peer, borrower);
    node.Advance(kSecond);
    THEN("the owner never hears of a drop") {
      CHECK(node.Received<proto::NodeRefs>(owner, FrameKind::kNodeRefs).empty());
    }
  }
  GIVEN("the peer dies as well, or never answers") {
    if (GENERATE(true, false)) {
      node.Exit(peer);
    } else {
      node.Advance(9 * kSecond);
      CHECK(node.Received<proto::NodeRefs>(owner, FrameKind::kNodeRefs).empty());
      node.Advance(2 * kSecond);
    }
    const auto told = node.Received<proto::NodeRefs>(owner, FrameKind::kNodeRefs);
    REQUIRE(told.size() >= 1);
    CHECK(told[0].dropped_ids() == Object(owner, 1).Binary());
    CHECK(node.raylet->figures().Get().held_references == 0);
  }
}

SCENARIO("borrowers of a dead owner are told, though no ring joins them") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId borrower = node.Driver();
  node.Refs(borrower, 1, {Object(owner, 1)});
  node.Exit(owner);
  CHECK(node.Received<proto::ProcessDied>(borrower, FrameKind::kProcessDied).size() == 1);
  const auto reported = node.Received<proto::RefsReported>(borrower, FrameKind::kRefsReported);
  REQUIRE(reported.size() == 1);
  CHECK(reported[0].orphan_ids() == Object(owner, 1).Binary());
}

SCENARIO("sealed objects of a dead owner stay while they are borrowed here") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId a = node.Driver();
  const ProcessId b = node.Driver();
  const ObjectId kept = Object(owner, 1), inner = Object(owner, 2), dropped = Object(owner, 3),
                 pending = Object(owner, 4);
  node.Put(owner, inner, "inner");
  node.Put(owner, kept, "kept", {inner});
  node.Put(owner, dropped, "nobody has it");
  node.Refs(a, 1, {kept, pending});
  node.Refs(b, 1, {kept});
  node.switchboard.Connect(owner, a).IgnoreError();
  node.Exit(owner);
  THEN("who asks at once is answered at once: the sealed one is there, the pending one is not") {
    CHECK(node.Adopted(a, {kept, pending}) == std::vector<bool>{true, false});
  }
  node.Drained(a, owner);
  CHECK(node.raylet->figures().Get().adopted_objects == 2);
  CHECK(node.store->Contains(kept));
  CHECK(node.store->Contains(inner));  // It lies inside what is kept.
  CHECK_FALSE(node.store->Contains(dropped));
  node.Refs(a, 2, {}, {kept, pending});
  CHECK(node.store->Contains(kept));
  WHEN("the last borrower drops it, or dies") {
    if (GENERATE(true, false)) {
      node.Refs(b, 2, {}, {kept});
    } else {
      node.Exit(b);
    }
    THEN("it goes, with what lies inside") {
      CHECK_FALSE(node.store->Contains(kept));
      CHECK_FALSE(node.store->Contains(inner));
      CHECK(node.raylet->figures().Get().adopted_objects == 0);
      CHECK(node.raylet->figures().Get().held_references == 0);
    }
  }
  WHEN("the last borrower takes out what lies inside, then drops the rest") {
    node.Refs(b, 2, {inner});
    node.Refs(b, 3, {}, {kept});
    CHECK_FALSE(node.store->Contains(kept));
    CHECK(node.store->Contains(inner));
    node.Refs(b, 4, {}, {inner});
    CHECK_FALSE(node.store->Contains(inner));
  }
  CHECK(node.raylet->figures().Get().swept == 0);
}

SCENARIO("an adopted object keeps what lives elsewhere alive") {
  RayletNode node;
  const ProcessId owner = node.Driver();
  const ProcessId other = node.Driver();
  const ProcessId borrower = node.Driver();
  node.Put(owner, Object(owner, 1), "outer", {Object(other, 9)});
  node.Refs(owner, 1, {Object(other, 9)});
  node.Refs(borrower, 1, {Object(owner, 1)});
  node.Exit(owner);
  const auto told = node.Received<proto::NodeRefs>(other, FrameKind::kNodeRefs);
  REQUIRE(told.size() == 1);
  CHECK(told[0].dropped_ids().empty());
  proto::NodeRefsAck ack;
  ack.set_node(RayletNode::kNode);
  ack.set_version(1);
  node.Send(other, FrameKind::kNodeRefsAck, ack);
  CHECK(node.Received<proto::NodeRefs>(other, FrameKind::kNodeRefs).empty());
  node.Refs(borrower, 2, {}, {Object(owner, 1)});
  const auto dropped = node.Received<proto::NodeRefs>(other, FrameKind::kNodeRefs);
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].dropped_ids() == Object(other, 9).Binary());
}

SCENARIO("what a process wanted of another node is taken back when it dies") {
  RayletNode node(Resources::Cpu(1));
  const ProcessId driver = node.Driver();
  const ProcessId worker = ProcessId::Unpack(node.Lease(driver).worker());
  const ProcessId owner = GENERATE(true, false) ? worker : driver;
  node.AddNode(2, "CPU:4");
  node.Demand(owner, 2, 3);
  const auto handed = [&] {
    return node.Received<proto::SpillbackDemand>(RayletOf(2), FrameKind::kSpillbackDemand);
  };
  const auto given = handed();
  REQUIRE(given.size() == 1);
  CHECK(given[0].demand().wanted() == 3);
  if (GENERATE(true, false)) {  // Then its exit leaves nothing.
    node.switchboard.joined.clear();
    node.raylet->OnSocketClosed(owner);
  }
  node.Exit(owner);
  const auto taken_back = handed();
  REQUIRE(taken_back.size() == 1);
  CHECK(taken_back[0].owner() == owner.packed());
  CHECK(taken_back[0].driver() == driver.packed());
  CHECK(taken_back[0].demand().key() == given[0].demand().key());
  CHECK(taken_back[0].demand().wanted() == 0);
}

SCENARIO(
    "a driver that says goodbye lives on with its views; its rings stay until its socket closes") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Send(driver, FrameKind::kGoodbye, proto::Goodbye());
  node.ExitKilled();
  node.Advance(60 * kSecond);
  CHECK(node.raylet->figures().Get().ended_processes == 1);
  CHECK(std::count(node.switchboard.removed.begin(), node.switchboard.removed.end(), driver) == 0);
  node.raylet->OnSocketClosed(driver);
  CHECK(std::count(node.switchboard.removed.begin(), node.switchboard.removed.end(), driver) == 1);
  CHECK(node.raylet->figures().Get().ended_processes == 0);
}

SCENARIO("a forked child keeps the socket of the dead: its pins stay, all else goes") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  proto::Death death;
  death.set_cause(proto::Death::SIGNALLED);
  node.raylet->OnExited(worker, death);
  node.Drained(driver, worker);
  CHECK(node.Received<proto::ProcessDied>(driver, FrameKind::kProcessDied).size() == 1);
  CHECK(node.raylet->figures().Get().ended_processes == 1);
  node.raylet->OnSocketClosed(worker);
  CHECK(node.raylet->figures().Get().ended_processes == 0);
}

SCENARIO("a process that closes its socket and lives is given up after a second") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.raylet->OnSocketClosed(driver);
  CHECK(node.raylet->figures().Get().drivers == 1);
  node.Advance(1200 * kMillisecond);
  CHECK(node.raylet->figures().Get().drivers == 0);
  CHECK(node.raylet->figures().Get().ended_processes == 0);
  CHECK(node.Asked(proto::GcsRequest::kFinishJob).size() == 1);
}

SCENARIO("a worker that said goodbye and does not go is killed") {
  RayletNode node;
  node.Driver();
  node.WorkersReady();
  const ProcessId worker{RayletNode::kNode, 2};
  node.Send(worker, FrameKind::kGoodbye, proto::Goodbye());
  CHECK_FALSE(node.launcher.WasKilled(worker));
  node.Advance(6 * kSecond);
  CHECK(node.launcher.WasKilled(worker));
}

SCENARIO("a worker that attaches when nobody wants it any more is ended") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const auto started = node.launcher.TakeStarted();
  REQUIRE(started.size() == 2);
  node.Exit(driver);  // The job is over; its workers are on their way up, and down.
  node.launcher.killed.clear();
  proto::Death death;
  death.set_cause(proto::Death::KILLED);
  node.raylet->OnExited(started[0].process, death);
  node.Attach(ProcessRole::kWorker, started[0].process);  // Late.
  CHECK(node.raylet->figures().Get().processes == 0);
  // Its rings, bell and segment go at once: nothing that comes later would take them away.
  CHECK(node.switchboard.removed == std::vector{driver, started[0].process});
  CHECK(node.transport.forgotten == std::vector{driver, started[0].process});
  node.Attach(ProcessRole::kWorker, ProcessId{RayletNode::kNode, 4711});
  CHECK(node.launcher.WasKilled({RayletNode::kNode, 4711}));
}

}  // namespace raylet_deaths_test
}  // namespace sheaf
