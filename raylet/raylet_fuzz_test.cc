// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Nothing that a process or the GCS sends ends the raylet, and after all have gone nothing is left:
// random bytes, bitten messages, and random histories of processes that live, ask, and die at any
// moment.
#include <catch2/catch.hpp>

#include "raylet/raylet.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {
namespace raylet_fuzz_test {

constexpr FrameKind kKinds[] = {FrameKind::kJobStart,
                                FrameKind::kLeaseDemand,
                                FrameKind::kLeaseReturn,
                                FrameKind::kBlocked,
                                FrameKind::kConnectRequest,
                                FrameKind::kPeerDrained,
                                FrameKind::kRefsReport,
                                FrameKind::kNodeRefsAck,
                                FrameKind::kKillWorker,
                                FrameKind::kGroupRequest,
                                FrameKind::kActorReport,
                                FrameKind::kStateQuery,
                                FrameKind::kStateAnswer,
                                FrameKind::kWorkerReady,
                                FrameKind::kAdoptedQuery,
                                FrameKind::kGcsRequest,
                                FrameKind::kLeaseGrant,
                                FrameKind::kTaskReply,
                                FrameKind{128},
                                FrameKind{129},
                                FrameKind{130},
                                FrameKind{131},
                                FrameKind{132},
                                FrameKind{133},
                                FrameKind{134},
                                FrameKind{137},
                                FrameKind{4711}};

std::string RandomBytes(Random& random, size_t most) {
  std::string bytes(random.Below(most), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Next());
  return bytes;
}

// A message that is well-formed, of random numbers near those in use.
std::string RandomMessage(Random& random, FrameKind kind) {
  const auto process = [&] {
    return ProcessId{static_cast<NodeNumber>(random.Below(3)),
                     static_cast<uint32_t>(random.Below(12))};
  };
  const auto ids = [&] {
    std::string bytes;
    for (uint64_t i = random.Below(5); i > 0; --i) {
      AppendId(&bytes, ObjectId::Make(process(), random.Below(8), 1));
    }
    return bytes;
  };
  if (kind == kStoreHold) {
    const HoldHead head{.ticket = random.Below(8),
                        .caller = process().packed(),
                        .step = static_cast<HoldStep>(random.Below(5)),
                        .count = static_cast<uint32_t>(random.Below(4))};
    std::string body(AsBytes(head));
    for (uint32_t i = 0; i < head.count; ++i) {
      body.append(AsBytes(HeldObject{ObjectId::Make(process(), random.Below(8), 1),
                                     random.OneIn(4) ? random.Next() : random.Below(1 << 23)}));
    }
    return body;
  }
  switch (kind) {
    case FrameKind::kLeaseDemand: {
      proto::LeaseDemand m;
      m.set_key(random.Below(4));
      m.set_wanted(static_cast<uint32_t>(random.OneIn(8) ? random.Next() : random.Below(5)));
      (*m.mutable_spec()->mutable_resources()->mutable_amounts())["CPU"] =
          static_cast<int64_t>(random.OneIn(8) ? random.Next() : random.Below(3) * 10'000);
      m.mutable_spec()->set_actor(random.OneIn(4));
      m.mutable_spec()->set_actor_id(ObjectId::Make(process(), 1).Binary());
      if (random.OneIn(4)) {
        m.mutable_spec()->mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
        m.mutable_spec()->mutable_strategy()->set_group_id(ids().substr(0, 16));
      }
      return m.SerializeAsString();
    }
    case FrameKind::kLeaseReturn: {
      proto::LeaseReturn m;
      m.set_lease(random.Below(40));
      m.set_discard_worker(random.OneIn(3));
      return m.SerializeAsString();
    }
    case FrameKind::kBlocked: {
      proto::Blocked m;
      m.set_blocked(random.OneIn(2));
      return m.SerializeAsString();
    }
    case FrameKind::kConnectRequest:
    case FrameKind::kPeerDrained: {
      proto::ConnectRequest m;  // The same fields.
      m.set_peer(process().packed());
      return m.SerializeAsString();
    }
    case FrameKind::kRefsReport: {
      proto::RefsReport m;
      m.set_sequence(random.Below(50));
      m.set_held_ids(ids());
      m.set_dropped_ids(ids());
      return m.SerializeAsString();
    }
    case FrameKind::kNodeRefsAck: {
      proto::NodeRefsAck m;
      m.set_node(RayletNode::kNode);
      m.set_version(random.Below(20));
      return m.SerializeAsString();
    }
    case FrameKind::kKillWorker: {
      proto::KillWorker m;
      m.set_lease(random.Below(40));
      m.set_process(process().packed());
      return m.SerializeAsString();
    }
    case FrameKind::kGroupRequest: {
      proto::GroupRequest m;
      m.set_action(static_cast<proto::GroupRequest::Action>(random.Below(3)));
      m.set_id(PlacementGroupId::Make(process(), random.Below(3)).Binary());
      for (uint64_t i = random.Below(4); i > 0; --i) {
        (*m.add_bundles()->mutable_amounts())["CPU"] =
            static_cast<int64_t>(random.Below(2) * 10'000);
      }
      m.set_placement(static_cast<proto::GroupRequest::Placement>(random.Below(4)));
      if (random.OneIn(4)) m.set_name("g");
      return m.SerializeAsString();
    }
    case FrameKind::kStateQuery: {
      proto::StateQuery m;
      m.set_what(static_cast<proto::StateQuery::What>(random.Below(9)));
      m.set_id(ObjectId::Make(process(), random.Below(4)).ToHex());
      return m.SerializeAsString();
    }
    case FrameKind::kStateAnswer: {
      proto::StateAnswer m;
      m.set_request(random.Below(30));
      m.add_actors()->set_actor_id("a");
      return m.SerializeAsString();
    }
    case FrameKind::kAdoptedQuery: {
      proto::AdoptedQuery m;
      m.set_ids(ids());
      return m.SerializeAsString();
    }
    default:
      return random.OneIn(2) ? "" : RandomBytes(random, 64);
  }
}

SCENARIO("random bytes of every kind, from every role, end nobody but their sender") {
  const uint64_t seed = GENERATE(range(1, 9));
  SeededRandom random(seed);
  RayletNode node;
  const ProcessId bystander = node.Driver();
  const proto::LeaseGrant grant = node.Lease(bystander);
  const ProcessId driver = node.Driver();
  node.WorkersReady();
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  for (int i = 0; i < 3000; ++i) {
    const ProcessId from = std::array{driver, worker, tool, ProcessId{1, 99}}[random.Below(4)];
    const std::string body = RandomBytes(random, 200);
    node.raylet->OnFrame(from, {kKinds[random.Below(std::size(kKinds))], body});
    node.raylet->OnGcsFrame(
        {random.OneIn(2) ? FrameKind::kGcsReply : FrameKind::kGcsEvent, RandomBytes(random, 60)});
    if (i % 100 == 0) node.Advance(100 * kMillisecond);
  }
  CHECK(node.launcher.WasKilled(worker));  // The launcher does it in its time.
  CHECK_FALSE(node.Received<proto::Shutdown>(driver, FrameKind::kShutdown).empty());
  CHECK(node.Received<proto::Shutdown>(bystander, FrameKind::kShutdown).empty());
}

SCENARIO("every message cut short or bitten is survived") {
  const uint64_t seed = GENERATE(range(1, 9));
  SeededRandom random(seed);
  RayletNode node;
  const ProcessId driver = node.Driver();
  node.WorkersReady();
  for (int i = 0; i < 3000; ++i) {
    const FrameKind kind = kKinds[random.Below(std::size(kKinds))];
    std::string body = RandomMessage(random, kind);
    if (!body.empty()) {
      if (random.OneIn(2)) body.resize(random.Below(body.size()));
      if (!body.empty()) body[random.Below(body.size())] = static_cast<char>(random.Next());
    }
    node.raylet->OnFrame(driver, {kind, body});
    if (i % 50 == 0) node.Advance(100 * kMillisecond);
    if (i % 50 == 0) node.WorkersReady();
  }
  CHECK(node.raylet->figures().Get().drivers == 1);
}

SCENARIO("after any history, when all processes are gone nothing is left") {
  const uint64_t seed = GENERATE(range(1, 61));
  CAPTURE(seed);
  SeededRandom random(seed);
  RayletNode node(Resources::Cpu(3));
  std::vector<ProcessId> alive;
  const auto bury = [&](size_t index) {
    const ProcessId process = alive[index];
    alive.erase(alive.begin() + static_cast<ptrdiff_t>(index));
    node.Exit(process);
    for (const ProcessId peer : alive) {
      if (!random.OneIn(5)) node.Drained(peer, process);
    }
  };
  const auto take_up = [&] {  // Workers that were started come up, or not.
    for (const WorkerSpec& spec : node.launcher.TakeStarted()) {
      if (random.OneIn(6)) {
        proto::Death death;
        death.set_cause(proto::Death::START_FAILED);
        node.raylet->OnExited(spec.process, death);
        continue;
      }
      node.Attach(ProcessRole::kWorker, spec.process);
      alive.push_back(spec.process);
      node.Send(spec.process, FrameKind::kWorkerReady, proto::WorkerReady());
    }
  };
  const auto obey = [&] {  // What is to be killed dies.
    for (const auto& [process, reason] : std::exchange(node.launcher.killed, {})) {
      const auto it = std::find(alive.begin(), alive.end(), process);
      if (it != alive.end()) {
        bury(static_cast<size_t>(it - alive.begin()));
      } else {
        proto::Death death;
        death.set_cause(proto::Death::KILLED);
        node.raylet->OnExited(process, death);
      }
    }
  };
  for (int step = 0; step < 400; ++step) {
    switch (random.Below(12)) {
      case 0:
        if (alive.size() < 8) {
          alive.push_back(node.Attach(ProcessRole::kDriver));
          node.Send(alive.back(), FrameKind::kJobStart, proto::JobStart());
        }
        break;
      case 1:
        take_up();
        break;
      case 2:
        obey();
        break;
      case 3:
        if (!alive.empty() && random.OneIn(3)) bury(random.Below(alive.size()));
        break;
      case 4:
        node.Advance(static_cast<Nanos>(random.Below(300)) * kMillisecond);
        break;
      case 5:
        node.AnswerGcs();
        break;
      default: {
        if (alive.empty()) break;
        const FrameKind kind = kKinds[random.Below(std::size(kKinds))];
        if (kind >= FrameKind::kStoreFirst && kind <= FrameKind::kStoreLast) break;
        const std::string body = RandomMessage(random, kind);
        node.raylet->OnFrame(alive[random.Below(alive.size())], {kind, body});
      }
    }
    const NodeStats stats = node.raylet->figures().Get();
    CHECK(stats.workers.leased + stats.workers.blocked + stats.workers.actor <=
          static_cast<int>(stats.leases) + stats.workers.dying);
  }
  while (!alive.empty()) bury(random.Below(alive.size()));
  for (int i = 0; i < 40; ++i) {
    obey();
    for (const WorkerSpec& spec : node.launcher.TakeStarted()) {
      proto::Death death;
      death.set_cause(proto::Death::START_FAILED);
      node.raylet->OnExited(spec.process, death);
    }
    node.AnswerGcs();
    node.Advance(kSecond);
  }
  const NodeStats stats = node.raylet->figures().Get();
  CHECK(stats.processes == 0);
  CHECK(stats.ended_processes == 0);
  CHECK(stats.leases == 0);
  CHECK(stats.scheduler_queue == 0);
  CHECK(stats.groups == 0);
  CHECK(stats.held_references == 0);
  CHECK(stats.adopted_objects == 0);
  CHECK(stats.workers.starting + stats.workers.idle + stats.workers.dying == 0);
  CHECK(stats.unanswered_gcs_commands == 0);
  CHECK(node.launcher.jobs.empty());
  CAPTURE(stats.last_swept);
  CHECK(stats.swept == 0);
}

}  // namespace raylet_fuzz_test
}  // namespace sheaf
