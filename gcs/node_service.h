// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Registration, heartbeats, suspicion and death of nodes. Durable: that a number was given, and
// that its node is dead. Soft: what it has available.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/health_monitor.h"
#include "gcs/node_table.h"
#include "gcs/unheard_pairs.h"
#include "scheduling/node_loads.h"

namespace sheaf {

class NodeService {
 public:
  // `on_dead` is called once per node, when its death is durable.
  NodeService(const GcsContext& context, std::function<void(NodeNumber)> on_dead);

  void LoadNode(std::string_view value);
  void LoadLastNumber(std::string_view value);

  void Register(CallPtr call, const proto::RegisterNode& request, const std::string& cluster_id);
  // A member has said something, whatever it is.
  void OnHeard(NodeNumber node);
  void OnHeartbeat(const CallPtr& call, NodeNumber node, const proto::Heartbeat& request);
  void SetAvailable(NodeNumber node, const proto::Resources& available);
  void Unregister(CallPtr call, NodeNumber node, const proto::UnregisterNode& request);
  void List(const CallPtr& call) const;
  void AddSnapshot(proto::Snapshot* snapshot);
  void Tick();

  const NodeTable& table() const { return table_; }
  NodeTable& table() { return table_; }
  uint64_t deaths() const { return deaths_; }  // That were declared since the start.

 private:
  void EndUnheard();
  // Ends or drains a node in the name of `call` (nullptr: nobody asked).
  void Move(CallPtr call, NodeNumber node, NodeEvent event, std::string reason);
  // As others are told.
  proto::NodeInfo Public(const proto::NodeInfo& info) const;
  void Publish(const proto::NodeInfo& info);
  void Tell(const proto::NodeInfo& info, NodeEvent event);
  // Soon all nodes hear what `node` has free.
  void LoadChanged(NodeNumber node);
  void PublishLoads();

  // It is told to end, and is dead when the last lease that it was given has ended.
  struct Condemned {
    Nanos dead_at;
    std::string reason;
  };

  const GcsContext context_;
  const std::function<void(NodeNumber)> on_dead_;
  NodeTable table_;
  HealthMonitor health_;
  UnheardPairs unheard_{{}};
  std::map<NodeNumber, Condemned> condemned_;
  NodeNumber last_number_ = 0;
  uint64_t deaths_ = 0;
  KnownLoads known_loads_;
  std::set<NodeNumber> loads_changed_;  // Not published yet.
  Nanos next_loads_ = 0;                // When they may be.
  std::set<NodeNumber> unburied_;       // Their death did not get to disk: again at the next Tick.
};

}  // namespace sheaf
