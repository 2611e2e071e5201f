// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// When processes hear that a node is silent, and when that it is not.
#include "raylet/cluster/silence_watch.h"

#include <catch2/catch.hpp>

#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace silence_watch_test {

struct Node : NodeParts {
  Node() { AddNode(2, "CPU:1"); }
  ProcessId driver = Attach(ProcessRole::kDriver);
  SilenceWatch silence{{.node = kNode,
                        .limit = 60 * kSecond,
                        .clock = clock,
                        .transport = transport,
                        .processes = processes,
                        .deaths = deaths}};

  void Pass(Nanos duration) {
    clock.Advance(duration);
    silence.Tick();
  }
  // The last that `process` heard of node 2: silent, heard again, or nothing.
  std::string Said(ProcessId process) {
    const auto said = Received<proto::NodeSilent>(process, FrameKind::kNodeSilent);
    if (said.empty()) return "";
    CHECK(said.size() == 1);
    CHECK(said[0].node() == 2);
    return said[0].words().empty() ? "heard" : "silent";
  }
};

SCENARIO("a silent node is spoken of when the GCS is silent too, for as long") {
  Node node;
  const ProcessId tool = node.Attach(ProcessRole::kTool);
  node.silence.OnNodeLink(2, false);
  node.Pass(100 * kSecond);
  CHECK(node.Said(node.driver).empty());  // The GCS would say whether it is dead.
  node.silence.OnGcsLink(false);
  node.Pass(59 * kSecond);
  CHECK(node.Said(node.driver).empty());
  node.Pass(kSecond);
  CHECK(node.Said(node.driver) == "silent");
  CHECK(node.transport.Take(tool).empty());
  node.Pass(kSecond);
  CHECK(node.Said(node.driver).empty());  // Once.
  THEN("who comes later hears so") {
    const ProcessId late = node.Attach(ProcessRole::kWorker);
    node.silence.OnAttached(late);
    CHECK(node.Said(late) == "silent");
  }
  THEN("it is taken back when the node is heard") {
    node.silence.OnNodeLink(2, true);
    CHECK(node.Said(node.driver) == "heard");
  }
  THEN("it is taken back when the GCS is heard") {
    node.silence.OnGcsLink(true);
    node.silence.Tick();
    CHECK(node.Said(node.driver) == "heard");
  }
  THEN("no more is said of it when the node is dead") {
    node.silence.OnNodeDead(2);
    node.silence.OnGcsLink(true);
    node.silence.Tick();
    CHECK(node.Said(node.driver).empty());
  }
}

SCENARIO("neither this node nor a dead one is ever silent") {
  Node node;
  node.view.nodes[2].alive = false;
  node.silence.OnNodeLink(2, false);
  node.silence.OnNodeLink(NodeParts::kNode, false);
  node.silence.OnGcsLink(false);
  node.Pass(100 * kSecond);
  CHECK(node.Said(node.driver).empty());
}

}  // namespace silence_watch_test
}  // namespace sheaf
