// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this raylet believes about the cluster: nodes and ended jobs, as the GCS streams them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

constexpr uint64_t kNodes = 1;  // Subscriptions of this raylet.
constexpr uint64_t kJobs = 2;
constexpr size_t kDeadNodesRemembered = 64;  // Every placement looks at all that are in the view.
constexpr Nanos kViewPeriod = 2 * kSecond;   // Longer than two heartbeats.

}  // namespace

void Raylet::FollowCluster() {
  Follow(kNodes, proto::Subscribe::NODES);
  Follow(kJobs, proto::Subscribe::JOBS);
  if (options_.takes_work) return;
  proto::GcsRequest request;
  request.mutable_unregister_node()->set_drain_only(true);
  gcs_.Command(std::move(request), nullptr);
}

void Raylet::Follow(uint64_t subscription, proto::Subscribe::Channel channel) {
  Followed& followed = followed_[subscription];
  if (followed.asking) return;
  followed.asking = true;
  proto::GcsRequest request;
  proto::Subscribe& subscribe = *request.mutable_subscribe();
  subscribe.set_subscription(subscription);
  subscribe.set_channel(channel);
  subscribe.set_known_term(followed.term);
  subscribe.set_known_number(followed.number);
  gcs_.Command(std::move(request), [this, subscription](const proto::GcsReply& reply) {
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
      view_.complete = true;
      queue_.OnClusterChanged(Now());
    }
  });
}

void Raylet::OnDelta(const proto::Delta& delta) {
  const auto it = followed_.find(delta.subscription());
  if (it == followed_.end() || it->second.asking) return;  // The snapshot will contain it.
  Followed& known = it->second;
  if (delta.term() == known.term && delta.number() <= known.number) return;
  if (delta.term() != known.term || delta.number() != known.number + 1) {  // One is missing.
    Follow(delta.subscription(),
           delta.subscription() == kNodes ? proto::Subscribe::NODES : proto::Subscribe::JOBS);
    return;
  }
  known.number = delta.number();
  if (delta.has_change()) OnChange(delta.change());
  if (delta.has_loads()) OnLoads(delta.loads());
}

void Raylet::OnLoads(std::string_view bytes) {
  proto::NodeLoads loads;
  if (!loads.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    Log(LogLevel::kWarning, "the GCS says what nodes have free in a way that cannot be read");
    return;
  }
  for (const proto::NodeLoad& load : loads.loads()) {
    const auto known = view_.nodes.find(load.node());
    if (load.node() == options_.node || known == view_.nodes.end() || !known->second.alive)
      continue;
    absl::StatusOr<Resources> available = Resources::FromMap(load.available().amounts());
    if (available.ok()) known->second.available = reported_[load.node()] = *std::move(available);
  }
  queue_.OnClusterChanged(Now());
  room_came_ = true;  // For placement groups.
}

void Raylet::OnChange(const proto::Change& change) {
  if (change.has_node()) {
    OnNodeInfo(change.node());
  } else if (change.has_job() && change.job().state() != proto::JobInfo::RUNNING) {
    jobs_.OnOver(change.job());
  }
}

void Raylet::OnNodeLink(NodeNumber node, bool up) {
  if (up) {
    OnHeardAgain(node);
  } else if (node != options_.node && !deaths_.IsNodeDead(node)) {
    silent_since_.try_emplace(node, Now());
  }
  const auto known = view_.nodes.find(node);
  if (node == options_.node || known == view_.nodes.end() || known->second.heard == up) return;
  known->second.heard = up;
  queue_.OnClusterChanged(Now());
}

void Raylet::OnNodeInfo(const proto::NodeInfo& info) {
  const NodeNumber node = info.node();
  if (node == options_.node && info.state() == proto::NodeInfo::DRAINING) StartDraining();
  deaths_.OnNodeDescribed(node);
  if (node == options_.node || node == 0) return;
  const auto known = view_.nodes.find(node);
  const bool alive = info.state() != proto::NodeInfo::DEAD;
  if (known == view_.nodes.end() && !alive) return;
  NodeView& seen = view_.nodes[node];
  const bool was_alive = known == view_.nodes.end() || seen.alive;
  if (!was_alive) return;  // Numbers are never used again.
  if (absl::StatusOr<Resources> total = Resources::FromMap(info.total().amounts()); total.ok()) {
    seen.total = *std::move(total);
  }
  absl::StatusOr<Resources> available = Resources::FromMap(info.available().amounts());
  if (available.ok()) seen.available = reported_[node] = *std::move(available);
  seen.labels.clear();
  for (const auto& [key, value] : info.labels()) seen.labels.emplace(key, value);
  seen.alive = alive;
  // A silent node keeps what it runs and gets nothing new.
  seen.draining = info.state() == proto::NodeInfo::DRAINING || info.suspect();
  if (alive && !info.address().empty()) world_.links.SetAddress(node, info.address());
  queue_.OnClusterChanged(Now());
  if (!alive) {
    reported_.erase(node);
    groups_.OnNodeDead(node, Now());
    OnRemoteNodeDead(node, info.death().empty()
                               ? absl::StrCat("node ", node, " is dead")
                               : absl::StrCat("node ", node, " is dead: ", info.death()));
    ForgetOldDead(node);
  }
  room_came_ = true;  // For placement groups.
}

// Numbers are given once: who is not in the view and was described before is dead (DeathRegister).
void Raylet::ForgetOldDead(NodeNumber died) {
  dead_nodes_.push_back(died);
  while (dead_nodes_.size() > kDeadNodesRemembered && view_.complete) {
    view_.nodes.erase(dead_nodes_.front());
    dead_nodes_.pop_front();
  }
}

// What runs goes on, and ends where it is; tasks that wait go to other nodes.
void Raylet::StartDraining() {
  if (view_.here().draining) return;
  Log(LogLevel::kInfo, "draining: this node takes no new work");
  view_.here().draining = true;
  queue_.OnDraining(Now());
  std::vector<uint64_t> waiting;  // Detached actors that have no worker yet.
  for (const auto& [id, actor] : detached_) {
    if (actor.worker.process == 0 && !MayStartHere(actor)) waiting.push_back(actor.key);
  }
  for (const uint64_t key : waiting)
    OnDetachedRefused(key, ErrorKind::kNodeDied, "the node drains");
  room_came_ = true;  // Placement groups that were to come here go elsewhere.
}

bool Raylet::IsDrained() const {
  const NodeView* here = view_.Find(options_.node);
  return here->draining && queue_.leases_out() == 0 &&
         std::none_of(processes_.begin(), processes_.end(), [](const auto& entry) {
           return entry.second.info.role == ProcessRole::kDriver;
         });
}

// The GCS remembers the dead for a while only: who is missing in a snapshot is dead.
void Raylet::DropNodesOutside(const proto::Snapshot& snapshot) {
  absl::btree_set<NodeNumber> listed;
  for (const proto::Change& change : snapshot.items()) listed.insert(change.node().node());
  std::vector<NodeNumber> missing;
  for (const auto& [node, seen] : view_.nodes) {
    const bool newer = listed.empty() || node > *listed.rbegin();  // Its registration is to come.
    if (node != options_.node && seen.alive && !newer && !listed.contains(node)) {
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
void Raylet::CheckView() {
  const Nanos now = Now();
  if (now >= follow_again_at_) {
    follow_again_at_ = kForever;
    Follow(kNodes, proto::Subscribe::NODES);
    Follow(kJobs, proto::Subscribe::JOBS);
  }
  if (now < next_view_check_) return;
  next_view_check_ = now + kViewPeriod;
  bool changed = false;
  for (const auto& [node, available] : reported_) {
    NodeView& seen = view_.nodes[node];
    changed |= !(seen.available == available);
    seen.available = available;
  }
  if (!changed) return;
  queue_.OnClusterChanged(now);
  room_came_ = true;
}

// Whether a node lives only the GCS can say. While that is silent too nothing is given up here:
// what is pending there stays so, as it may run, but who waits for it is told, and may do something
// else.
void Raylet::CheckSilence() {
  const Nanos now = Now();
  const auto is_over = [&](Nanos since) {
    return since != kForever && now - since >= options_.silence_limit;
  };
  if (!is_over(gcs_silent_since_)) {
    while (!told_silent_.empty()) {
      const NodeNumber node = *told_silent_.begin();
      told_silent_.erase(told_silent_.begin());
      for (const auto& [process, entry] : processes_) TellSilence(process, node, /*heard=*/true);
    }
    return;
  }
  for (const auto& [node, since] : silent_since_) {
    if (!is_over(since) || !told_silent_.insert(node).second) continue;
    Log(LogLevel::kWarning, "neither node ", node, " nor the GCS is heard: waits for it end");
    for (const auto& [process, entry] : processes_) TellSilence(process, node, /*heard=*/false);
  }
}

void Raylet::OnHeardAgain(NodeNumber node) {
  silent_since_.erase(node);
  if (told_silent_.erase(node) == 0) return;
  for (const auto& [process, entry] : processes_) TellSilence(process, node, /*heard=*/true);
}

void Raylet::TellSilence(ProcessId process, NodeNumber node, bool heard) {
  const auto it = processes_.find(process);
  if (it == processes_.end() || it->second.info.role == ProcessRole::kTool) return;
  proto::NodeSilent message;
  message.set_node(node);
  if (!heard) {
    message.set_words(absl::StrCat(
        "node ", node, " was not heard for ", options_.silence_limit / kSecond,
        " s, and neither was the GCS, which would say whether it is dead (SHEAF_SILENCE_LIMIT)"));
  }
  SendMessage(To(process), FrameKind::kNodeSilent, message);
}

}  // namespace sheaf
