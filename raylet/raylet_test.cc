// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Jobs, leases and connections, seen from the processes.
#include "raylet/raylet.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/environment.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace raylet_test {

SCENARIO("workers start before the GCS has registered the job") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.Send(driver, FrameKind::kJobStart, proto::JobStart());
  CHECK(node.launcher.started.size() == 2);
  CHECK(node.launcher.jobs.size() == 1);
  CHECK(node.Received<proto::JobStarted>(driver, FrameKind::kJobStarted).empty());
  node.AnswerGcs();
  const auto started = node.Received<proto::JobStarted>(driver, FrameKind::kJobStarted);
  REQUIRE(started.size() == 1);
  CHECK(started[0].job() == 1);
  CHECK(started[0].name_space() == "space");
  CHECK(started[0].error().empty());
  THEN("a repeat is answered again and starts nothing") {
    node.Send(driver, FrameKind::kJobStart, proto::JobStart());
    CHECK(node.Received<proto::JobStarted>(driver, FrameKind::kJobStarted).size() == 1);
    CHECK(node.launcher.started.size() == 2);
  }
}

SCENARIO("of a driver's environment the launcher gets all and the GCS what others may know") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  proto::JobStart start;
  for (const char* one : {"AWS_SECRET_ACCESS_KEY=secret", "PYTHONPATH=/code", "HOME=/root"})
    start.add_environ(one);
  node.Send(driver, FrameKind::kJobStart, start);
  REQUIRE(node.launcher.starts.size() == 1);
  CHECK(node.launcher.starts.begin()->second.environ_size() == 3);
  const auto registered = node.Asked(proto::GcsRequest::kRegisterJob);
  REQUIRE(registered.size() == 1);
  REQUIRE(registered[0].register_job().start().environ_size() == 1);
  CHECK(registered[0].register_job().start().environ(0) == "PYTHONPATH=/code");
}

SCENARIO("the GCS refuses a job") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.AnswerGcs();
  node.Send(driver, FrameKind::kJobStart, proto::JobStart());
  const auto requests = node.transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest);
  REQUIRE(requests.size() == 1);
  proto::GcsReply reply;
  reply.set_client(requests[0].client());
  reply.set_sequence(requests[0].sequence());
  reply.set_error(static_cast<uint32_t>(ErrorKind::kGcsStorageFull));
  reply.set_message("the disk is full");
  const std::string body = reply.SerializeAsString();
  node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
  const auto started = node.Received<proto::JobStarted>(driver, FrameKind::kJobStarted);
  REQUIRE(started.size() == 1);
  CHECK(started[0].error() == "the disk is full");
  CHECK(node.launcher.killed.size() == 2);
  CHECK(node.launcher.jobs.empty());
}

SCENARIO("a lease from demand to grant to return") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.WorkersReady();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  CHECK(grant.key() == 1);
  CHECK(node.switchboard.AreJoined(driver, worker));
  const auto begins = node.Received<proto::LeaseBegin>(worker, FrameKind::kLeaseBegin);
  REQUIRE(begins.size() == 1);
  CHECK(begins[0].lease() == grant.lease());
  CHECK(begins[0].owner() == driver.packed());
  CHECK(begins[0].job() == 1);
  CHECK(begins[0].spec().name() == "f");

  node.Demand(driver, 1, 0);
  GIVEN("a return by another") {
    node.Return(node.Driver(), grant.lease());
    CHECK(node.raylet->figures().Get().leases == 1);
  }
  node.Return(driver, grant.lease());
  CHECK(node.raylet->figures().Get().leases == 0);
  const auto ends = node.Received<proto::LeaseEnd>(worker, FrameKind::kLeaseEnd);
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].lease() == grant.lease());
  node.Return(driver, grant.lease());  // A repeat.
  CHECK(node.launcher.killed.empty());
  THEN("the worker is used again") { CHECK(node.Lease(driver, 2).worker() == grant.worker()); }
}

SCENARIO("workers have the environment of their job, and what the task sets for itself over it") {
  RayletNode node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  proto::JobStart start;
  start.set_default_environment(EncodeEnvironment({{{"A", "1"}, {"B", "2"}}, {}}).value());
  node.Send(driver, FrameKind::kJobStart, start);
  node.AnswerGcs();
  node.Demand(driver, 1, 1);
  const auto started = node.launcher.TakeStarted();
  REQUIRE(!started.empty());
  for (const WorkerSpec& spec : started) CHECK(spec.environment == start.default_environment());
  proto::LeaseDemand demand;
  demand.set_key(2);
  demand.set_wanted(1);
  demand.set_backlog(1);
  demand.set_backlog(1);
  (*demand.mutable_spec()->mutable_resources()->mutable_amounts())["CPU"] = kUnit;
  demand.mutable_spec()->set_environment(EncodeEnvironment({{{"B", "3"}}, {}}).value());
  node.Send(driver, FrameKind::kLeaseDemand, demand);
  const auto more = node.launcher.TakeStarted();
  REQUIRE(!more.empty());
  CHECK(more.back().environment == EncodeEnvironment({{{"A", "1"}, {"B", "3"}}, {}}).value());
}

SCENARIO("no more leases than there are CPUs; a returned one goes to who waits") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.WorkersReady();
  node.Demand(driver, 1, 5);
  auto grants = node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant);
  REQUIRE(grants.size() == 2);
  CHECK(node.raylet->figures().Get().scheduler_queue == 3);
  const ProcessId other = node.Driver();
  node.Demand(other, 1, 1);
  node.Demand(driver, 1, 1);
  node.Return(driver, grants[0].lease());
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(other, FrameKind::kLeaseGrant).size() == 1);
}

SCENARIO("a discarded worker is told to leave, and ended if it says that it does and does not") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  node.Demand(driver, 1, 0);
  node.Return(driver, grant.lease(), /*discard=*/true);
  const auto told = node.Received<proto::Shutdown>(worker, FrameKind::kShutdown);
  REQUIRE(told.size() == 1);
  CHECK(told[0].when() == proto::Shutdown::ONCE_FREE);
  CHECK(node.raylet->figures().Get().leases == 0);  // Others have its CPU meanwhile.
  CHECK_FALSE(node.launcher.WasKilled(worker));
  node.Send(worker, FrameKind::kGoodbye, proto::Goodbye());
  node.Advance(WorkerPool::kLastSteps + kSecond);
  CHECK(node.launcher.WasKilled(worker));
}

SCENARIO(
    "a discarded worker with memory of its own lends its CPUs and keeps its lease until it is "
    "gone") {
  Resources totals = Resources::Cpu(1);
  totals.Set("memory", 1000);
  RayletNode node(totals);
  const ProcessId driver = node.Driver();
  proto::LeaseDemand demand;
  demand.set_key(1);
  demand.set_wanted(1);
  demand.set_backlog(1);
  totals.ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
  node.Send(driver, FrameKind::kLeaseDemand, demand);
  node.WorkersReady();
  const auto grants = node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant);
  REQUIRE(grants.size() == 1);
  const ProcessId worker = ProcessId::Unpack(grants[0].worker());
  demand.set_wanted(0);
  demand.clear_spec();
  node.Send(driver, FrameKind::kLeaseDemand, demand);
  node.Return(driver, grants[0].lease(), /*discard=*/true);
  CHECK(node.Received<proto::LeaseEnd>(worker, FrameKind::kLeaseEnd).size() == 1);
  const bool is_owner = GENERATE(false, true);
  const ProcessId other = is_owner ? driver : node.Driver();
  node.Demand(other, 2, 1);
  node.Advance(kSecond);
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(other, FrameKind::kLeaseGrant).size() == 1);
  node.Advance(5 * kSecond);
  CHECK(node.Received<proto::LeaseRevoke>(worker, FrameKind::kLeaseRevoke).empty());
  CHECK(node.Received<proto::LeaseRevoke>(driver, FrameKind::kLeaseRevoke).empty());
  CHECK(node.raylet->figures().Get().leases == 2);
  CHECK_FALSE(node.launcher.WasKilled(worker));
}

SCENARIO("only the lessee can have a worker killed") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  const ProcessId other = node.Driver();
  const proto::LeaseGrant grant = node.Lease(driver);
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  proto::KillWorker kill;
  kill.set_lease(grant.lease());
  kill.set_process(grant.worker());
  kill.set_reason("cancelled");
  node.Send(other, FrameKind::kKillWorker, kill);
  CHECK_FALSE(node.launcher.WasKilled(worker));
  proto::KillWorker wrong = kill;
  wrong.set_process(driver.packed());
  node.Send(driver, FrameKind::kKillWorker, wrong);
  CHECK(node.launcher.killed.empty());
  node.Send(driver, FrameKind::kKillWorker, kill);
  CHECK(node.launcher.WasKilled(worker));
}

SCENARIO(
    "of two processes whose rings are damaged the workers end, and nobody else's word counts") {
  RayletNode node(Resources::Cpu(2));
  const ProcessId driver = node.Driver();
  const ProcessId worker = ProcessId::Unpack(node.Lease(driver).worker());
  const ProcessId stranger = node.Driver();
  proto::KillWorker damaged;
  damaged.set_process(worker.packed());
  damaged.set_reason("the rings are damaged");
  node.Send(stranger, FrameKind::kKillWorker, damaged);
  CHECK(node.launcher.killed.empty());
  SECTION("the program says so") {
    node.Send(driver, FrameKind::kKillWorker, damaged);
    CHECK(node.launcher.WasKilled(worker));
  }
  SECTION("the worker says so") {
    damaged.set_process(driver.packed());
    node.Send(worker, FrameKind::kKillWorker, damaged);
    CHECK(node.launcher.WasKilled(worker));
  }
}

SCENARIO("a worker that blocks lends its CPU after a few milliseconds, another stands in") {
  RayletNode node(Resources::Cpu(1));
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 2);
  node.WorkersReady();
  const auto grants = node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant);
  REQUIRE(grants.size() == 1);
  const ProcessId worker = ProcessId::Unpack(grants[0].worker());
  proto::Blocked blocked;
  blocked.set_blocked(true);
  node.Send(worker, FrameKind::kBlocked, blocked);
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).empty());
  node.Advance(10 * kMillisecond, kMillisecond);
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).size() == 1);
  blocked.set_blocked(false);
  node.Send(worker, FrameKind::kBlocked, blocked);
  CHECK(node.raylet->figures().Get().workers.blocked == 0);
  CHECK(node.raylet->figures().Get().leases == 2);
}

SCENARIO("what no node can hold gets a notice, not silence") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 1, 64);
  const auto refused = node.Received<proto::LeaseRefused>(driver, FrameKind::kLeaseRefused);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].error() == static_cast<uint32_t>(ErrorKind::kNone));
  CHECK_FALSE(refused[0].message().empty());
}

SCENARIO("workers that cannot be started become an error of the demand") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.launcher.error = absl::ResourceExhaustedError("too many processes");
  node.launcher.started.clear();
  proto::LeaseDemand demand;
  demand.set_key(1);
  demand.set_wanted(1);
  demand.set_backlog(1);
  demand.mutable_spec()->set_environment("other");
  node.Send(driver, FrameKind::kLeaseDemand, demand);
  node.Advance(10 * kSecond);
  const auto refused = node.Received<proto::LeaseRefused>(driver, FrameKind::kLeaseRefused);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].error() == static_cast<uint32_t>(ErrorKind::kSystem));
  CHECK_THAT(refused[0].message(), Catch::Contains("too many processes"));
  CHECK(node.raylet->figures().Get().leases == 0);
}

SCENARIO("the kernel refuses a ring: an error, not a loop of workers") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.WorkersReady();
  node.switchboard.error = absl::ResourceExhaustedError("no descriptors");
  node.Demand(driver, 1, 1);
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).empty());
  const auto refused = node.Received<proto::LeaseRefused>(driver, FrameKind::kLeaseRefused);
  REQUIRE(refused.size() == 1);
  CHECK_THAT(refused[0].message(), Catch::Contains("no descriptors"));
}

SCENARIO("an actor whose worker is gone when it is to meet its owner gets another one") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.WorkersReady();
  node.switchboard.error = absl::NotFoundError("the worker is gone");
  proto::LeaseDemand demand;
  demand.set_key(1);
  demand.set_wanted(1);
  demand.set_backlog(1);
  demand.set_backlog(1);
  Resources::Cpu(1).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
  demand.mutable_spec()->set_actor(true);
  demand.mutable_spec()->set_actor_id(ActorId{driver.packed(), 1}.Binary());
  node.Send(driver, FrameKind::kLeaseDemand, demand);
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).empty());
  node.switchboard.error = absl::OkStatus();
  node.ExitKilled();
  node.WorkersReady();
  CHECK(node.Received<proto::LeaseGrant>(driver, FrameKind::kLeaseGrant).size() == 1);
}

SCENARIO(
    "two processes are joined on request; the dead and the unknown are refused with their death") {
  RayletNode node;
  const ProcessId a = node.Driver();
  const ProcessId b = node.Driver();
  const ProcessId dead = node.Driver();
  node.Exit(dead, proto::Death::SIGNALLED, 11);
  const auto ask = [&](ProcessId peer) {
    proto::ConnectRequest request;
    request.set_peer(peer.packed());
    node.Send(a, FrameKind::kConnectRequest, request);
    return node.Received<proto::ConnectRefused>(a, FrameKind::kConnectRefused);
  };
  CHECK(ask(b).empty());
  CHECK(node.switchboard.AreJoined(a, b));
  auto refused = ask(dead);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].peer() == dead.packed());
  CHECK(refused[0].death().cause() == proto::Death::SIGNALLED);
  CHECK(refused[0].death().code() == 11);
  refused = ask({9, 9});
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].death().cause() == proto::Death::NODE_DIED);
  CHECK(ask({RayletNode::kNode, 4711}).size() == 1);
}

SCENARIO("requests to the GCS and its answers pass through, under the true name") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  proto::GcsRequest request;
  request.set_sequence(5);
  request.mutable_list_nodes();
  node.Send(driver, FrameKind::kGcsRequest, request);
  node.AnswerGcs();
  CHECK(node.gcs_requests.back().client() == driver.packed());
  const auto replies = node.Received<proto::GcsReply>(driver, FrameKind::kGcsReply);
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].sequence() == 5);
}

SCENARIO("a node that ends refuses nothing to owners elsewhere: their raylets look further") {
  RayletNode node;
  const ProcessId far{2, 1};
  const auto from_node_2 = [&](FrameKind kind, const std::string& body) {
    node.raylet->OnRemoteFrame(RayletOf(2), RayletOf(RayletNode::kNode), Lane::kControl,
                               {kind, body});
  };
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
  REQUIRE(node.raylet->figures().Get().leases == 1);  // Its worker is being started.
  node.raylet->Shutdown("told to end");
  CHECK(node.transport.Take<proto::LeaseRefused>(far, FrameKind::kLeaseRefused).empty());
}

SCENARIO("a node that the GCS has yet to describe is heard, also when a newer one has spoken") {
  RayletNode node;
  node.AddNode(2, "CPU:1");
  const auto asks = [&](NodeNumber number) {
    const ProcessId driver{number, 1};
    proto::RemoteJob job;
    job.set_job(number);
    job.set_driver(driver.packed());
    node.FromNode(number, FrameKind::kRemoteJob, job);
    proto::SpillbackDemand demand;
    demand.set_owner(driver.packed());
    demand.set_driver(driver.packed());
    demand.set_hops(1);
    demand.mutable_demand()->set_key(1);
    demand.mutable_demand()->set_wanted(1);
    Resources::Cpu(1).ToMap(
        *demand.mutable_demand()->mutable_spec()->mutable_resources()->mutable_amounts());
    node.FromNode(number, FrameKind::kSpillbackDemand, demand);
  };
  asks(4);
  CHECK(node.raylet->figures().Get().leases == 1);
  asks(3);
  CHECK(node.raylet->figures().Get().leases == 2);
  node.AddNode(6, "CPU:1");
  asks(5);  // Described and forgotten, for all that is known here.
  CHECK(node.raylet->figures().Get().leases == 2);
}

SCENARIO("a report that the GCS does not answer is sent again as things are by then") {
  RayletNode node;
  const ProcessId first = node.Driver();
  proto::GcsEvent restarted;
  restarted.set_client(RayletOf(RayletNode::kNode).packed());
  restarted.mutable_restarted()->set_term(2);
  node.GcsSays(restarted);
  const ProcessId second = node.Attach(ProcessRole::kDriver);
  node.Advance(GcsLink::kResendAfter + 100 * kMillisecond);
  const auto reports = node.Asked(proto::GcsRequest::kNodeReport);
  REQUIRE(reports.size() == 2);
  const auto processes = [&](size_t i) {
    const auto& listed = reports[i].node_report().processes();
    return std::vector<uint64_t>(listed.begin(), listed.end());
  };
  CHECK(processes(0) == std::vector{first.packed()});
  CHECK(processes(1) == std::vector{first.packed(), second.packed()});
  CHECK(reports[0].sequence() == reports[1].sequence());
}

SCENARIO("work goes to another node as soon as the GCS says that it has room") {
  RayletNode node;
  node.AddNode(2, "CPU:4");
  const auto says = [&](NodeNumber number, double cpus) {
    proto::NodeLoads loads;
    proto::LoadColumn& column = *loads.add_columns();
    column.set_resource("CPU");
    column.set_unit(1);
    column.add_nodes(number);
    column.add_amounts(Resources::Cpu(cpus).cpu());
    node.NodesHaveFree(loads.SerializeAsString());
  };
  const auto handed = [&] {
    std::vector<proto::SpillbackDemand> demands;
    for (const SentFrame& frame : node.transport.Take(RayletOf(2))) {
      if (frame.kind == FrameKind::kSpillbackDemand)
        demands.push_back(frame.As<proto::SpillbackDemand>());
    }
    return demands;
  };
  says(2, 0);
  const ProcessId driver = node.Driver();
  node.Demand(driver, 1, 9);
  node.NodesHaveFree("\xff\xff");
  says(3, 4);  // Nobody announced it.
  CHECK(handed().empty());
  CHECK(node.transport.Take(RayletOf(3)).empty());
  says(2, 3);
  const auto demands = handed();
  REQUIRE(demands.size() == 1);
  CHECK(demands[0].demand().wanted() == 3);
}

SCENARIO("a node that leaves says so once, and no more of itself") {
  RayletNode node;
  node.Advance(kSecond);
  node.raylet->Shutdown("the node ends");
  const size_t heartbeats = node.Asked(proto::GcsRequest::kHeartbeat).size();
  node.raylet->Leave();
  CHECK_FALSE(node.raylet->has_left());
  const auto asked = node.Asked(proto::GcsRequest::kUnregisterNode);
  REQUIRE(asked.size() == 1);
  CHECK_FALSE(asked[0].unregister_node().drain_only());
  CHECK(node.raylet->has_left());
  node.Advance(3 * kSecond);
  CHECK(node.Asked(proto::GcsRequest::kHeartbeat).size() == heartbeats);
}

SCENARIO("heartbeats go out each period; a fenced node ends") {
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.Advance(3 * kSecond);
  const auto heartbeats = node.Asked(proto::GcsRequest::kHeartbeat);
  REQUIRE(heartbeats.size() >= 3);
  CHECK(heartbeats.back().heartbeat().number() > heartbeats.front().heartbeat().number());
  proto::GcsReply reply;
  reply.set_client(RayletOf(RayletNode::kNode).packed());
  reply.mutable_heartbeat()->set_fenced(true);
  const std::string body = reply.SerializeAsString();
  node.raylet->OnGcsFrame({FrameKind::kGcsReply, body});
  CHECK(node.raylet->fenced());
  CHECK(node.Received<proto::Shutdown>(driver, FrameKind::kShutdown).size() == 1);
  CHECK(node.launcher.killed.size() == 2);
}

}  // namespace raylet_test
}  // namespace sheaf
