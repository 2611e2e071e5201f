// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the lease queue keeps; included by its own files only. Lists are intrusive, so that moving
// between them costs no allocation and their order, which decides who is served, is the same in
// every run.
#pragma once

#include <boost/intrusive/list.hpp>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "raylet/scheduling/lease_queue.h"

namespace sheaf {

namespace lease_queue_internal {
template <class Tag>
using Hook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
template <class T, class Tag>
using List = boost::intrusive::list<T, boost::intrusive::base_hook<Hook<Tag>>,
                                    boost::intrusive::constant_time_size<false>>;
struct OfEntry;  // Leases of an entry, oldest first.
struct OfClass;  // Entries of a class that wait, next first.
struct OfPool;   // Classes of a pool with entries that wait, next first.
struct Holding;  // Entries of a pool with leases out.
struct OfOwner;  // All entries of an owner.
}  // namespace lease_queue_internal

struct LeaseQueue::Record : Lease, lease_queue_internal::Hook<lease_queue_internal::OfEntry> {
  Entry* entry = nullptr;
  bool yielding = false;  // Counted in Pool::yielding: a task that runs, so it ends.
  bool coming = false;    // Counted in Pool::coming: asked back lately.
  bool awaits = false;    // Its call waits for admission, and has said so.
  bool lends = false;  // And has lent its CPUs: counted in Entry::lending and Pool::lent_waiting.
  void SetLends(bool now_lends);
};

struct LeaseQueue::Entry : lease_queue_internal::Hook<lease_queue_internal::OfClass>,
                           lease_queue_internal::Hook<lease_queue_internal::Holding>,
                           lease_queue_internal::Hook<lease_queue_internal::OfOwner> {
  using WaitHook = lease_queue_internal::Hook<lease_queue_internal::OfClass>;
  using HoldHook = lease_queue_internal::Hook<lease_queue_internal::Holding>;
  using OwnerHook = lease_queue_internal::Hook<lease_queue_internal::OfOwner>;

  DemandId id;
  std::shared_ptr<const LeaseSpec> spec;
  Class* of = nullptr;
  Owner* owner = nullptr;
  uint32_t wanted = 0;
  uint32_t held = 0;     // Leases of this node.
  uint32_t revoked = 0;  // Of these, asked back.
  uint32_t handed_on = 0;
  uint32_t lending = 0;  // Of its leases those whose calls wait for admission and lend their CPUs.
  uint32_t hops = 0;
  uint64_t backlog = 0;
  Nanos since = 0;       // Waiting since.
  bool noticed = false;  // kNotice was said.
  bool gone = false;     // Its owner is gone; it lasts until its leases are back.
  bool silent = false;   // Its owner did not answer, and has not spoken since: it gets nothing.
  std::vector<std::pair<NodeNumber, uint32_t>> shares;  // Sums to handed_on.
  ArgumentBytes argument_bytes;
  lease_queue_internal::List<Record, lease_queue_internal::OfEntry> leases;

  bool waiting() const { return WaitHook::is_linked(); }
  uint32_t missing() const {
    if (silent) return 0;
    // An owner without queued tasks wants what it holds, whatever this node thinks that to be: its
    // word and the other nodes' about returned leases cross. It speaks again when it needs more.
    if (backlog == 0 && id.via == 0 && !spec->actor) return 0;
    const uint64_t have = uint64_t{held} + handed_on;
    return wanted > have ? static_cast<uint32_t>(wanted - have) : 0;
  }
};

struct LeaseQueue::Class : lease_queue_internal::Hook<lease_queue_internal::OfPool> {
  std::shared_ptr<const LeaseSpec> spec;  // Of its first entry: equal resources and strategy.
  Pool* pool = nullptr;
  size_t entries = 0;  // Waiting or not.
  size_t handed = 0;   // Of those that wait, handed on by other nodes.
  // Those that hold nothing come first, in turn; then the others, who has least of the first few.
  lease_queue_internal::List<Entry, lease_queue_internal::OfClass> starving;
  lease_queue_internal::List<Entry, lease_queue_internal::OfClass> waiting;
  uint32_t overtaken = 0;  // Grants to other classes since head_since.
  Nanos head_since = 0;    // Since when its next one waits.
  uint32_t failures = 0;   // Reservations that ran out.
  uint64_t epoch = 0;      // When `infeasible` and `local` were found; 0: never.
  bool infeasible = false;
  bool local = false;              // This node could hold it.
  uint64_t no_room_elsewhere = 0;  // In this epoch it is the local node or none.
  Nanos gave_back_at = 0;          // One after the other goes back to who handed it on.

  bool waits() const { return is_linked(); }
  bool empty() const { return starving.empty() && waiting.empty(); }
  Entry& Head(const LeaseQueue& queue);
  Entry* FirstOfThisNode();  // The next one that other nodes may get; nullptr: none.
  template <class Visit>
  void ForEachWaiting(Visit&& visit) const {
    for (const auto* list : {&starving, &waiting}) {
      for (const Entry& entry : *list) {
        visit(entry);
      }
    }
  }
};

struct LeaseQueue::Pool {
  PlacementGroupId group;  // Nil: the node.
  size_t classes = 0;
  lease_queue_internal::List<Class, lease_queue_internal::OfPool> waiting;
  lease_queue_internal::List<Entry, lease_queue_internal::Holding> holders;
  Class* reserving = nullptr;
  Nanos reserving_since = 0;
  Resources yielding;                               // Held by tasks that run.
  Resources coming;                                 // Asked back lately.
  std::deque<std::pair<LeaseNumber, Nanos>> asked;  // When what is in `coming` was asked back.
  // Counts what may let a lease be asked back, other than time. At `barren_version` none could
  // before `barren_until`.
  uint64_t version = 1;
  uint64_t barren_version = 0;
  Nanos barren_until = 0;
  Amount lent_waiting = 0;    // CPUs of calls that wait for admission.
  Nanos overdrawn_since = 0;  // Since when more CPUs are in use than there are. 0: they are not.
  Nanos soonest = kForever;   // When a lease that is spared now no longer is.
  Nanos timer = kForever;     // Registered in timers_.
  Nanos next = kForever;      // As found by the Serve under way.

  bool is_node() const { return group.is_nil(); }
};

struct LeaseQueue::Owner {
  lease_queue_internal::List<Entry, lease_queue_internal::OfOwner> entries;
  size_t count = 0;
};

}  // namespace sheaf
