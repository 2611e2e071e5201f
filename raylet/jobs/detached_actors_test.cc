// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors of a node: started for the GCS, reported to it, given back.
#include "raylet/jobs/detached_actors.h"

#include <catch2/catch.hpp>

#include "raylet/jobs/job_parts_for_test.h"

namespace sheaf {
namespace detached_actors_test {

constexpr ProcessId kCreator{2, 7};
const ActorId kActor = ActorId::Make(kCreator, 1);

struct Node : JobParts {
  void Start(uint32_t incarnation = 1, double cpus = 1) {
    proto::StartActor start;
    start.set_actor_id(kActor.Binary());
    start.set_incarnation(incarnation);
    start.set_creation("construct it");
    Resources::Cpu(cpus).ToMap(*start.mutable_lease()->mutable_resources()->mutable_amounts());
    start.mutable_job()->set_job(5);
    start.mutable_job()->set_driver(kCreator.packed());
    actors.OnStart(start);
  }
  void Kill(uint32_t incarnation = 1) {
    proto::KillActor kill;
    kill.set_actor_id(kActor.Binary());
    kill.set_incarnation(incarnation);
    kill.set_reason("killed");
    actors.OnKill(kill);
  }
  // The worker for the lease that was granted to the actor.
  ProcessId Place() {
    std::vector<LeaseAction> grants = queue.TakeActions();
    REQUIRE(grants.size() == 1);
    REQUIRE(grants[0].kind == LeaseAction::Kind::kGrant);
    const ProcessId worker = Attach(ProcessRole::kWorker);
    actors.OnPlaced(grants[0].demand.key, grants[0].lease, worker);
    return worker;
  }
  // Reports of the actor to the GCS.
  std::vector<proto::ActorStateReport> Reports() {
    std::vector<proto::ActorStateReport> reports;
    for (const proto::GcsRequest& request : Asked()) {
      if (request.has_actor_state_report()) reports.push_back(request.actor_state_report());
    }
    return reports;
  }
  void Says(ProcessId from, const std::string& id, const std::string& state) {
    proto::ActorReport report;
    report.mutable_actor()->set_actor_id(id);
    report.mutable_actor()->set_state(state);
    report.mutable_actor()->set_death("it raised");
    REQUIRE(actors.OnReport(from, Of(FrameKind::kActorReport, report)).ok());
  }
};

SCENARIO("an actor starts: a lease in the raylet's name, its creation task, two reports") {
  Node node;
  node.Start();
  auto reports = node.Reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].pending() == "a worker");
  const ProcessId worker = node.Place();
  const auto frames = node.transport.Take(worker);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].kind == FrameKind::kActorLease);
  CHECK(frames[1].kind == FrameKind::kPushTask);
  CHECK(frames[1].body == "construct it");
  const JobNumber job = node.jobs.LocalNumber(5);
  CHECK(node.actors.HasAny(job));
  CHECK(node.actors.WorkersOf(job) == absl::btree_set<ProcessId>{worker});
  node.Says(worker, kActor.ToHex(), "ALIVE");
  reports = node.Reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].started().process() == worker.packed());
  GIVEN("the order again") {
    node.Start();
    CHECK(node.Reports().size() == 1);
    CHECK(node.actors.all().size() == 1);
  }
  GIVEN("its worker's death") {
    proto::Death death;
    death.set_cause(proto::Death::SIGNALLED);
    node.actors.OnWorkerDied(worker, death);
    reports = node.Reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].died().cause() == proto::Death::SIGNALLED);
    CHECK(node.actors.all().empty());
    THEN("that incarnation never begins again, the next does") {
      node.Start();
      CHECK(node.actors.all().empty());
      CHECK(node.Reports().at(0).has_died());
      node.Start(2);
      CHECK(node.actors.all().size() == 1);
      proto::NodeReport all;
      node.actors.FillReport(&all);
      CHECK(all.actors_size() == 2);
    }
  }
}

SCENARIO("a constructor that fails: the actor ends as it says") {
  Node node;
  node.Start();
  const ProcessId worker = node.Place();
  node.Says(worker, kActor.ToHex(), "DEAD");
  CHECK(node.actors.all().begin()->second.ending);
  node.Reports();
  proto::Death death;
  death.set_cause(proto::Death::KILLED);
  node.actors.OnWorkerDied(worker, death);
  const auto reports = node.Reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].died().cause() == proto::Death::EXITED);
  CHECK(reports[0].died().message() == "it raised");
}

SCENARIO("an actor is killed: in the queue, while its worker starts, and where it never was") {
  Node node;
  node.Start(1, /*cpus=*/GENERATE(1.0, 8.0));
  node.Kill();
  auto reports = node.Reports();
  REQUIRE(reports.size() == 2);
  CHECK(reports[1].died().cause() == proto::Death::KILLED);
  CHECK(node.actors.all().empty());
  CHECK_FALSE(node.actors.IsWanted(1));
  CHECK(node.ended.size() == node.queue.leases_out());  // What was granted ends.
  CHECK(node.queue.AllPending().empty());
  node.Kill();
  CHECK(node.Reports().size() == 1);
}

SCENARIO("a newer incarnation ends the one that is here") {
  Node node;
  node.Start();
  node.Place();
  node.Start(2);
  CHECK(node.actors.all().begin()->second.ending);
  node.Start(1);  // Late.
  CHECK(node.actors.all().size() == 1);
}

SCENARIO("who is placed when nobody wants it any more is killed") {
  Node node;
  node.Start();
  node.Kill();
  const ProcessId worker = node.Attach(ProcessRole::kWorker);
  node.actors.OnPlaced(1, 1, worker);
  CHECK(node.transport.Take(worker).empty());
}

SCENARIO("an actor without room here goes where there is some") {
  Node node;
  REQUIRE(node.ledger.Prepare({PlacementGroupId(), 0}, Resources::Cpu(2), kGcs).ok());
  node.Start();
  node.Reports();
  node.clock.Advance(2 * kSecond);
  node.actors.Tick();
  CHECK(node.Reports().empty());  // There is none anywhere.
  node.AddNode(3, "CPU:1");
  node.clock.Advance(kSecond);
  node.actors.Tick();
  const auto reports = node.Reports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].died().cause() == proto::Death::NODE_DIED);
  CHECK_THAT(reports[0].died().message(), Catch::Contains("some on node 3"));
}

SCENARIO("a node that drains gives back what waits, and takes nothing") {
  Node node;
  node.Start(1, /*cpus=*/8);
  node.Reports();
  node.view.here().draining = true;
  node.actors.OnDraining();
  CHECK(node.Reports().at(0).died().cause() == proto::Death::NODE_DIED);
  node.Start(2);
  CHECK(node.actors.all().empty());
  CHECK(node.Reports().at(0).died().cause() == proto::Death::NODE_DIED);
}

SCENARIO("a notice leaves the actor in the queue; a refusal ends it") {
  Node node;
  node.Start();
  node.Reports();
  node.actors.OnRefused(1, ErrorKind::kNone, "no node has 8 CPU");
  CHECK(node.Reports().at(0).pending() == "no node has 8 CPU");
  node.actors.OnRefused(1, ErrorKind::kSystem, "no");
  CHECK(node.Reports().at(0).died().cause() == proto::Death::START_FAILED);
}

SCENARIO("actors hear for how long the GCS counts on their node, a few times in each lease") {
  Node node;
  node.Start();
  const ProcessId worker = node.Place();
  node.transport.Take(worker);
  const auto told = [&] {
    return node.Received<proto::ActorLease>(worker, FrameKind::kActorLease);
  };
  node.actors.OnNodeLease(10 * kSecond, 8 * kSecond);
  CHECK(told().at(0).until_ns() == 10 * kSecond);
  node.actors.OnNodeLease(11 * kSecond, 8 * kSecond);
  CHECK(told().empty());
  node.actors.OnNodeLease(12 * kSecond, 8 * kSecond);
  CHECK(told().size() == 1);
}

SCENARIO("what creators report goes on with what they do not know: job, name space and pid") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  REQUIRE(node.jobs.OnStart(driver, node.Of(FrameKind::kJobStart, proto::JobStart())).ok());
  const proto::GcsRequest registration = node.Asked().at(0);
  const ProcessId worker = node.Attach(ProcessRole::kWorker);
  proto::ActorReport report;
  report.mutable_actor()->set_actor_id(ActorId::Make(driver, 1).ToHex());
  report.mutable_actor()->set_process(worker.packed());
  REQUIRE(node.actors.OnReport(driver, node.Of(FrameKind::kActorReport, report)).ok());
  node.actors.SendRows();
  CHECK(node.Asked().at(0).actor_rows().rows(0).job() == 0);
  proto::GcsReply reply;
  reply.mutable_job_registered()->set_job(5);
  reply.mutable_job_registered()->set_name_space("space");
  node.Answer(registration, reply);
  node.actors.SendRows();  // Again, as its job has a number now.
  node.actors.SendRows();
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  const proto::ActorRow& row = asked[0].actor_rows().rows(0);
  CHECK(row.job() == 5);
  CHECK(row.name_space() == "space");
  CHECK(row.os_pid() == node.processes.at(worker).info.os_pid);
}

SCENARIO("what creators report goes on in one message, but not of the dead") {
  Node node;
  const ProcessId creator = node.Attach(ProcessRole::kDriver);
  const ProcessId gone = node.Attach(ProcessRole::kDriver);
  node.Says(creator, ActorId::Make(creator, 1).ToHex(), "PENDING");
  node.Says(creator, ActorId::Make(creator, 1).ToHex(), "ALIVE");
  node.Says(gone, ActorId::Make(gone, 1).ToHex(), "ALIVE");
  node.processes.erase(gone);
  node.gcs.SetUp(false);
  node.actors.SendRows();
  CHECK(node.Asked().empty());
  node.gcs.SetUp(true);
  node.actors.SendRows();
  node.actors.SendRows();
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  REQUIRE(asked[0].actor_rows().rows_size() == 1);
  CHECK(asked[0].actor_rows().rows(0).state() == "ALIVE");
}

}  // namespace detached_actors_test
}  // namespace sheaf
