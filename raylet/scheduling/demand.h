// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the lease queue keeps. Included by the parts of the queue only: Boost's intrusive lists take
// long to parse. Lists are intrusive, so that moving between them costs no allocation and their
// order, which decides who is served, is the same in every run.
//
//   Demand            what one owner asks for under one key, as one node has sent it
//   GrantedLease      one lease that a demand got
//   SchedulingClass   demands for the same resources in the same place; served in turn
//   Capacity          the node itself, or one placement group: classes that compete with each other
#pragma once

#include <algorithm>
#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/resources.h"
#include "raylet/scheduling/lease.h"
#include "scheduling/lease_spec.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {

struct Capacity;
struct Demand;
struct DemandOwner;
struct SchedulingClass;

namespace lease_queue_internal {
template <class Tag>
using Hook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
template <class T, class Tag>
using List = boost::intrusive::list<T, boost::intrusive::base_hook<Hook<Tag>>,
                                    boost::intrusive::constant_time_size<false>>;
struct OfDemand;    // Leases of a demand, oldest first.
struct OfClass;     // Demands of a class that wait, next first.
struct OfCapacity;  // Classes of a capacity with demands that wait, next first.
struct Holding;     // Demands of a capacity with leases out.
struct OfOwner;     // All demands of an owner.
}  // namespace lease_queue_internal

// How fast a demand spreads in a large cluster: to so many nodes in each period, more and more of them
// until some of it is given back, which says that others spread there, too.
struct SpreadPace {
  uint32_t nodes = 16;
  Nanos period = kMillisecond;
  uint32_t left = 0;  // Of this period,
  Nanos until = 0;    // which ends then.
  bool given_back = false;
};

struct GrantedLease : Lease, lease_queue_internal::Hook<lease_queue_internal::OfDemand> {
  Demand* granted_to = nullptr;
  bool yielding = false;  // Counted in Capacity::yielding: a task that runs, so it ends.
  bool coming = false;    // Counted in Capacity::coming: asked back lately.
  bool awaits = false;    // Its call waits for admission, and has said so.
  // And has lent its CPUs: counted in Demand::lending and Capacity::lent_waiting.
  bool lends = false;

  Capacity& capacity() const;
  void SetYielding(bool now_yields);
  void SetComing(bool now_comes);
  void SetLends(bool now_lends);
};

struct Demand : lease_queue_internal::Hook<lease_queue_internal::OfClass>,
                lease_queue_internal::Hook<lease_queue_internal::Holding>,
                lease_queue_internal::Hook<lease_queue_internal::OfOwner> {
  using WaitHook = lease_queue_internal::Hook<lease_queue_internal::OfClass>;
  using HoldHook = lease_queue_internal::Hook<lease_queue_internal::Holding>;

  DemandId id;
  std::shared_ptr<const LeaseSpec> spec;
  SchedulingClass* cls = nullptr;
  DemandOwner* owner = nullptr;
  uint32_t wanted = 0;
  uint32_t held = 0;       // Leases of this node.
  uint32_t leaving = 0;    // Of these, whose workers end by themselves: no use to the owner.
  uint32_t revoked = 0;    // Of the others, asked back.
  uint32_t spillback = 0;  // Leases that other nodes are asked for.
  uint32_t lending = 0;  // Of its leases those whose calls wait for admission and lend their CPUs.
  uint32_t hops = 0;
  uint64_t backlog = 0;
  Nanos since = 0;       // Waiting since.
  bool noticed = false;  // kNotice was said.
  bool gone = false;     // Its owner is gone; it lasts until its leases are back.
  bool silent = false;   // Its owner did not answer, and has not spoken since: it gets nothing.
  std::vector<std::pair<NodeNumber, uint32_t>> shares;  // Sums to `spillback`.
  SpreadPace pace;
  ArgumentBytes argument_bytes;
  lease_queue_internal::List<GrantedLease, lease_queue_internal::OfDemand> leases;

  bool waiting() const { return WaitHook::is_linked(); }
  uint32_t useful() const { return held - leaving; }
  // Whether it goes when nothing is wanted or held: its owner would say all of it again.
  bool ends_when_idle() const { return spec->actor || id.via != 0 || gone; }
  uint32_t missing() const {
    if (silent) return 0;
    // An owner without queued tasks wants what it holds, whatever this node thinks that to be: its
    // word and the other nodes' about returned leases cross. It speaks again when it needs more.
    if (backlog == 0 && id.via == 0 && !spec->actor) return 0;
    const uint64_t have = uint64_t{useful()} + spillback;
    return wanted > have ? static_cast<uint32_t>(wanted - have) : 0;
  }
};

struct SchedulingClass : lease_queue_internal::Hook<lease_queue_internal::OfCapacity> {
  std::shared_ptr<const LeaseSpec> spec;  // Of its first demand: equal resources and strategy.
  Capacity* capacity = nullptr;
  bool pending_group = false;  // Stands for the placement group that waits, and has no demands.
  size_t demands = 0;          // Waiting or not.
  size_t from_others = 0;      // Of those that wait, spilled back by other nodes.
  // Those that hold nothing come first, in turn; then the others, who has least of the first few.
  lease_queue_internal::List<Demand, lease_queue_internal::OfClass> starving;
  lease_queue_internal::List<Demand, lease_queue_internal::OfClass> waiting;
  uint32_t overtaken = 0;  // Grants to other classes since head_since.
  Nanos head_since = 0;    // Since when its next one waits.
  uint32_t failures = 0;   // Reservations that ran out.
  uint64_t epoch = 0;      // When `infeasible` and `local` were found; 0: never.
  bool infeasible = false;
  bool local = false;              // This node could hold it.
  uint64_t no_room_elsewhere = 0;  // In this epoch it is the local node or none.
  NodeSearch search;               // Of this epoch.
  Nanos gave_back_at = 0;          // One after the other goes back to who spilled it back.

  bool waits() const { return is_linked(); }
  bool empty() const { return starving.empty() && waiting.empty(); }
  template <class Visit>
  void ForEachWaiting(Visit&& visit) const {
    for (const auto* list : {&starving, &waiting}) {
      for (const Demand& demand : *list) visit(demand);
    }
  }
};

struct Capacity {
  PlacementGroupId group;  // Nil: the node.
  size_t classes = 0;
  lease_queue_internal::List<SchedulingClass, lease_queue_internal::OfCapacity> waiting;
  lease_queue_internal::List<Demand, lease_queue_internal::Holding> holders;
  // Counts what may let a lease be asked back, other than time.
  uint64_t version = 1;

  // Of reservations.h.
  SchedulingClass* reserving = nullptr;
  Nanos reserving_since = 0;
  Resources yielding;  // Held by tasks that run.

  // Of lease_revoker.h. At `barren_version` none could be asked back before `barren_until`.
  Resources coming;                                 // Asked back lately.
  std::deque<std::pair<LeaseNumber, Nanos>> asked;  // When what is in `coming` was asked back.
  uint64_t barren_version = 0;
  Nanos barren_until = 0;
  Nanos overdrawn_since = 0;  // Since when more CPUs are in use than there are. 0: they are not.
  Nanos soonest = kForever;   // When a lease that is spared now no longer is.

  Amount lent_waiting = 0;  // Of cpu_lending.h: CPUs of calls that wait for admission.

  // Of lease_server.h.
  Nanos timer = kForever;  // When it is served again in any case.
  Nanos next = kForever;   // The same, as found by the Serve under way.

  bool is_node() const { return group.is_nil(); }
  void WakeAt(Nanos at) { next = std::min(next, at); }
};

struct DemandOwner {
  lease_queue_internal::List<Demand, lease_queue_internal::OfOwner> demands;
  size_t count = 0;
};

inline Capacity& GrantedLease::capacity() const { return *granted_to->cls->capacity; }
inline void GrantedLease::SetYielding(bool now_yields) {
  if (std::exchange(yielding, now_yields) == now_yields) return;
  if (now_yields) {
    capacity().yielding += allocation.resources;
  } else {
    capacity().yielding -= allocation.resources;
  }
}
inline void GrantedLease::SetComing(bool now_comes) {
  if (std::exchange(coming, now_comes) == now_comes) return;
  if (now_comes) {
    capacity().coming += allocation.resources;
  } else {
    capacity().coming -= allocation.resources;
  }
}
inline void GrantedLease::SetLends(bool now_lends) {
  if (std::exchange(lends, now_lends) == now_lends) return;
  const Amount cpu = allocation.resources.cpu();
  granted_to->lending += now_lends ? 1 : -1;
  capacity().lent_waiting += now_lends ? cpu : -cpu;
}

}  // namespace sheaf
