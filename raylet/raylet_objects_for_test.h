// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A raylet, a driver, and objects of other nodes that the test plays. For tests only.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/object.pb.h"
#include "raylet/raylet_node_for_test.h"

namespace sheaf {

inline constexpr ProcessId kFarOwner{2, 5};
inline const ObjectId kFarObject = ObjectId::Make(kFarOwner, 1, 1);

struct Objects : RayletNode {
  ProcessId driver = Driver();

  void Fetch(ProcessId from, ObjectId id, ObjectLocation hint) {
    const FetchWanted wanted{.id = id, .hint = hint, .size = 0};
    raylet->OnFrame(from, {kStoreFetch, AsBytes(wanted)});
    raylet->EndTurn();
  }
  // Answers the oldest question for a block of an object without references.
  NodeNumber Serve(std::string bytes, uint32_t attempt = 0) {
    FakeBlockSource::Asked asked = blocks.Take();
    proto::BlockHead head;
    head.set_attempt(attempt);
    head.set_size_bytes(bytes.size());
    asked.done(std::make_unique<OwnedBlock>(head.SerializeAsString(), std::move(bytes)));
    raylet->EndTurn();
    return asked.node;
  }
  void Refuse() {
    proto::BlockHead head;
    head.set_outcome(proto::BlockHead::NOT_FOUND);
    blocks.Take().done(std::make_unique<OwnedBlock>(head.SerializeAsString(), ""));
    raylet->EndTurn();
  }
  // The others are there, as the GCS says.
  void Nodes(const std::vector<NodeNumber>& nodes) {
    for (const NodeNumber node : nodes) {
      if (node_known_.insert(node).second) AddNode(node, "CPU:1");
    }
  }
  std::vector<LocatedObject> Located(ProcessId process) {
    std::vector<LocatedObject> out;
    for (const SentFrame& frame : transport.Take(process)) {
      if (frame.kind != kStoreLocated) continue;
      for (const LocatedObject& item : FrameItems<LocatedObject>(frame.body)) out.push_back(item);
    }
    return out;
  }
  std::vector<ObjectName> Told(ProcessId owner) {
    std::vector<ObjectName> out;
    for (const SentFrame& frame : transport.Take(owner)) {
      if (frame.kind != kStoreCopied) continue;
      for (const ObjectName& item : FrameItems<ObjectName>(frame.body)) out.push_back(item);
    }
    return out;
  }
  void NodeDies(NodeNumber node) {
    if (node_known_.insert(node).second) AddNode(node, "CPU:1");
    NodeBecomes(node, proto::NodeInfo::DEAD);
  }
  void OwnerDies(ProcessId owner) {
    proto::OwnerLeft left;
    left.set_process(owner.packed());
    FromNode(owner.node, FrameKind::kOwnerLeft, left);
  }
  void Borrow(ProcessId process, ObjectId id) { Refs(process, ++reports_, {id}); }

 private:
  std::set<NodeNumber> node_known_;
  uint64_t reports_ = 0;
};

}  // namespace sheaf
