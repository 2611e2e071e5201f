// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/node_table.h"

#include <utility>

namespace sheaf {

const proto::NodeInfo* NodeTable::Find(NodeNumber node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

proto::NodeInfo* NodeTable::FindSoft(NodeNumber node) {
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
}

void NodeTable::Erase(NodeNumber node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  if (found->second.state() == proto::NodeInfo::DEAD) --dead_;
  by_nonce_.erase(found->second.nonce());
  nodes_.erase(found);
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

bool Fits(const proto::Resources& wanted, const proto::Resources& there) {
  for (const auto& [name, amount] : wanted.amounts()) {
    const auto found = there.amounts().find(name);
    if (amount > 0 && (found == there.amounts().end() || found->second < amount)) return false;
  }
  return true;
}

}  // namespace

std::optional<NodeNumber> NodeTable::Pick(NodeNumber preferred) const {
  return PickFor({}, preferred);
}

std::optional<NodeNumber> NodeTable::PickFor(const proto::LeaseSpec& lease,
                                             NodeNumber preferred) const {
  if (lease.strategy().kind() == proto::Strategy::NODE_AFFINITY) {
    const proto::NodeInfo* bound = Find(lease.strategy().node());
    if (bound != nullptr && TakesWork(*bound)) return lease.strategy().node();
  }
  std::optional<NodeNumber> best;
  int best_rank = -1;
  for (const auto& [node, info] : nodes_) {
    if (!TakesWork(info)) continue;
    int rank = Fits(lease.resources(), info.available()) ? 4
               : Fits(lease.resources(), info.total())   ? 2
                                                         : 0;
    if (node == preferred) ++rank;
    if (rank <= best_rank) continue;
    best_rank = rank;
    best = node;
  }
  return best;
}

}  // namespace sheaf
