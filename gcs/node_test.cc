// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Nodes and jobs: tables and services.
#include <catch2/catch.hpp>

#include "base/version.h"
#include "gcs/gcs_world_for_test.h"

namespace sheaf {
namespace node_test {

proto::HeartbeatReply HeartbeatOf(GcsWorld& world, NodeNumber node) {
  proto::GcsRequest request;
  request.mutable_heartbeat()->set_number(7);
  return world.Ask(RayletOf(node), request).heartbeat();
}

proto::NodeInfo Find(GcsWorld& world, NodeNumber asker, NodeNumber node) {
  proto::GcsRequest request;
  request.mutable_list_nodes();
  const proto::GcsReply reply = world.Ask(RayletOf(asker), request);
  for (const proto::NodeInfo& info : reply.nodes().nodes()) {
    if (info.node() == node) return info;
  }
  return {};
}

SCENARIO("the states of a node and of a job only go forwards") {
  using N = proto::NodeInfo;
  CHECK(Next(N::ALIVE, NodeEvent::kDrain) == N::DRAINING);
  CHECK(Next(N::DRAINING, NodeEvent::kDrain) == std::nullopt);
  CHECK(Next(N::DRAINING, NodeEvent::kEnd) == N::DEAD);
  using J = proto::JobInfo;
  CHECK(Next(J::RUNNING, JobEvent::kFailed) == J::FAILED);
  CHECK(Next(J::FINISHED, JobEvent::kFailed) == std::nullopt);
}

SCENARIO("new work goes to the preferred node if that is well, else to the lowest that is") {
  NodeTable table;
  const auto put = [&](NodeNumber node, proto::NodeInfo::State state, bool suspect = false) {
    proto::NodeInfo info;
    info.set_node(node);
    info.set_state(state);
    info.set_suspect(suspect);
    table.Put(info);
  };
  CHECK(table.Pick(1) == std::nullopt);
  put(1, proto::NodeInfo::DEAD);
  put(2, proto::NodeInfo::ALIVE, /*suspect=*/true);
  put(3, proto::NodeInfo::DRAINING);
  CHECK(table.Pick(2) == std::nullopt);
  put(4, proto::NodeInfo::ALIVE);
  put(5, proto::NodeInfo::ALIVE);
  CHECK(table.Pick(5) == 5);
  CHECK(table.Pick(1) == 4);
  CHECK(table.members() == 4);
}

SCENARIO("what becomes of nodes and jobs are events") {
  using E = proto::EventRow;
  GcsWorld world;
  const NodeNumber stays = world.AddNode();
  const NodeNumber leaves = world.AddNode();
  const JobNumber job = world.AddJob(stays);
  proto::GcsRequest finish;
  finish.mutable_finish_job()->set_job(job);
  world.Ask({stays, 1}, finish);
  proto::GcsRequest drain;
  drain.mutable_unregister_node()->set_drain_only(true);
  world.Ask(RayletOf(leaves), drain);
  proto::GcsRequest leave;
  leave.mutable_unregister_node();
  world.Ask(RayletOf(leaves), leave);
  proto::GcsRequest list;
  list.mutable_list_events();
  std::vector<E::Kind> kinds;
  const proto::GcsReply reply = world.Ask(RayletOf(stays), list);
  for (const E& event : reply.events().events()) kinds.push_back(event.kind());
  CHECK(kinds == std::vector<E::Kind>{E::NODE_JOINED, E::NODE_JOINED, E::JOB_STATE, E::JOB_STATE,
                                      E::NODE_DRAINING, E::NODE_LEFT});
  CHECK(reply.events().events(3).message().find("FINISHED") != std::string::npos);
  CHECK(reply.events().events(5).node() == leaves);
  const GcsStats stats = world.service().Stats();
  CHECK(stats.jobs_told == std::array<uint64_t, 3>{1, 1, 0});
  CHECK(stats.node_deaths == 0);  // It left.
}

SCENARIO("node numbers are never given twice, not even across a restart") {
  GcsWorld world;
  CHECK(world.AddNode() == 1);
  CHECK(world.AddNode() == 2);
  world.Restart();
  CHECK(world.AddNode() == 3);
  world.storage().full = true;
  CHECK(world.AddNode() == 0);
  world.storage().full = false;
  CHECK(world.AddNode() == 5);  // 4 may have been heard by nobody, or not.
}

SCENARIO("a raylet that asks again gets the same number") {
  GcsWorld world;
  proto::GcsRequest request;
  request.mutable_register_node()->set_nonce("0123456789abcdef");
  request.mutable_register_node()->set_version(std::string(kSheafVersion));
  CHECK(world.Ask({0, 1}, request).node_registered().node() == 1);
  CHECK(world.Ask({0, 2}, request).node_registered().node() == 1);
  world.Restart();
  const proto::NodeRegistered registered = world.Ask({0, 3}, request).node_registered();
  CHECK(registered.node() == 1);
  CHECK(registered.term() == 2);
  CHECK(registered.cluster_id() == world.service().cluster_id());
  CHECK(registered.cluster_id().size() == 16);
  WHEN("its version is another") {
    request.mutable_register_node()->set_version("9.9");
    CHECK(Is(world.Ask({0, 1}, request), ErrorKind::kInvalidArgument));
  }
}

SCENARIO(
    "a node without heartbeats is suspect, then dead, and what it says afterwards is refused") {
  GcsWorld world;
  const NodeNumber silent = world.AddNode();
  const NodeNumber other = world.AddNode();
  world.Pass(1500 * kMillisecond, {other});
  CHECK(Find(world, other, silent).suspect());
  WHEN("it is heard again") {
    CHECK_FALSE(HeartbeatOf(world, silent).fenced());
    CHECK_FALSE(Find(world, other, silent).suspect());
  }
  WHEN("it stays silent") {
    world.Pass(4 * kSecond, {other});
    CHECK(Find(world, other, silent).state() == proto::NodeInfo::DEAD);
    CHECK(HeartbeatOf(world, silent).fenced());
    CHECK(HeartbeatOf(world, silent).lease_ns() == 0);
    CHECK(Is(world.Ask({silent, 1}, KvPut("key", "value")), ErrorKind::kNodeDied));
    world.Restart();
    CHECK(HeartbeatOf(world, silent).fenced());
    CHECK_FALSE(HeartbeatOf(world, other).fenced());
  }
}

SCENARIO("nodes have longer to come back to a head that was away than to fall silent") {
  GcsWorld world({.return_within = 15 * kSecond});
  const NodeNumber late = world.AddNode();
  const NodeNumber lost = world.AddNode();
  const NodeNumber other = world.AddNode();
  world.Restart();
  const auto state = [&](NodeNumber node) { return Find(world, other, node).state(); };
  world.ReportNode(other);
  world.Pass(14 * kSecond, {other});
  // What no node has reported is not taken for lost before the last of them may be.
  CHECK(world.service().recovering());
  world.ReportNode(late);
  world.Pass(kSecond, {late, other});
  CHECK_FALSE(world.service().recovering());
  CHECK(state(late) == proto::NodeInfo::ALIVE);
  CHECK(state(lost) == proto::NodeInfo::DEAD);
  world.Pass(6 * kSecond, {other});
  CHECK(state(late) == proto::NodeInfo::DEAD);
}

SCENARIO("no node goes because it does not hear those that died before the GCS began") {
  GcsWorld world({.return_within = 15 * kSecond});
  const NodeNumber lost = world.AddNode();
  const NodeNumber also_lost = world.AddNode();
  const NodeNumber living = world.AddNode();
  world.Restart();
  world.ReportNode(living);
  for (int second = 0; second < 16; ++second) {
    for (const NodeNumber about : {lost, also_lost}) {
      proto::GcsRequest unheard;
      unheard.mutable_unregister_node()->set_node(about);
      world.Ask({living, 0}, unheard);
    }
    world.Pass(kSecond, {living});
    REQUIRE_FALSE(HeartbeatOf(world, living).fenced());
  }
  CHECK(Find(world, living, lost).state() == proto::NodeInfo::DEAD);
  CHECK(Find(world, living, living).state() == proto::NodeInfo::ALIVE);
}

SCENARIO("whatever a node says is a sign of life") {
  GcsWorld world;
  const NodeNumber talker = world.AddNode();
  const NodeNumber other = world.AddNode();
  for (int step = 0; step < 70; ++step) {
    world.Pass(100 * kMillisecond, {other});
    if (step % 5 == 0) world.Ask({talker, 1}, KvGet("key"));
    REQUIRE_FALSE(Find(world, other, talker).suspect());
  }
  CHECK(Find(world, other, talker).state() == proto::NodeInfo::ALIVE);
}

SCENARIO("a full disk does not keep a death from being known") {
  GcsWorld world;
  const NodeNumber silent = world.AddNode();
  const NodeNumber other = world.AddNode();
  world.storage().full = true;
  world.Pass(6 * kSecond, {other});
  CHECK(Find(world, other, silent).state() == proto::NodeInfo::DEAD);
  CHECK(world.AddNode() == 0);  // What nobody waits for is refused.
}

SCENARIO("a death that does not get to disk is decided all the same, and recorded later") {
  GcsWorld world;
  const NodeNumber silent = world.AddNode();
  const NodeNumber other = world.AddNode();
  world.storage().full = world.storage().no_reserve = true;
  world.Pass(6 * kSecond, {other});
  CHECK(HeartbeatOf(world, silent).fenced());
  CHECK(Find(world, other, silent).state() == proto::NodeInfo::ALIVE);
  world.storage().full = false;
  world.Pass(200 * kMillisecond, {other});
  CHECK(Find(world, other, silent).state() == proto::NodeInfo::DEAD);
}

SCENARIO("a lease ends before its node is declared dead, and a heartbeat tells term and lease") {
  const GcsOptions options;
  CHECK(options.lease < options.dead_after);
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const proto::HeartbeatReply reply = HeartbeatOf(world, node);
  CHECK(reply.number() == 7);
  CHECK(reply.term() == 1);
  CHECK(reply.lease_ns() == options.lease);
}

SCENARIO("a node leaves, drains, or is replaced by the next one on its machine") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const NodeNumber other = world.AddNode();
  proto::GcsRequest leave;
  WHEN("it drains first") {
    leave.mutable_unregister_node()->set_drain_only(true);
    world.Ask(RayletOf(node), leave);
    CHECK(Find(world, other, node).state() == proto::NodeInfo::DRAINING);
    CHECK_FALSE(HeartbeatOf(world, node).fenced());
  }
  WHEN("another node asks that it drains, and it has nothing left to do") {
    leave.mutable_unregister_node()->set_drain_only(true);
    leave.mutable_unregister_node()->set_node(node);
    CHECK(world.Ask(RayletOf(other), leave).error() == 0);
    CHECK(Find(world, other, node).state() == proto::NodeInfo::DRAINING);
    CHECK(Find(world, other, other).state() == proto::NodeInfo::ALIVE);
    CHECK_FALSE(Find(world, other, node).drained());
    proto::GcsRequest heartbeat;
    heartbeat.mutable_heartbeat()->set_drained(true);
    world.Ask(RayletOf(node), heartbeat);
    CHECK(Find(world, other, node).drained());
  }
  WHEN("another node says once that it does not hear it") {
    leave.mutable_unregister_node()->set_node(node);
    CHECK(world.Ask(RayletOf(other), leave).error() == 0);
    world.Pass(10 * kSecond, {node, other});
    CHECK(Find(world, other, node).state() == proto::NodeInfo::ALIVE);
  }
  WHEN("another node says again and again that it does not hear it") {
    leave.mutable_unregister_node()->set_node(node);
    for (int second = 0; second < 4; ++second) {
      world.Ask(RayletOf(other), leave);
      world.Pass(kSecond, {node, other});
    }
    CHECK(Find(world, node, node).state() == proto::NodeInfo::ALIVE);  // The lower number stays.
    CHECK(HeartbeatOf(world, other).fenced());
    CHECK(Find(world, node, other).state() == proto::NodeInfo::ALIVE);  // Its last lease runs.
    world.Pass(4 * kSecond, {node, other});
    CHECK(Find(world, node, other).state() == proto::NodeInfo::DEAD);
    CHECK_THAT(Find(world, node, other).death(), Catch::Contains("do not hear each other"));
  }
  WHEN("another node asks for a node that is not there") {
    leave.mutable_unregister_node()->set_drain_only(true);
    leave.mutable_unregister_node()->set_node(99);
    const proto::GcsReply reply = world.Ask(RayletOf(other), leave);
    CHECK_THAT(reply.message(), Catch::StartsWith("no node 99 is in the cluster"));
    CHECK(Find(world, other, node).state() == proto::NodeInfo::ALIVE);
  }
  WHEN("it leaves") {
    leave.mutable_unregister_node();
    world.Ask(RayletOf(node), leave);
    CHECK(Find(world, other, node).state() == proto::NodeInfo::DEAD);
    CHECK(Find(world, other, node).death() == "left");
  }
  WHEN("it is replaced") {
    const NodeNumber next = world.AddNode(/*replaces=*/node);
    CHECK(Find(world, next, node).state() == proto::NodeInfo::DEAD);
  }
}

SCENARIO("dead nodes are remembered up to a bound") {
  GcsWorld world({.max_remembered = 3});
  NodeNumber last = world.AddNode();
  for (int i = 0; i < 10; ++i) last = world.AddNode(/*replaces=*/last);
  world.Pass(100 * kMillisecond, {last});
  proto::GcsRequest list;
  list.mutable_list_nodes();
  CHECK(world.Ask(RayletOf(last), list).nodes().nodes_size() == 4);
  CHECK(HeartbeatOf(world, 1).fenced());
  CHECK(world.AddNode() == last + 1);
}

SCENARIO("a driver has one job, with a number that is never given twice") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  CHECK(world.AddJob(node, 1) == 1);
  CHECK(world.AddJob(node, 1) == 1);
  CHECK(world.AddJob(node, 2) == 2);
  world.Restart();
  CHECK(world.AddJob(node, 2) == 2);
  CHECK(world.AddJob(node, 3) == 3);
}

SCENARIO("a job ends when its driver says so, when that ends, or when the node dies") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  const NodeNumber other = world.AddNode();
  const JobNumber job = world.AddJob(node, 1);
  const auto state = [&] {
    proto::GcsRequest list;
    list.mutable_list_jobs();
    return world.Ask(RayletOf(other), list).jobs().jobs(0).state();
  };
  CHECK(state() == proto::JobInfo::RUNNING);
  WHEN("it finishes") {
    proto::GcsRequest finish;
    finish.mutable_finish_job()->set_job(job);
    CHECK(Is(world.Ask({other, 1}, finish), ErrorKind::kInvalidArgument));
    CHECK(Is(world.Ask({node, 1}, finish), ErrorKind::kNone));
    CHECK(state() == proto::JobInfo::FINISHED);
  }
  WHEN("its driver crashes") {
    proto::GcsRequest gone;
    gone.mutable_process_gone()->set_process(ProcessId{node, 1}.packed());
    gone.mutable_process_gone()->mutable_death()->set_cause(proto::Death::SIGNALLED);
    world.Ask(RayletOf(other), gone);
    CHECK(state() == proto::JobInfo::RUNNING);  // Not that node's process.
    world.Ask(RayletOf(node), gone);
    CHECK(state() == proto::JobInfo::FAILED);
  }
  WHEN("its node dies") {
    world.Pass(6 * kSecond, {other});
    CHECK(state() == proto::JobInfo::FAILED);
  }
  WHEN("its driver ended while no GCS ran") {
    world.Restart();
    world.ReportNode(node);
    world.ReportNode(other);
    CHECK(state() == proto::JobInfo::FAILED);
  }
  WHEN("the disk is full") {
    world.storage().full = true;
    world.Pass(6 * kSecond, {other});
    CHECK(state() == proto::JobInfo::FAILED);
  }
  WHEN("the end does not get to disk at first") {
    world.storage().full = world.storage().no_reserve = true;
    world.Pass(6 * kSecond, {other});
    world.storage().full = false;
    world.Pass(300 * kMillisecond, {other});
    CHECK(state() == proto::JobInfo::FAILED);
  }
}

SCENARIO("listings do not show a job's environment") {
  GcsWorld world;
  const NodeNumber node = world.AddNode();
  proto::GcsRequest request;
  request.mutable_register_job()->set_driver(ProcessId{node, 1}.packed());
  request.mutable_register_job()->mutable_start()->add_environ("SECRET=1");
  request.mutable_register_job()->mutable_start()->set_entrypoint("train.py");
  CHECK(world.Ask({node, 1}, request).job_registered().name_space() == "job-1");
  proto::GcsRequest list;
  list.mutable_list_jobs();
  const proto::JobInfo job = world.Ask({node, 1}, list).jobs().jobs(0);
  CHECK(job.start().entrypoint() == "train.py");
  CHECK(job.start().environ_size() == 0);
}

}  // namespace node_test
}  // namespace sheaf
