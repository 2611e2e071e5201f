// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The lease queue and the group ledger under random owners, seed by seed: nothing is given twice,
// nothing is kept from those who could have it, nobody starves, and all comes back.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <vector>

#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/placement_group_ledger.h"

namespace sheaf {
namespace lease_queue_random_test {

using Kind = LeaseAction::Kind;

Resources Parsed(const std::string& text) { return ParseResources(text).value(); }

struct Held {
  DemandId demand;
  Nanos until = 0;
  bool blocked = false;
};

// Owners 10 to 15 with four kinds of demands each on one node. A lease lasts as long as its task, 1
// to 50 ms; an owner asked for one back returns it when the task is over. Some block for a while,
// some die.
class World {
 public:
  explicit World(uint64_t seed)
      : random_(seed),
        ledger_(Parsed(kTotal), {}),
        queue_({}, ledger_, WithLocal(view_), random_),
        groups_(ledger_, view_) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += static_cast<Nanos>(random_.Below(5)) * kMillisecond;
      Step();
      Settle();
    }
  }
  // Nobody wants anything more; all tasks end.
  void End() {
    for (uint32_t owner = 10; owner < 16; ++owner) {
      queue_.OnOwnerGone({1, owner}, now_);
      groups_.OnOwnerGone({1, owner}, now_);
    }
    Settle();
    while (!held_.empty()) Return(held_.begin()->first);
    CHECK(ledger_.available() == ledger_.total());
    CHECK(queue_.leases_out() == 0);
    CHECK(queue_.lenders() == 0);
    CHECK(queue_.AllPending().empty());
    CHECK(queue_.NextTick() == kForever);
  }
  // `wanted` leases of `resources` for a newcomer while everybody else has endless work: when it
  // has had one.
  Nanos TimeToFirstGrant(const std::string& resources) {
    const Nanos begin = now_;
    queue_.OnDemand({1, 99}, Wants(1, resources, 1, false), now_);
    while (!granted_.contains({1, 99}) && now_ < begin + 60 * kSecond) {
      now_ += kMillisecond;
      Settle();
    }
    queue_.OnOwnerGone({1, 99}, now_);
    return now_ - begin;
  }
  void EndlessWork() {
    for (uint32_t owner = 10; owner < 16; ++owner)
      queue_.OnDemand({1, owner}, Wants(1, "CPU:1", 100, false), now_);
    Settle();
  }

 private:
  static constexpr char kTotal[] = "CPU:4,GPU:2,slot:3";

  static ClusterView& WithLocal(ClusterView& view) {
    view.local = 1;
    view.nodes[1].total = view.nodes[1].available = Parsed(kTotal);
    return view;
  }
  static proto::LeaseDemand Wants(uint64_t key, const std::string& resources, uint32_t wanted,
                                  bool actor) {
    proto::LeaseDemand demand;
    demand.set_key(key);
    demand.set_wanted(wanted);
    demand.set_backlog(wanted);
    demand.mutable_spec()->set_actor(actor);
    Parsed(resources).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
    return demand;
  }

  void Step() {
    static const std::string kKinds[] = {"CPU:1", "CPU:2,slot:1", "GPU:0.5", "CPU:4"};
    const ProcessId owner{1, static_cast<uint32_t>(10 + random_.Below(6))};
    switch (random_.Below(12)) {
      case 0:
        if (random_.OneIn(10)) {
          queue_.OnOwnerGone(owner, now_);
          groups_.OnOwnerGone(owner, now_);
        }
        break;
      case 1:
        queue_.OnDemand(owner, Wants(100 + random_.Below(50), "CPU:0.5", 1, true), now_);
        break;
      case 2:
      case 3:
        if (!held_.empty()) {
          auto it = held_.begin();
          std::advance(it, random_.Below(held_.size()));
          it->second.blocked = !it->second.blocked;
          it->second.blocked ? queue_.OnBlocked(it->first, now_)
                             : queue_.OnUnblocked(it->first, now_);
        }
        break;
      case 4: {
        GroupSpec spec;
        spec.id = PlacementGroupId::Make(owner, ++last_group_);
        spec.bundles = {Parsed("CPU:1"), Parsed("CPU:1")};
        made_.push_back(spec.id);
        groups_.OnCreate(std::move(spec), owner, now_);
        break;
      }
      case 5:
        if (!made_.empty()) {
          groups_.OnRemove(made_.front(), now_);
          made_.erase(made_.begin());
        }
        break;
      case 6:
        if (!made_.empty()) {
          proto::LeaseDemand demand = Wants(++last_key_, "CPU:1", 2, false);
          proto::Strategy* strategy = demand.mutable_spec()->mutable_strategy();
          strategy->set_kind(proto::Strategy::PLACEMENT_GROUP);
          strategy->set_group_id(made_.back().Binary());
          strategy->set_bundle(kAnyBundle);
          queue_.OnDemand(owner, demand, now_);
        }
        break;
      default: {
        const uint64_t kind = random_.Below(4);
        queue_.OnDemand(
            owner, Wants(kind, kKinds[kind], static_cast<uint32_t>(random_.Below(6)), false), now_);
      }
    }
  }

  // Performs all actions, ends tasks that are over, and checks what must hold at any time.
  void Settle() {
    if (queue_.NextTick() <= now_) queue_.OnTick(now_);
    for (bool again = true; again;) {
      again = false;
      for (const GroupAction& action : groups_.TakeActions()) {
        again = true;
        REQUIRE(action.kind == GroupAction::Kind::kState);
        queue_.OnGroupChanged(action.group, now_);
      }
      for (const LeaseAction& action : queue_.TakeActions()) {
        again = true;
        Apply(action);
      }
      std::vector<LeaseNumber> over;
      for (const auto& [lease, held] : held_) {
        if (held.until <= now_ && !held.blocked) over.push_back(lease);
      }
      for (const LeaseNumber lease : over) {
        again = true;
        Return(lease);
      }
      groups_.OnRoom(now_);
      queue_.SetGroupWaiting(groups_.WaitingHere(), now_);
    }
    Check();
  }

  void Apply(const LeaseAction& action) {
    switch (action.kind) {
      case Kind::kGrant: {
        const Lease* lease = queue_.Find(action.lease);
        if (lease == nullptr) return;
        granted_.insert(action.demand.owner);
        const Nanos length = static_cast<Nanos>(1 + random_.Below(50)) * kMillisecond;
        held_[action.lease] = {action.demand, now_ + length * (lease->spec->actor ? 10 : 1)};
        return;
      }
      case Kind::kEnd:
        if (held_.contains(action.lease)) {
          held_[action.lease].until = now_;
          held_[action.lease].blocked = false;
        }
        return;
      case Kind::kRevoke:  // Returned when the task is over, as it would be anyway.
        REQUIRE(revoked_.insert(action.lease).second);
        return;
      case Kind::kRefuse:
      case Kind::kNotice:
        return;
      case Kind::kSpillback:
      case Kind::kGiveBack:
        FAIL("there is no other node");
    }
  }

  void Return(LeaseNumber lease) {
    held_.erase(lease);
    REQUIRE(queue_.OnReturn(lease, now_));
  }

  void Check() {
    // Nothing is given twice: what is out and not lent, and what bundles have, is within the total.
    Resources used;
    std::map<uint32_t, Amount> gpus;
    Amount went_on = 0;
    for (const Lease* lease : queue_.Leases()) {
      const auto& bundle = lease->allocation.bundle;
      const bool in_bundle = bundle.has_value() && ledger_.bundles().contains(*bundle);
      if (!in_bundle) {
        used += lease->allocation.resources;
        went_on += lease->allocation.lent ? lease->allocation.resources.cpu() : 0;
      }
      for (const GpuShare& share : lease->allocation.gpus) gpus[share.id] += share.amount;
    }
    for (const auto& [id, bundle] : ledger_.bundles()) used += bundle.total;
    Resources others = used;
    others.Set(KnownResource::kCpu, 0);  // CPUs may be overdrawn by those that went on.
    REQUIRE(ledger_.total().Fits(others));
    for (const auto& [id, amount] : gpus) REQUIRE(amount <= kUnit);
    REQUIRE(ledger_.available().cpu() == ledger_.total().cpu() - used.cpu() + went_on);
    // Nothing is kept from those who could have it.
    for (const LeaseQueue::Pending& pending : queue_.AllPending()) {
      if (pending.spec->strategy.kind != StrategyKind::kPlacementGroup && !pending.withheld)
        REQUIRE_FALSE(ledger_.CanAcquire(pending.spec->resources));
    }
  }

  SeededRandom random_;
  ResourceLedger ledger_;
  ClusterView view_;
  LeaseQueue queue_;
  PlacementGroupLedger groups_;
  Nanos now_ = kSecond;
  std::map<LeaseNumber, Held> held_;
  std::set<LeaseNumber> revoked_;
  std::set<ProcessId> granted_;
  std::vector<PlacementGroupId> made_;
  uint64_t last_group_ = 0;
  uint64_t last_key_ = 1'000;
};

SCENARIO("random owners: nothing is given twice, nothing withheld without reason, all comes back") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    World world(seed);
    world.Run(500);
    world.End();
  }
}

SCENARIO("nobody starves: a newcomer gets what it asks for while others have endless work") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const char* resources : {"CPU:1", "CPU:2", "CPU:4", "CPU:4,GPU:2"}) {
      INFO("seed " << seed << ", " << resources);
      World world(seed);
      world.EndlessWork();
      CHECK(world.TimeToFirstGrant(resources) <= kSecond);
    }
  }
}

}  // namespace lease_queue_random_test
}  // namespace sheaf
