// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What goes wrong in a run, and when.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kShortestCutOff = 4 * kSecond, kLongestCutOff = 12 * kSecond;
constexpr Nanos kLongestFull = 8 * kSecond, kLongestSpillFull = 40 * kSecond;
constexpr Nanos kDrainTime = 600 * kMillisecond;
constexpr size_t kNodesPerLostLink = 3;

}  // namespace

void Cluster::Every(Nanos FaultPlan::* mean, std::function<void()> strike) {
  const Nanos period = world_.faults.*mean;
  if (period == 0) return;
  world_.queue.After(world_.Between(1, 2 * period), [this, mean, strike = std::move(strike)] {
    if (world_.faults.*mean == 0) return;  // The time of faults is over.
    strike();
    Every(mean, strike);
  });
}

void Cluster::ScheduleFaults() {
  Every(&FaultPlan::worker_kill_every, [this] { KillWorker(); });
  Every(&FaultPlan::driver_kill_every, [this] { KillDriver(); });
  Every(&FaultPlan::pause_every, [this] { PauseSomething(); });
  Every(&FaultPlan::gcs_crash_every, [this] { gcs_.Crash(); });
  Every(&FaultPlan::gcs_disk_full_every, [this] {
    world_.Count(Fault::kGcsDiskFull);
    gcs_.FillDisk(world_.Between(100 * kMillisecond, kLongestFull));
  });
  Every(&FaultPlan::second_head_every, [this] { MoveHead(); });
  Every(&FaultPlan::spill_full_every, [this] { FillDisk(); });
  Every(&FaultPlan::node_crash_every, [this] { CrashNode(); });
  Every(&FaultPlan::apart_every, [this] { PartTwoNodes(); });
  Every(&FaultPlan::away_every, [this] { PartFromGcs(); });
  Every(&FaultPlan::cut_off_every, [this] { CutOffNode(); });
  Every(&FaultPlan::slow_node_every, [this] { SlowNode(); });
  Every(&FaultPlan::drain_every, [this] { DrainNode(); });
  Every(&FaultPlan::lose_link_every, [this] { LoseLink(); });
}

Node& Cluster::AnyNode() { return *nodes_[world_.random.Below(nodes_.size())]; }

// Half of the heads have a node of the cluster beside them, which is lost with them.
void Cluster::MoveHead() {
  Replenish();
  Node& node = AnyNode();
  const bool beside = nodes_.size() > 1 && node.up() && !node.crashed() && world_.random.OneIn(2);
  gcs_.Move(beside ? &node : nullptr);
}

void Cluster::CrashNode() {
  Node& node = AnyNode();
  if (node.up()) ReplaceNode(node);
}

void Cluster::ReplaceNode(Node& node) {
  world_.Count(Fault::kNodeCrash);
  node.Vanish();
  AddNode();
  nodes_.back()->Boot();
  StartDriversOnceUp(*nodes_.back());
  EndCrashed();
}

// Those that were fenced have ended themselves.
void Cluster::EndCrashed() {
  for (size_t i = 0; i < nodes_.size();) {
    if (!nodes_[i]->crashed()) {
      ++i;
      continue;
    }
    crashed_.push_back(std::move(nodes_[i]));
    nodes_.erase(nodes_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Cluster::StartDriversOnceUp(Node& node) {
  world_.queue.After(10 * kMillisecond, [this, &node] {
    if (node.crashed()) return;
    if (!node.up()) return StartDriversOnceUp(node);
    for (int i = 0; i < kDriversPerNode; ++i) node.StartDriver();
  });
}

void Cluster::PartTwoNodes() {
  Node &a = AnyNode(), &b = AnyNode();
  if (&a == &b) return;
  world_.Count(Fault::kNodesApart);
  between_.Separate(
      a.number(), b.number(),
      world_.now() +
          world_.Between(100 * kMillisecond, world_.random.OneIn(4) ? kLongestApart : kSecond));
}

// Few enough that most nodes stay.
void Cluster::LoseLink() {
  Node &a = AnyNode(), &b = AnyNode();
  if (&a == &b || !a.up() || !b.up() || a.crashed() || b.crashed()) return;
  if (between_.lost_links() >= nodes_.size() / kNodesPerLostLink) return;
  world_.Count(Fault::kLinkLost);
  between_.LoseLink(a.number(), b.number());
}

// Now and then for so long that those who wait for room are refused.
void Cluster::FillDisk() {
  world_.Count(Fault::kSpillFull);
  world_.oracle.StoresMayBeFull();
  const Nanos longest = world_.random.OneIn(4) ? kLongestSpillFull : 2 * kSecond;
  AnyNode().FillDisk(world_.now() + world_.Between(100 * kMillisecond, longest));
}

// Up to three seconds: no node dies of that.
void Cluster::PartFromGcs() {
  world_.Count(Fault::kNodeAwayGcs);
  gcs_.Separate(AnyNode(), world_.now() + world_.Between(100 * kMillisecond, 3 * kSecond));
}

// One at a time. Some come back before they are declared dead, most learn that they were.
void Cluster::CutOffNode() {
  Replenish();
  Node& node = AnyNode();
  if (world_.now() < cut_off_until_ || nodes_.size() < 2 || !node.up() || node.crashed()) return;
  cut_off_until_ = world_.now() + world_.Between(kShortestCutOff, kLongestCutOff);
  if (world_.random.OneIn(2)) {
    world_.Count(Fault::kNodeStopped);
    node.Stop(cut_off_until_);
  } else {
    world_.Count(Fault::kNodeCutOff);
    gcs_.Separate(node, cut_off_until_);
  }
}

// Others take the place of those that have ended.
void Cluster::Replenish() {
  EndCrashed();
  while (nodes_.size() < static_cast<size_t>(options_.nodes)) {
    AddNode();
    nodes_.back()->Boot();
    StartDriversOnceUp(*nodes_.back());
  }
}

void Cluster::SlowNode() {
  world_.Count(Fault::kSlowNode);
  between_.Slow(AnyNode().number(), world_.Between(kMillisecond, 200 * kMillisecond),
                world_.now() + world_.Between(100 * kMillisecond, 4 * kSecond));
}

// One at a time: somebody must do the work. Some time later it vanishes, as drained nodes do.
void Cluster::DrainNode() {
  Node& node = AnyNode();
  Process* asker = AnyDriver();
  if (draining_ || nodes_.size() < 2 || !node.up() || node.crashed() || asker == nullptr) return;
  draining_ = true;
  world_.Count(Fault::kDrain);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  query.set_id(absl::StrCat(node.number()));
  asker->AskState(query);
  world_.queue.After(kDrainTime, [this, &node] {
    if (world_.faults.drain_every == 0) return;
    draining_ = false;
    if (!node.crashed()) ReplaceNode(node);
  });
}

void Cluster::KillWorker() {
  Node& node = AnyNode();
  std::vector<Process*> workers = node.Living(ProcessRole::kWorker);
  if (workers.empty()) return;
  Process& victim = *workers[world_.random.Below(workers.size())];
  world_.Count(victim.executor().is_actor() ? Fault::kActorKill : Fault::kWorkerKill);
  if (world_.random.OneIn(2)) {
    // In the middle of a turn, once it has sent so much.
    victim.sends_left = static_cast<int>(world_.random.Below(6));
  } else {
    node.Crash(victim, proto::Death::SIGNALLED, 9);
  }
}

void Cluster::KillDriver() {
  Node& node = AnyNode();
  std::vector<Process*> drivers = node.Living(ProcessRole::kDriver);
  if (drivers.empty()) return;
  Process& victim = *drivers[world_.random.Below(drivers.size())];
  world_.Count(Fault::kDriverKill);
  node.Crash(victim, proto::Death::SIGNALLED, 9);
  node.StartDriver();
}

void Cluster::PauseSomething() {
  Node& node = AnyNode();
  world_.Count(Fault::kPause);
  Nanos until = world_.now() + world_.Between(kMillisecond, 400 * kMillisecond);
  std::vector<Process*> all = node.Living(ProcessRole::kWorker);
  for (Process* driver : node.Living(ProcessRole::kDriver)) all.push_back(driver);
  const uint64_t chosen = world_.random.Below(all.size() + 1);
  if (chosen == all.size()) {
    node.paused_until = until;
  } else {
    // A process that stands still for long loses its leases, and nothing else.
    if (world_.random.OneIn(8)) until = world_.now() + world_.Between(kSecond, 10 * kSecond);
    all[chosen]->paused_until = until;
  }
}

}  // namespace sheaf::sim
