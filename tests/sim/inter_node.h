// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What lies between nodes: from each to each a stream of frames that arrive once and in order, as
// rpc/links.h promises, but late.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "raylet/cluster/node_links.h"
#include "raylet/objects/block_source.h"
#include "tests/sim/node_wire.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class Node;

class InterNode {
 public:
  explicit InterNode(World& world) : world_(world) {}

  void Attach(NodeNumber number, Node* node) { nodes_[number] = node; }
  void Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string body);
  // Asks the raylet of `node` for a block, and answers when that has.
  void Fetch(NodeNumber reader, NodeNumber node, std::string request, BlockSource::Done done);
  // `node` hears nothing more of `dead`, and sends it nothing.
  void Forget(NodeNumber node, NodeNumber dead) { forgotten_[{node, dead}] = true; }
  // Nothing comes through between the two until then.
  void Separate(NodeNumber a, NodeNumber b, Nanos until);
  // Nor ever again. Both tell the GCS, as cli/node_connections.h does, until one of them is dead.
  void LoseLink(NodeNumber a, NodeNumber b);
  // Of `from`, accepted for `to` and not known to have arrived.
  size_t QueuedBytes(NodeNumber from, NodeNumber to);
  // Of questions about the state of the cluster, and of the answers.
  uint64_t state_bytes() const { return state_bytes_; }
  size_t lost_links() const { return lost_links_.size(); }
  // What goes to and from `node` takes so much longer until then.
  void Slow(NodeNumber node, Nanos longer, Nanos until) { slow_[node] = {longer, until}; }
  // `node` has crashed: of what it sent, the last part may be lost.
  void Crashed(NodeNumber node);
  void CheckAtRest() const;

 private:
  struct Sent {
    ProcessId from, to;
    Lane lane;
    FrameKind kind;
    std::string body;
    Nanos at;
  };
  struct Stream {
    std::deque<Sent> sent;
    bool scheduled = false;
    Nanos last_at = 0;
    std::deque<Sent> waiting;  // For room.
    size_t waiting_bytes = 0, unacknowledged = 0;
    std::deque<std::pair<Nanos, size_t>> acknowledged;  // When that will be known, of how much.
    bool will_settle = false;
  };
  using Key = std::pair<NodeNumber, NodeNumber>;
  // In runs of every method frames travel by links that break.
  NodeWire& WireOf(Key key);
  void Arrive(const LinkFrame& frame);
  void Schedule(Key key);
  void Depart(Key key, Stream& stream, Sent frame);
  // What is known to have arrived makes room.
  void Settle(Key key);
  void CheckBackPressure(const Stream& stream, ProcessId from, ProcessId to, FrameKind kind,
                         std::string_view body);
  void Deliver(Key key);
  Nanos Delay(NodeNumber from, NodeNumber to);
  bool IsForgotten(NodeNumber node, NodeNumber dead);
  bool IsLive(NodeNumber node) const;
  Nanos SeparateUntil(NodeNumber a, NodeNumber b) const;
  // Tells both whether they hear each other.
  void LookAtLink(NodeNumber a, NodeNumber b);
  // While they do not, `node` says again and again that it does not hear `about`.
  void ReportUnheard(NodeNumber node, NodeNumber about);

  World& world_;
  uint64_t state_bytes_ = 0;
  std::map<NodeNumber, Node*> nodes_;
  std::map<Key, Stream> streams_;
  std::map<Key, std::unique_ptr<NodeWire>> wires_;  // By the lower number first.
  std::map<Key, bool> forgotten_;
  std::map<Key, Nanos> separate_until_;  // By the lower number first.
  std::vector<Key> lost_links_;
  std::map<NodeNumber, std::pair<Nanos, Nanos>> slow_;
};

// One node's end.
class SimLinks final : public NodeLinks {
 public:
  SimLinks(InterNode& between, NodeNumber node) : between_(between), node_(node) {}
  void Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string_view head,
            std::string_view tail) override {
    between_.Send(from, to, lane, kind, std::string(head) + std::string(tail));
  }
  size_t queued_bytes(NodeNumber node) const override { return between_.QueuedBytes(node_, node); }
  void SetAddress(NodeNumber, const std::string&) override {}
  void Forget(NodeNumber node) override { between_.Forget(node_, node); }

 private:
  InterNode& between_;
  const NodeNumber node_;
};

class SimBlocks final : public BlockSource {
 public:
  SimBlocks(InterNode& between, NodeNumber node) : between_(between), node_(node) {}
  void Fetch(NodeNumber node, std::string request, Nanos, Done done) override {
    between_.Fetch(node_, node, std::move(request), std::move(done));
  }

 private:
  InterNode& between_;
  const NodeNumber node_;
};

}  // namespace sheaf::sim
