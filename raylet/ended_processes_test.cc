// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// When nothing is left of a dead process.
#include "raylet/ended_processes.h"

#include <catch2/catch.hpp>

#include "object_store/store_node_for_test.h"
#include "raylet/node_parts_for_test.h"
#include "raylet/objects/fake_block_source.h"

namespace sheaf {
namespace ended_processes_test {

struct Node : NodeParts {
  StoreNode store{8 * kMiB, {.node = kNode}};
  FakeBlockSource blocks;
  InlineExecutor copier;
  StoreEvents store_events;
  NodeObjects objects{
      {.node = kNode,
       .clock = clock,
       .transport = transport,
       .store = *store.server,
       .store_events = store_events,
       .metrics = page,
       .blocks = blocks,
       .loop = store.loop,
       .copier = copier,
       .view = view,
       .deaths = deaths,
       .is_draining = [this](ProcessId process) { return ended.IsDraining(process); },
       .on_violation = nullptr}};
  EndedProcesses ended{{.drain_limit = 10 * kSecond,
                        .clock = clock,
                        .transport = transport,
                        .launcher = launcher,
                        .switchboard = switchboard,
                        .deaths = deaths,
                        .objects = objects}};

  void Ends(ProcessId process, bool exited, const absl::btree_set<ProcessId>& undrained) {
    const AttachedProcess was = processes.at(process);
    processes.erase(process);
    ended.Add(process, was, exited, undrained);
    ended.OnPeersGone([process](ProcessId peer) { return peer == process; });
  }
  bool IsForgotten(ProcessId process) {
    return !ended.contains(process) && switchboard.removed == std::vector{process} &&
           transport.forgotten == std::vector{process};
  }
};

SCENARIO("a process is over when its peers have drained its rings and its socket is closed") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  const ProcessId peer = node.Attach(ProcessRole::kWorker);
  const ProcessId far{2, 9};
  node.processes[driver].job = 3;
  node.Ends(driver, /*exited=*/true, {peer, far});
  CHECK(node.ended.JobOf(driver) == 3);
  CHECK(node.ended.IsDraining(driver));
  CHECK(node.ended.OnSocketClosed(driver));
  node.ended.OnPeerDrained(peer, driver);
  node.ended.OnPeerDrained(peer, driver);  // A repeat.
  CHECK(node.ended.IsDraining(driver));
  WHEN("the last one has read it") { node.ended.OnPeerDrained(far, driver); }
  WHEN("the last one's node is gone") {
    node.ended.OnPeersGone([](ProcessId process) { return process.node == 2; });
  }
  WHEN("the last one takes too long") {
    node.clock.Advance(10 * kSecond);
    node.ended.Tick();
  }
  CHECK(node.IsForgotten(driver));
  CHECK(node.ended.JobOf(driver) == 0);
  CHECK(node.deaths.EndedWithin(kSecond, node.clock.Now()) == std::vector{driver});
  CHECK_FALSE(node.ended.OnExited(driver));
}

SCENARIO("what a process held goes when nothing of it can be on its way") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  const ProcessId peer = node.Attach(ProcessRole::kWorker);
  node.objects.references().Hold(driver, ObjectId::Make(peer, 1, 1));
  node.Ends(driver, /*exited=*/true, {peer});
  CHECK(node.objects.references().held_references() == 1);
  node.ended.OnPeerDrained(peer, driver);
  CHECK(node.objects.references().held_references() == 0);
  CHECK(node.ended.contains(driver));  // Its socket is open: a child of it may hold views.
  CHECK(node.ended.OnSocketClosed(driver));
  CHECK(node.IsForgotten(driver));
}

SCENARIO("a worker that said goodbye has to exit, and is killed if it does not") {
  Node node;
  const ProcessId worker = node.Attach(ProcessRole::kWorker);
  node.Ends(worker, /*exited=*/false, {});
  CHECK(node.ended.OnSocketClosed(worker));
  CHECK(node.ended.contains(worker));
  node.clock.Advance(4 * kSecond);
  node.ended.Tick();
  CHECK_FALSE(node.launcher.WasKilled(worker));
  node.clock.Advance(kSecond);
  node.ended.Tick();
  CHECK(node.launcher.WasKilled(worker));
  CHECK(node.ended.OnExited(worker));
  CHECK(node.IsForgotten(worker));
}

SCENARIO("a driver that said goodbye need not exit") {
  Node node;
  const ProcessId driver = node.Attach(ProcessRole::kDriver);
  node.processes[driver].socket_closed_at = 1;
  node.Ends(driver, /*exited=*/false, {});
  CHECK(node.IsForgotten(driver));
}

}  // namespace ended_processes_test
}  // namespace sheaf
