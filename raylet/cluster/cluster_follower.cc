// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/cluster_follower.h"

#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "scheduling/node_loads.h"

namespace sheaf {
namespace {

constexpr uint64_t kNodes = 1;  // Subscriptions.
constexpr uint64_t kJobs = 2;
constexpr size_t kDeadNodesRemembered = 64;  // Every placement looks at all that are in the view.
constexpr Nanos kViewPeriod = 2 * kSecond;   // Longer than two heartbeats.

}  // namespace

void ClusterFollower::Follow() {
  Subscribe(kNodes);
  Subscribe(kJobs);
  if (deps_.options.takes_work) return;
  proto::GcsRequest request;
  request.mutable_unregister_node()->set_drain_only(true);
  deps_.gcs.Command(std::move(request), nullptr);
}

void ClusterFollower::Subscribe(uint64_t subscription) {
  Followed& followed = followed_[subscription];
  if (followed.asking) return;
  followed.asking = true;
  proto::GcsRequest request;
  proto::Subscribe& subscribe = *request.mutable_subscribe();
  subscribe.set_subscription(subscription);
  subscribe.set_channel(subscription == kNodes ? proto::Subscribe::NODES : proto::Subscribe::JOBS);
  subscribe.set_known_term(followed.term);
  subscribe.set_known_number(followed.number);
  deps_.gcs.Command(std::move(request), [this, subscription](const proto::GcsReply& reply) {
    OnSnapshot(subscription, reply);
  });
}

void ClusterFollower::OnSnapshot(uint64_t subscription, const proto::GcsReply& reply) {
  Followed& known = followed_[subscription];
  known.asking = false;
  if (reply.error() != 0 || !reply.has_snapshot()) {
    Log(LogLevel::kWarning, "the GCS refuses to say what changes: ", reply.message());
    follow_again_at_ = Deadline(Now(), kViewPeriod);
    return;
  }
  const proto::Snapshot& snapshot = reply.snapshot();
  known.term = snapshot.term();
  known.number = snapshot.number();
  for (const proto::Change& change : snapshot.items()) OnChange(change);
  if (subscription == kNodes) {
    if (!snapshot.current()) DropNodesOutside(snapshot);
    deps_.view.complete = true;
    deps_.queue.OnClusterChanged(Now());
  }
}

void ClusterFollower::OnDelta(const proto::Delta& delta) {
  const auto it = followed_.find(delta.subscription());
  if (it == followed_.end() || it->second.asking) return;  // The snapshot will contain it.
  Followed& known = it->second;
  if (delta.term() == known.term && delta.number() <= known.number) return;
  if (delta.term() != known.term || delta.number() != known.number + 1) {  // One is missing.
    Subscribe(delta.subscription());
    return;
  }
  known.number = delta.number();
  if (delta.has_change()) OnChange(delta.change());
  if (delta.has_loads()) OnLoads(delta.loads());
}

void ClusterFollower::OnLoads(std::string_view bytes) {
  proto::NodeLoads loads;
  if (!loads.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    Log(LogLevel::kWarning, "the GCS says what nodes have free in a way that cannot be read");
    return;
  }
  ClusterView& view = deps_.view;
  std::vector<NodeView*> changed;
  auto known = view.nodes.begin();  // Of a thousand that are busy the next is mostly the next.
  const absl::Status status = ApplyLoads(loads, [&](NodeNumber node) -> Resources* {
    if (known != view.nodes.end() && known->first < node) ++known;
    if (known == view.nodes.end() || known->first != node) known = view.nodes.find(node);
    if (node == view.local || known == view.nodes.end() || !known->second.alive) return nullptr;
    changed.push_back(&known->second);
    return &known->second.reported;
  });
  for (NodeView* const node : changed) node->available = node->reported;
  if (!status.ok())
    Log(LogLevel::kWarning, "what the GCS says that nodes have free: ", status.message());
  deps_.queue.OnClusterChanged(Now());
  deps_.observer.OnRoom();
}

void ClusterFollower::OnChange(const proto::Change& change) {
  if (change.has_node()) {
    OnNodeInfo(change.node());
  } else if (change.has_job() && change.job().state() != proto::JobInfo::RUNNING) {
    deps_.observer.OnJobOver(change.job());
  }
}

void ClusterFollower::OnNodeLink(NodeNumber node, bool up) {
  const auto known = deps_.view.nodes.find(node);
  if (node == deps_.view.local || known == deps_.view.nodes.end() || known->second.heard == up) {
    return;
  }
  known->second.heard = up;
  deps_.queue.OnClusterChanged(Now());
}

void ClusterFollower::OnHeard(NodeNumber node) {
  if (deps_.view.Find(node) == nullptr && !deps_.deaths.IsNodeDead(node)) {
    deps_.view.nodes[node].draining = true;
  }
}

void ClusterFollower::OnNodeInfo(const proto::NodeInfo& info) {
  if (deps_.options.on_node_info) deps_.options.on_node_info(info);
  ClusterView& view = deps_.view;
  const NodeNumber node = info.node();
  if (node == view.local && info.state() == proto::NodeInfo::DRAINING) StartDraining();
  deps_.deaths.OnNodeDescribed(node);
  if (node == view.local || node == 0) return;
  const bool known = view.nodes.contains(node);
  const bool alive = info.state() != proto::NodeInfo::DEAD;
  if (!known && !alive) return;
  NodeView& seen = view.nodes[node];
  if (known && !seen.alive) return;  // Numbers are never used again.
  if (absl::StatusOr<Resources> total = Resources::FromMap(info.total().amounts()); total.ok()) {
    seen.total = *std::move(total);
  }
  seen.available = seen.reported = FreeResources(info.available());
  seen.labels.clear();
  for (const auto& [key, value] : info.labels()) seen.labels.emplace(key, value);
  seen.alive = alive;
  // A silent node keeps what it runs and gets nothing new.
  seen.draining = info.state() == proto::NodeInfo::DRAINING || info.suspect();
  if (alive && !info.address().empty()) deps_.links.SetAddress(node, info.address());
  deps_.queue.OnClusterChanged(Now());
  if (!alive) {
    deps_.observer.OnNodeDead(node, info.death().empty()
                                        ? absl::StrCat("node ", node, " is dead")
                                        : absl::StrCat("node ", node, " is dead: ", info.death()));
    ForgetOldDead(node);
  }
  deps_.observer.OnRoom();
}

// Numbers are given once: who is not in the view and was described before is dead (DeathRegister).
void ClusterFollower::ForgetOldDead(NodeNumber died) {
  dead_.push_back(died);
  while (dead_.size() > kDeadNodesRemembered && deps_.view.complete) {
    deps_.view.nodes.erase(dead_.front());
    dead_.pop_front();
  }
}

// What runs goes on, and ends where it is; tasks that wait go to other nodes.
void ClusterFollower::StartDraining() {
  NodeView& here = deps_.view.here();
  if (here.draining) return;
  Log(LogLevel::kInfo, "draining: this node takes no new work");
  here.draining = true;
  deps_.queue.OnDraining(Now());
  deps_.observer.OnDraining();
}

// The GCS remembers the dead for a while only: who is missing in a snapshot is dead.
void ClusterFollower::DropNodesOutside(const proto::Snapshot& snapshot) {
  absl::btree_set<NodeNumber> listed;
  for (const proto::Change& change : snapshot.items()) listed.insert(change.node().node());
  std::vector<NodeNumber> missing;
  for (const auto& [node, seen] : deps_.view.nodes) {
    const bool newer = listed.empty() || node > *listed.rbegin();  // Its registration is to come.
    if (node != deps_.view.local && seen.alive && !newer && !listed.contains(node)) {
      missing.push_back(node);
    }
  }
  for (const NodeNumber node : missing) {
    proto::NodeInfo info;
    info.set_node(node);
    info.set_state(proto::NodeInfo::DEAD);
    OnNodeInfo(info);
  }
}

// What was handed to a node may be over before that node reports: then its report says nothing
// new, and is not sent.
void ClusterFollower::Tick() {
  const Nanos now = Now();
  if (now >= follow_again_at_) {
    follow_again_at_ = kForever;
    Subscribe(kNodes);
    Subscribe(kJobs);
  }
  if (now < next_view_check_) return;
  next_view_check_ = now + kViewPeriod;
  bool changed = false;
  for (auto& [node, seen] : deps_.view.nodes) {
    if (node == deps_.view.local || !seen.alive) continue;
    if (seen.available == seen.reported && !seen.refuses) continue;
    seen.available = seen.reported;
    seen.refuses = false;
    changed = true;
  }
  if (!changed) return;
  deps_.queue.OnClusterChanged(now);
  deps_.observer.OnRoom();
}

}  // namespace sheaf
