// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The nodes of the cluster, dead ones for a while as well. Numbers are given once: a dead node that
// comes back is another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {

enum class NodeEvent : uint8_t {
  kDrain,  // It takes no new work.
  kEnd,    // It left, fell silent for too long, or was replaced.
};

// The whole life of a node: ALIVE -> DRAINING -> DEAD. nullopt: `event` changes nothing.
constexpr std::optional<proto::NodeInfo::State> Next(proto::NodeInfo::State state,
                                                     NodeEvent event) {
  switch (event) {
    case NodeEvent::kDrain:
      if (state == proto::NodeInfo::ALIVE) return proto::NodeInfo::DRAINING;
      return std::nullopt;
    case NodeEvent::kEnd:
      if (state != proto::NodeInfo::DEAD) return proto::NodeInfo::DEAD;
      return std::nullopt;
  }
  return std::nullopt;
}
static_assert(!Next(proto::NodeInfo::DEAD, NodeEvent::kDrain) &&
              !Next(proto::NodeInfo::DEAD, NodeEvent::kEnd));

class NodeTable {
 public:
  const proto::NodeInfo* Find(NodeNumber node) const;
  const proto::NodeInfo* FindByNonce(std::string_view nonce) const;
  bool IsMember(NodeNumber node) const;  // Known and not DEAD.
  void Put(proto::NodeInfo info);
  // The node itself; only what is not durable may be changed through it.
  proto::NodeInfo* FindSoft(NodeNumber node);
  // The dead nodes with the lowest numbers, when more than `max` are dead.
  std::vector<NodeNumber> Surplus(size_t max) const;
  void Erase(NodeNumber node);
  // Where a group may be placed from: `preferred` if it is healthy and ALIVE, else the lowest such
  // number. nullopt: none.
  std::optional<NodeNumber> Pick(NodeNumber preferred) const;
  // `changed` is called when a node comes or goes, or may be about to change.
  void Watch(std::function<void(NodeNumber)> changed);

  const std::map<NodeNumber, proto::NodeInfo>& all() const { return nodes_; }
  size_t members() const { return nodes_.size() - dead_; }

 private:
  std::map<NodeNumber, proto::NodeInfo> nodes_;
  std::map<std::string, NodeNumber, std::less<>> by_nonce_;
  std::function<void(NodeNumber)> changed_ = [](NodeNumber) {};
  size_t dead_ = 0;
};

}  // namespace sheaf
