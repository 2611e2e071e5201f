// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Jobs of drivers here and on other nodes: when they begin, what keeps them, when they go.
#include "raylet/jobs/jobs.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace jobs_test {

constexpr ProcessId kFarDriver{2, 7};

struct Node : NodeParts {
  absl::btree_set<ProcessId> detached;
  Jobs jobs{{.options = options,
             .clock = clock,
             .transport = transport,
             .gcs = gcs,
             .launcher = launcher,
             .pool = pool,
             .queue = queue,
             .worker_of = worker_of,
             .processes = processes,
             .deaths = deaths,
             .detached_workers_of = [this](JobNumber) { return detached; },
             .has_detached_actors = [this](JobNumber) { return !detached.empty(); },
             .on_driver_gone = [](ProcessId) {}}};

  absl::Status Start(ProcessId driver) {
    return jobs.OnStart(driver, Of(FrameKind::kJobStart, proto::JobStart()));
  }
  // A driver whose job the GCS has numbered.
  ProcessId Driver(JobNumber number = 5) {
    const ProcessId driver = Attach(ProcessRole::kDriver);
    REQUIRE(Start(driver).ok());
    Register(number);
    return driver;
  }
  void Register(JobNumber number) {
    const auto asked = Asked();
    REQUIRE(asked.size() == 1);
    REQUIRE(asked[0].has_register_job());
    proto::GcsReply reply;
    reply.mutable_job_registered()->set_job(number);
    reply.mutable_job_registered()->set_name_space("space");
    Answer(asked[0], reply);
  }
  std::vector<proto::JobStarted> Started(ProcessId driver) {
    return Received<proto::JobStarted>(driver, FrameKind::kJobStarted);
  }
  absl::Status Remote(JobNumber number, ProcessId driver, bool outlives_driver = false) {
    proto::RemoteJob message;
    message.set_job(number);
    message.set_driver(driver.packed());
    message.set_outlives_driver(outlives_driver);
    return jobs.OnRemoteJob(Of(FrameKind::kRemoteJob, message));
  }
  void GcsSaysOver(JobNumber number, ProcessId driver) {
    proto::JobInfo info;
    info.set_job(number);
    info.set_driver(driver.packed());
    info.set_state(proto::JobInfo::FINISHED);
    jobs.OnOver(info);
  }
};

proto::Death Exited(int code) {
  proto::Death death;
  death.set_cause(proto::Death::EXITED);
  death.set_code(code);
  return death;
}

SCENARIO("a driver's job starts workers at once, and is answered when the GCS has numbered it") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  REQUIRE(node.Start(driver).ok());
  const JobNumber job = node.processes[driver].job;
  CHECK(job != 0);
  CHECK(node.launcher.jobs.at(job) == driver);
  CHECK(node.Started(driver).empty());
  GIVEN("a number") {
    node.Register(5);
    const auto started = node.Started(driver);
    REQUIRE(started.size() == 1);
    CHECK(started[0].job() == 5);
    CHECK(started[0].name_space() == "space");
    CHECK(node.jobs.LocalNumber(5) == job);
    CHECK(node.jobs.OfDriver(driver) == job);
    THEN("a repeat is answered again, and asks nobody") {
      REQUIRE(node.Start(driver).ok());
      CHECK(node.Started(driver).size() == 1);
      CHECK(node.Asked().empty());
    }
  }
  GIVEN("a refusal") {
    proto::GcsReply reply;
    reply.set_error(1);
    reply.set_message("no");
    node.Answer(node.Asked().at(0), reply);
    const auto started = node.Started(driver);
    REQUIRE(started.size() == 1);
    CHECK(started[0].error() == "no");
    CHECK(node.processes[driver].job == 0);
    CHECK(node.jobs.all().empty());
    CHECK(node.launcher.jobs.empty());
  }
  GIVEN("an early death of the driver") {
    node.processes.erase(driver);
    node.jobs.End(job, Exited(1));
    THEN("the GCS hears of the end when it has given the number") {
      node.Register(5);
      const auto asked = node.Asked();
      REQUIRE(asked.size() == 1);
      CHECK(asked[0].finish_job().job() == 5);
      CHECK(asked[0].finish_job().failed());
      CHECK(node.jobs.all().empty());
    }
  }
}

SCENARIO("a job ends with its driver, cleanly or not") {
  Node node;
  const ProcessId driver = node.Driver();
  const bool clean = GENERATE(true, false);
  node.jobs.End(node.jobs.OfDriver(driver), Exited(clean ? 0 : 1));
  const auto asked = node.Asked();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].finish_job().failed() == !clean);
  CHECK(node.jobs.all().empty());
  CHECK(node.launcher.jobs.empty());
}

SCENARIO("a detached actor keeps its job") {
  Node node;
  const ProcessId driver = node.Driver();
  const JobNumber job = node.jobs.OfDriver(driver);
  node.detached.insert({NodeParts::kNode, 40});
  node.jobs.End(job, Exited(0));
  CHECK(node.launcher.strays_ended == std::vector{job});
  REQUIRE(node.jobs.Find(job) != nullptr);
  CHECK(node.jobs.Find(job)->ended);
  CHECK(node.jobs.OutlivesDriver({NodeParts::kNode, 40}, job));
  CHECK_FALSE(node.jobs.OutlivesDriver(driver, job));
  node.detached.clear();
  node.jobs.Keep(job, kSecond);  // It may begin again.
  node.jobs.Tick();
  CHECK(node.jobs.Find(job) != nullptr);
  node.clock.Advance(kSecond);
  node.jobs.Tick();
  CHECK(node.jobs.Find(job) == nullptr);
}

SCENARIO("a job of another node ends when its driver does, its node dies, or the GCS says so") {
  Node node;
  REQUIRE(node.Remote(9, kFarDriver).ok());
  const JobNumber job = node.jobs.OfDriver(kFarDriver);
  REQUIRE(job != 0);
  CHECK(node.launcher.jobs.at(job) == kFarDriver);
  REQUIRE(node.Remote(9, kFarDriver).ok());  // A repeat.
  CHECK(node.jobs.all().size() == 1);
  constexpr ProcessId kWorker{3, 8};  // Its demand came, and was given back.
  REQUIRE(node.jobs.OnSpillbackDemand(kFarDriver, kWorker, /*outlives_driver=*/false));
  CHECK(node.jobs.OfRemoteOwner(kWorker) == job);
  WHEN("the driver dies") { node.jobs.End(job, Exited(0)); }
  WHEN("its node dies") { node.jobs.OnNodeDead(2, Exited(0)); }
  WHEN("the GCS says so") { node.GcsSaysOver(9, kFarDriver); }
  CHECK(node.jobs.all().empty());
  CHECK(node.jobs.OfRemoteOwner(kWorker) == 0);
  CHECK(node.Asked().empty());  // Its own raylet tells the GCS.
}

SCENARIO("a job that is over does not begin here") {
  Node node;
  node.GcsSaysOver(9, kFarDriver);
  REQUIRE(node.Remote(9, kFarDriver).ok());
  CHECK(node.jobs.all().empty());
  THEN("unless something of it outlives the driver, for as long as that asks") {
    REQUIRE(node.Remote(9, kFarDriver, /*outlives_driver=*/true).ok());
    const JobNumber job = node.jobs.OfDriver(kFarDriver);
    CHECK(node.jobs.OnSpillbackDemand(kFarDriver, {2, 8}, /*outlives_driver=*/true));
    CHECK(node.jobs.OfRemoteOwner({2, 8}) == job);
    CHECK(node.jobs.OutlivesDriver({2, 8}, job));
    CHECK_FALSE(node.jobs.OnSpillbackDemand(kFarDriver, {2, 9}, /*outlives_driver=*/false));
    node.clock.Advance(11 * kSecond);
    node.jobs.Tick();
    CHECK(node.jobs.all().empty());
  }
}

SCENARIO("a driver on this node, of the GCS, or none is no driver of another node") {
  Node node;
  CHECK_FALSE(node.Remote(9, kGcs).ok());
  CHECK_FALSE(node.Remote(9, RayletOf(2)).ok());
  CHECK(node.Remote(9, {NodeParts::kNode, 7}).ok());
  CHECK_FALSE(node.jobs.OnRemoteJob({FrameKind::kRemoteJob, "\xff"}).ok());
  CHECK(node.jobs.all().empty());
}

SCENARIO("a job of another node has no worker here before something of it comes here") {
  Node node;
  REQUIRE(node.Remote(9, kFarDriver).ok());
  CHECK(node.jobs.OfDriver(kFarDriver) != 0);
  CHECK(node.launcher.started.empty());
}

SCENARIO("the job of an actor that starts here is known for that actor only") {
  Node node;
  proto::StartActor start;
  start.mutable_job()->set_job(9);
  start.mutable_job()->set_driver(kFarDriver.packed());
  start.mutable_job()->mutable_start()->add_argv("train");
  start.mutable_job()->mutable_start()->set_working_dir("/home/u");
  const JobNumber job = node.jobs.AddForActor(start);
  CHECK(node.jobs.AddForActor(start) == job);
  CHECK(node.jobs.Find(job)->only_detached);
  CHECK(node.jobs.Find(job)->program.path() == "/home/u/train");
  CHECK(node.launcher.jobs.at(job) == kFarDriver);
  THEN("its driver can still make it a job like others") {
    REQUIRE(node.Remote(9, kFarDriver).ok());
    CHECK_FALSE(node.jobs.Find(job)->ended);
  }
}

SCENARIO("another node is told of a job once") {
  Node node;
  const ProcessId driver = node.Driver();
  const JobNumber job = node.jobs.OfDriver(driver);
  const auto told = [&] {
    return node.Received<proto::RemoteJob>(RayletOf(2), FrameKind::kRemoteJob);
  };
  node.jobs.TellNode(2, job, /*outlives_driver=*/false);
  node.jobs.TellNode(2, job, /*outlives_driver=*/false);
  const auto messages = told();
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].job() == 5);
  CHECK(messages[0].driver() == driver.packed());
  CHECK(node.jobs.NodesToldOf(driver) == std::vector<NodeNumber>{2});
  node.jobs.TellNode(2, job, /*outlives_driver=*/true);
  CHECK(told().size() == 1);
  node.jobs.OnNodeDead(2, Exited(0));
  CHECK(node.jobs.NodesToldOf(driver).empty());
}

SCENARIO("the sweep ends a job whose driver is gone") {
  Node node;
  const ProcessId driver = node.Driver();
  const JobNumber job = node.jobs.OfDriver(driver);
  CHECK_FALSE(node.jobs.Sweep(job));
  node.processes.erase(driver);
  CHECK(node.jobs.Sweep(job));
  CHECK(node.jobs.all().empty());
  CHECK_FALSE(node.jobs.Sweep(job));
}

SCENARIO("nothing begins after the end") {
  Node node;
  node.Driver();
  node.jobs.Close("the node stops");
  const ProcessId late = node.Attach(ProcessRole::kDriver);
  REQUIRE(node.Start(late).ok());
  const auto started = node.Started(late);
  REQUIRE(started.size() == 1);
  CHECK_THAT(started[0].error(), Catch::Contains("shutting down"));
  REQUIRE(node.Remote(9, kFarDriver).ok());
  CHECK(node.jobs.all().size() == 1);
}

}  // namespace jobs_test
}  // namespace sheaf
