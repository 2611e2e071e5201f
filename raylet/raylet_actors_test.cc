// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors: the raylet hosts them, the GCS decides.
#include <catch2/catch.hpp>
#include <set>

#include "raylet/detached_actor_for_test.h"

namespace sheaf {

SCENARIO("a detached actor starts at the GCS's word and outlives its driver") {
  DetachedTest t;
  t.node.GcsSays(t.start);
  CHECK(t.LastReport().has_pending());
  t.node.WorkersReady();
  const ProcessId worker = t.Placed();
  t.Says(worker, "ALIVE");
  CHECK(t.LastReport().started().process() == worker.packed());
  CHECK(t.LastReport().started().lease() != 0);
  GIVEN("a job whose driver is gone with its node") {
    t.node.launcher.TakeStarted();
    t.node.NodeBecomes(9, proto::NodeInfo::ALIVE);
    t.node.NodeBecomes(9, proto::NodeInfo::DEAD);
    t.start.mutable_start_actor()->set_actor_id(ActorId::Make({9, 7}, 1).Binary());
    t.start.mutable_start_actor()->mutable_job()->set_job(77);
    t.start.mutable_start_actor()->mutable_job()->set_driver(ProcessId{9, 7}.packed());
    t.node.GcsSays(t.start);
    THEN("nobody is asked for its program, and one worker starts, no spares") {
      CHECK(std::count_if(t.node.launcher.jobs.begin(), t.node.launcher.jobs.end(),
                          [](const auto& job) { return job.second == ProcessId(); }) == 1);
      CHECK(t.node.launcher.TakeStarted().size() == 1);
    }
  }
  GIVEN("a repeat of the start") {
    const size_t before = t.node.Asked(proto::GcsRequest::kActorStateReport).size();
    t.node.GcsSays(t.start);
    CHECK(t.node.Asked(proto::GcsRequest::kActorStateReport).size() == before + 1);
    CHECK(t.node.raylet->figures().Get().leases == 1);
  }
  GIVEN("the end of its job") {
    t.node.Exit(t.driver, proto::Death::EXITED, 0);
    CHECK_FALSE(t.node.launcher.WasKilled(worker));
    CHECK(t.node.launcher.strays_ended.size() == 1);  // What its other workers left behind.
    t.node.Advance(40 * kSecond);
    CHECK(t.node.launcher.jobs.size() == 1);  // It may have to start again.
    CHECK(t.node.raylet->figures().Get().leases == 1);
    THEN("when it is killed, its job is forgotten after a while") {
      proto::GcsEvent kill;
      kill.set_client(t.start.client());
      kill.mutable_kill_actor()->set_actor_id(t.id.Binary());
      kill.mutable_kill_actor()->set_incarnation(1);
      t.node.GcsSays(kill);
      CHECK(t.node.launcher.WasKilled(worker));
      t.node.ExitKilled();
      CHECK(t.LastReport().has_died());
      t.node.Advance(40 * kSecond);
      CHECK(t.node.launcher.jobs.empty());
      CHECK(t.node.raylet->figures().Get().leases == 0);
    }
  }
  GIVEN("its worker crashes") {
    t.node.Exit(worker);
    CHECK(t.LastReport().died().cause() == proto::Death::SIGNALLED);
    CHECK(t.node.raylet->figures().Get().leases == 0);
    THEN("a late repeat of the start begins nothing, and hears how it ended") {
      t.node.GcsSays(t.start);
      t.node.WorkersReady();
      CHECK(t.node.raylet->figures().Get().leases == 0);
      CHECK(t.LastReport().incarnation() == 1);
      CHECK(t.LastReport().died().cause() == proto::Death::SIGNALLED);
    }
    THEN("another incarnation can start") {
      t.start.mutable_start_actor()->set_incarnation(2);
      t.node.GcsSays(t.start);
      t.node.WorkersReady();
      const ProcessId next = t.Placed();
      CHECK(next != worker);
      t.Says(next, "ALIVE");
      CHECK(t.LastReport().incarnation() == 2);
      CHECK(t.LastReport().has_started());
    }
  }
}

SCENARIO("a kill that overtakes the start of its incarnation is obeyed") {
  DetachedTest t;
  proto::GcsEvent kill;
  kill.set_client(t.start.client());
  kill.mutable_kill_actor()->set_actor_id(t.id.Binary());
  kill.mutable_kill_actor()->set_incarnation(1);
  t.node.GcsSays(kill);
  CHECK(t.LastReport().died().cause() == proto::Death::KILLED);
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  CHECK(t.node.raylet->figures().Get().leases == 0);
  CHECK(t.LastReport().died().cause() == proto::Death::KILLED);
}

SCENARIO("a detached actor that is killed before its worker is there leaves nothing") {
  DetachedTest t;
  t.node.GcsSays(t.start);
  CHECK(t.node.raylet->figures().Get().leases == 1);
  proto::GcsEvent kill;
  kill.set_client(t.start.client());
  kill.mutable_kill_actor()->set_actor_id(t.id.Binary());
  kill.mutable_kill_actor()->set_incarnation(1);
  t.node.GcsSays(kill);
  CHECK(t.LastReport().has_died());
  CHECK(t.node.raylet->figures().Get().leases == 0);
  THEN("its worker is free for others when it comes") {
    t.node.WorkersReady();
    CHECK(t.node.raylet->figures().Get().leases == 0);
    CHECK(t.node.raylet->figures().Get().workers.actor == 0);
    CHECK(t.node.raylet->figures().Get().workers.dying == 0);
    t.node.Advance(10 * kSecond);  // Passes of the sweeper.
    CHECK(t.node.raylet->figures().Get().swept == 0);
  }
}

SCENARIO("a job known for its detached actor only goes on when its driver asks for workers") {
  DetachedTest t;
  const ProcessId far{2, 1};
  t.start.mutable_start_actor()->mutable_job()->set_job(7);
  t.start.mutable_start_actor()->mutable_job()->set_driver(far.packed());
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  t.Placed();
  const auto from_node_2 = [&](FrameKind kind, const std::string& body) {
    t.node.raylet->OnRemoteFrame(RayletOf(2), RayletOf(RayletNode::kNode), Lane::kControl,
                                 {kind, body});
  };
  const bool over = GENERATE(false, true);
  if (over) {
    proto::OwnerLeft left;
    left.set_process(far.packed());
    from_node_2(FrameKind::kOwnerLeft, left.SerializeAsString());
  }
  proto::RemoteJob job;
  job.set_job(7);
  job.set_driver(far.packed());
  from_node_2(FrameKind::kRemoteJob, job.SerializeAsString());
  proto::SpillbackDemand demand;
  demand.set_owner(far.packed());
  demand.set_driver(far.packed());
  demand.set_hops(1);
  demand.mutable_demand()->set_key(1);
  demand.mutable_demand()->set_wanted(1);
  Resources::Cpu(1).ToMap(
      *demand.mutable_demand()->mutable_spec()->mutable_resources()->mutable_amounts());
  from_node_2(FrameKind::kSpillbackDemand, demand.SerializeAsString());
  t.node.WorkersReady();
  const auto grants = t.node.transport.Take<proto::LeaseGrant>(far, FrameKind::kLeaseGrant);
  CHECK(grants.size() == (over ? 0 : 1));
}

SCENARIO("an owner that outlives the driver of its job gets workers when the job has ended") {
  RayletNode node;
  const ProcessId driver{2, 1};
  const ProcessId owner{2, 5};  // A detached actor's worker.
  node.NodeBecomes(2, proto::NodeInfo::ALIVE);
  const bool known = GENERATE(false, true);  // To this node, from before its end.
  const bool outlives = GENERATE(false, true);
  INFO("known " << known << ", outlives " << outlives);
  const auto tell = [&](bool marked) {
    proto::RemoteJob job;
    job.set_job(7);
    job.set_driver(driver.packed());
    job.set_outlives_driver(marked);
    node.FromNode(2, FrameKind::kRemoteJob, job);
  };
  if (known) tell(false);
  proto::OwnerLeft left;
  left.set_process(driver.packed());
  node.FromNode(2, FrameKind::kOwnerLeft, left);
  tell(outlives);
  proto::SpillbackDemand demand;
  demand.set_owner(owner.packed());
  demand.set_driver(driver.packed());
  demand.set_hops(1);
  demand.set_outlives_driver(outlives);
  demand.mutable_demand()->set_key(1);
  demand.mutable_demand()->set_wanted(1);
  Resources::Cpu(1).ToMap(
      *demand.mutable_demand()->mutable_spec()->mutable_resources()->mutable_amounts());
  node.FromNode(2, FrameKind::kSpillbackDemand, demand);
  node.WorkersReady();
  const auto grants = node.transport.Take<proto::LeaseGrant>(owner, FrameKind::kLeaseGrant);
  REQUIRE(grants.size() == (outlives ? 1 : 0));
  if (!outlives) return;
  const ProcessId worker = ProcessId::Unpack(grants[0].worker());
  node.Advance(60 * kSecond);
  CHECK_FALSE(node.launcher.WasKilled(worker));  // As long as it is leased.
  CHECK(node.raylet->figures().Get().swept == 0);
  left.set_process(owner.packed());
  node.FromNode(2, FrameKind::kOwnerLeft, left);
  node.Advance(60 * kSecond);
  CHECK(node.launcher.WasKilled(worker));
  CHECK(node.launcher.jobs.empty());
}

SCENARIO("what a detached actor has others do goes on when its driver leaves") {
  DetachedTest t;
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  const ProcessId actor = t.Placed();
  t.Says(actor, "ALIVE");
  const auto lease = [&](ProcessId owner) {
    proto::LeaseDemand demand;
    demand.set_key(9);
    demand.set_wanted(1);
    demand.set_backlog(1);
    Resources::Cpu(0.1).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
    t.node.Send(owner, FrameKind::kLeaseDemand, demand);
    t.node.WorkersReady();
    const auto grants = t.node.transport.Take<proto::LeaseGrant>(owner, FrameKind::kLeaseGrant);
    REQUIRE(grants.size() == 1);
    return ProcessId::Unpack(grants[0].worker());
  };
  const ProcessId child = lease(actor);
  const ProcessId grandchild = lease(child);
  const ProcessId other = lease(t.driver);
  t.node.Exit(t.driver, proto::Death::EXITED, 0);
  CHECK_FALSE(t.node.launcher.WasKilled(actor));
  CHECK_FALSE(t.node.launcher.WasKilled(child));
  CHECK_FALSE(t.node.launcher.WasKilled(grandchild));
  CHECK(t.node.launcher.WasKilled(other));
}

SCENARIO("the constructor of a detached actor fails") {
  DetachedTest t;
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  const ProcessId worker = t.Placed();
  t.Says(worker, "DEAD");
  CHECK(t.node.launcher.WasKilled(worker));
  t.node.ExitKilled();
  CHECK(t.LastReport().died().message() == "it threw");
}

SCENARIO(
    "a detached actor may begin calls for one lease from the last heartbeat that was answered") {
  DetachedTest t;
  const auto answered = [&](uint64_t number) {
    proto::GcsReply reply;
    reply.set_client(RayletOf(RayletNode::kNode).packed());
    reply.mutable_heartbeat()->set_number(number);
    reply.mutable_heartbeat()->set_lease_ns(4 * kSecond);
    const std::string body = reply.SerializeAsString();
    t.node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
  };
  t.node.Advance(300 * kMillisecond);
  const auto last = [&] {
    return t.node.Asked(proto::GcsRequest::kHeartbeat).back().heartbeat().number();
  };
  const uint64_t first = last();
  const Nanos sent = t.node.clock.Now();
  answered(first);
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  ProcessId worker;
  std::vector<proto::ActorLease> leases;
  for (uint32_t process = 1; process < 20; ++process) {
    for (const SentFrame& frame : t.node.transport.Take({RayletNode::kNode, process})) {
      if (frame.kind != FrameKind::kActorLease) continue;
      worker = {RayletNode::kNode, process};
      leases.push_back(frame.As<proto::ActorLease>());
    }
  }
  REQUIRE(leases.size() == 1);
  CHECK(leases[0].until_ns() <= sent + 4 * kSecond);
  CHECK(leases[0].until_ns() > sent + 3 * kSecond);
  t.Says(worker, "ALIVE");
  const auto renewed = [&] {
    return t.node.Received<proto::ActorLease>(worker, FrameKind::kActorLease);
  };
  WHEN("heartbeats go on") {
    t.node.Advance(1500 * kMillisecond);
    answered(last());
    THEN("it is told of the next lease") {
      const auto told = renewed();
      REQUIRE(told.size() == 1);
      CHECK(told[0].until_ns() >= leases[0].until_ns() + kSecond);
    }
  }
  WHEN("an old one is answered late") {
    t.node.Advance(1500 * kMillisecond);
    answered(last());
    renewed();
    answered(first);
    THEN("it renews nothing") { CHECK(renewed().empty()); }
  }
}

SCENARIO("the end of a detached actor is said again until the disk of the GCS takes it") {
  DetachedTest t;
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  t.Says(t.Placed(), "DEAD");
  t.node.ExitKilled();
  std::set<uint64_t> numbers;
  for (int refused = 0; refused < 3; ++refused) {
    t.node.clock.Advance(GcsLink::kLongestPause);
    t.node.raylet->Tick();
    for (const proto::GcsRequest& request :
         t.node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      if (!request.actor_state_report().has_died()) continue;
      numbers.insert(request.sequence());
      proto::GcsReply full;
      full.set_client(t.start.client());
      full.set_sequence(request.sequence());
      full.set_error(static_cast<uint32_t>(ErrorKind::kGcsStorageFull));
      const std::string body = full.SerializeAsString();
      t.node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
    }
  }
  CHECK(numbers.size() == 3);
}

SCENARIO("a kill of what is not here is answered") {
  DetachedTest t;
  proto::GcsEvent kill;
  kill.set_client(t.start.client());
  kill.mutable_kill_actor()->set_actor_id(t.id.Binary());
  kill.mutable_kill_actor()->set_incarnation(3);
  t.node.GcsSays(kill);
  CHECK(t.LastReport().incarnation() == 3);
  CHECK(t.LastReport().has_died());
}

SCENARIO("a kill of an incarnation before the one that is here is answered, and ends nothing") {
  DetachedTest t;
  t.start.mutable_start_actor()->set_incarnation(2);
  t.node.GcsSays(t.start);
  proto::GcsEvent kill;
  kill.set_client(t.start.client());
  kill.mutable_kill_actor()->set_actor_id(t.id.Binary());
  kill.mutable_kill_actor()->set_incarnation(1);
  t.node.GcsSays(kill);
  CHECK(t.LastReport().incarnation() == 1);
  CHECK(t.LastReport().has_died());
  CHECK(t.node.raylet->figures().Get().leases == 1);
}

SCENARIO("the GCS restarts: all soft state is reported, and processes are told") {
  DetachedTest t;
  t.node.GcsSays(t.start);
  proto::GcsEvent restarted;
  restarted.set_client(t.start.client());
  restarted.mutable_restarted()->set_term(9);
  t.node.GcsSays(restarted);
  t.node.GcsSays(restarted);
  const auto reports = t.node.Asked(proto::GcsRequest::kNodeReport);
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].node_report().actors_size() == 1);
  CHECK(reports[0].node_report().processes_size() == 1);
  CHECK(t.node.Received<proto::GcsEvent>(t.driver, FrameKind::kGcsEvent).size() == 1);
}

SCENARIO("how an actor's last incarnation ended stays known, and is told to a GCS that starts") {
  DetachedTest t;
  t.start.mutable_start_actor()->set_incarnation(5);
  t.node.GcsSays(t.start);
  t.node.WorkersReady();
  t.node.Exit(t.Placed());
  proto::GcsEvent kill;
  kill.set_client(t.start.client());
  kill.mutable_kill_actor()->set_actor_id(ActorId::Make({1, 1}, GENERATE(5, 6)).Binary());
  kill.mutable_kill_actor()->set_incarnation(2);
  for (int i = 0; i < 2000; ++i) t.node.GcsSays(kill);  // It repeats what is not answered.
  CHECK(t.LastReport().incarnation() == 2);             // Each is.
  CHECK(t.LastReport().died().cause() == proto::Death::KILLED);
  for (const uint32_t incarnation : {5, 3}) {  // 3: of a database that is older.
    t.start.mutable_start_actor()->set_incarnation(incarnation);
    t.node.GcsSays(t.start);
    CHECK(t.node.raylet->figures().Get().leases == 0);
    CHECK(t.LastReport().incarnation() == 5);
    CHECK(t.LastReport().died().cause() == proto::Death::SIGNALLED);
  }
  proto::GcsEvent restarted;
  restarted.set_client(t.start.client());
  restarted.mutable_restarted()->set_term(1000);
  t.node.GcsSays(restarted);
  const auto reports = t.node.Asked(proto::GcsRequest::kNodeReport);
  REQUIRE_FALSE(reports.empty());
  std::vector<uint32_t> incarnations;
  for (const proto::ActorStateReport& actor : reports.back().node_report().actors()) {
    if (actor.actor_id() == t.id.Binary() && actor.has_died())
      incarnations.push_back(actor.incarnation());
  }
  CHECK(incarnations == std::vector<uint32_t>{5});
}

}  // namespace sheaf
