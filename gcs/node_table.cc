// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/node_table.h"

#include <utility>

namespace sheaf {

const proto::NodeInfo* NodeTable::Find(NodeNumber node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

proto::NodeInfo* NodeTable::FindSoft(NodeNumber node) {
  changed_(node);
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

const proto::NodeInfo* NodeTable::FindByNonce(std::string_view nonce) const {
  const auto found = by_nonce_.find(nonce);
  return found == by_nonce_.end() ? nullptr : Find(found->second);
}

bool NodeTable::IsMember(NodeNumber node) const {
  const proto::NodeInfo* info = Find(node);
  return info != nullptr && info->state() != proto::NodeInfo::DEAD;
}

void NodeTable::Put(proto::NodeInfo info) {
  const NodeNumber node = info.node();
  Erase(node);
  if (info.state() == proto::NodeInfo::DEAD) ++dead_;
  if (!info.nonce().empty()) by_nonce_[info.nonce()] = node;
  nodes_[node] = std::move(info);
  changed_(node);
}

void NodeTable::Erase(NodeNumber node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  if (found->second.state() == proto::NodeInfo::DEAD) --dead_;
  by_nonce_.erase(found->second.nonce());
  nodes_.erase(found);
  changed_(node);
}

std::vector<NodeNumber> NodeTable::Surplus(size_t max) const {
  std::vector<NodeNumber> surplus;
  for (auto at = nodes_.begin(); at != nodes_.end() && surplus.size() + max < dead_; ++at) {
    if (at->second.state() == proto::NodeInfo::DEAD) surplus.push_back(at->first);
  }
  return surplus;
}

namespace {

bool TakesWork(const proto::NodeInfo& info) {
  return info.state() == proto::NodeInfo::ALIVE && !info.suspect();
}

}  // namespace

std::optional<NodeNumber> NodeTable::Pick(NodeNumber preferred) const {
  if (const proto::NodeInfo* info = Find(preferred); info != nullptr && TakesWork(*info))
    return preferred;
  for (const auto& [node, info] : nodes_) {
    if (TakesWork(info)) return node;
  }
  return std::nullopt;
}

void NodeTable::Watch(std::function<void(NodeNumber)> changed) {
  changed_ = std::move(changed);
  for (const auto& [node, info] : nodes_) changed_(node);
}

}  // namespace sheaf
