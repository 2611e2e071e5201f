// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who gets a worker next on this raylet. Owners state how many leases of a kind they can use; the
// queue grants them as the ledger has room, asks some back when others wait, and hands demands to
// other nodes. Pure state machine: events in, actions out, time as an argument. One thread. Its
// work per grant and per return does not depend on the number of tasks behind a demand, nor on the
// number of owners that ask for the same.
//
//   entry   one demand: (owner, key, the node that sent it on)
//   class   entries that ask for the same resources in the same place; served in turn
//   pool    the node itself, or one placement group: classes that compete with each other
//
// Between classes the one that was served least recently comes first. A class that does not fit is
// overtaken at most `overtakes_max` times or for `reserve_after`; then what it needs is kept free
// until it fits, unless an actor or a blocked worker holds it (nobody knows when those end), and
// for `reservation_limit` at most.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/resources.h"
#include "proto/raylet.pb.h"
#include "raylet/scheduling/resource_ledger.h"
#include "scheduling/cluster_view.h"
#include "scheduling/lease_spec.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {

// Times a demand is handed on: to where there is room once, and what finds none there goes back to
// who knows its owner; among the bundles of a placement group twice.
inline constexpr uint32_t kHopsToRoom = 1;
inline constexpr uint32_t kMaxHops = 2;
inline constexpr uint32_t kMaxWanted = 1'000'000;  // Of one demand; more is cut to this.
inline constexpr size_t kMaxKeysPerOwner = 1'000'000;

struct LeaseQueueOptions {
  uint32_t overtakes_max = 32;
  Nanos reserve_after = 200 * kMillisecond;
  Nanos reservation_limit = 30 * kSecond;
  Nanos quantum = 10 * kMillisecond;  // A busy lease is asked back for an equal only after this.
  Nanos patience =
      100 *
      kMillisecond;  // An owner that keeps a lease so long after kRevoke: another is asked as well.
  Nanos lend_after = 5 * kMillisecond;  // A worker blocked so long lends its CPUs.
  uint32_t lenders_max = 512;           // Workers whose CPUs are lent at one time.
  uint32_t free_leases_max = 256;       // Of one demand for tasks that need no resources.
};

// One demand.
struct DemandId {
  ProcessId owner;
  uint64_t key = 0;
  NodeNumber via = 0;  // The raylet that handed it on; 0: the owner itself.

  friend auto operator<=>(const DemandId&, const DemandId&) = default;
  template <class H>
  friend H AbslHashValue(H h, const DemandId& id) {
    return H::combine(std::move(h), id.owner, id.key, id.via);
  }
};

struct LeaseAction {
  enum class Kind : uint8_t {
    // The resources of Find(lease) are taken: find or start a worker for it, bind it, tell both. If
    // that fails:
    // OnGrantFailed or OnReturn.
    kGrant,
    // Ask `demand.owner` to give `lease` back: somebody else waits. At most once per lease.
    kRevoke,
    // End `lease` at its worker at once (its owner is gone, or its placement group: `error`), kill
    // it if it is busy,
    // then OnReturn.
    kEnd,
    // Tell the owner that this demand is dropped: `error`, `words`.
    kRefuse,
    // Tell the owner that nothing can satisfy the demand now; it stays. Once, until that changes.
    kNotice,
    // Send the raylet of `node` this demand with `wanted` (absolute, as its part), via = this node,
    // `hops`. 0 takes it back.
    kSpill,
    // Tell the raylet `node`, which handed this demand on, that only `wanted` of it stays here:
    // others have room and it may not be handed on again.
    kGiveBack,
  };
  Kind kind = Kind::kGrant;
  DemandId demand;
  LeaseNumber lease = 0;
  NodeNumber node = 0;
  uint32_t wanted = 0;
  uint32_t hops = 0;
  ErrorKind error = ErrorKind::kNone;
  std::string words;
};

// A lease that is out: from kGrant until OnReturn.
struct Lease {
  LeaseNumber number = 0;
  DemandId demand;
  std::shared_ptr<const LeaseSpec> spec;
  Allocation allocation;
  Nanos granted_at = 0;
  Nanos blocked_since = 0;  // 0: it is not.
  bool revoked = false;     // It was asked back.
  bool ending = false;      // kEnd was said.
};

class LeaseQueue {
 public:
  // `ledger`, `view` (which contains the local node) and `random` outlive the queue. The queue
  // keeps view.here().available equal to the ledger's, and subtracts from other nodes what it hands
  // to them.
  LeaseQueue(const LeaseQueueOptions& options, ResourceLedger& ledger, ClusterView& view,
             Random& random);
  ~LeaseQueue();

  // `demand` is absolute: `wanted` leases in all, held ones included; none is granted while the
  // owner says that it has no backlog. A repeat changes nothing. An owner that returns a lease for
  // good lowers `wanted` first, or gets another. An actor's demand ends with its lease: to restart,
  // ask again, with the spec. Malformed demands are refused. `via` and `hops` when another raylet
  // handed it on. `argument_bytes`: of the first waiting task's
  // arguments, by the node that holds them.
  void OnDemand(ProcessId owner, const proto::LeaseDemand& demand, Nanos now,
                ArgumentBytes argument_bytes = {}, NodeNumber via = 0, uint32_t hops = 0);
  // `node` keeps only `kept` of what it got of this demand, and has it for the `hops`-th time.
  void OnGivenBack(ProcessId owner, uint64_t key, NodeNumber node, uint32_t hops, uint32_t kept,
                   Nanos now);
  // Comes before OnReturn: the owner of `lease` had nothing to do for it. If the demand was handed
  // on, this node counts one less as wanted, and says so to who sent it; the owner's own node hears
  // that from the owner.
  void OnUnneeded(LeaseNumber lease);
  // Comes before OnReturn: `lease` was taken from its owner, which did not answer when it was asked
  // back. That demand waits until the owner speaks again (OnDemand, OnOwnerSpoke).
  void OnOwnerSilent(LeaseNumber lease);
  void OnOwnerSpoke(ProcessId owner, Nanos now);
  // `lease` is over: given back, its worker died, or it was never bound. false: unknown (a repeat).
  bool OnReturn(LeaseNumber lease, Nanos now);
  // No worker can be had for `lease`, and trying again would not help: the whole demand is refused.
  void OnGrantFailed(LeaseNumber lease, ErrorKind error, const std::string& words, Nanos now);
  // The process is dead or left: its queued demands go, kEnd for each of its leases.
  void OnOwnerGone(ProcessId owner, Nanos now);
  // The worker of `lease` waits in user code, or goes on. CPUs are lent after `lend_after`
  // (OnTick).
  // `awaits_admission`: of its arguments (argument_ledger.h). Then its demand gets none of the CPUs
  // that such calls lend: its next call would wait as well, and so on.
  void OnBlocked(LeaseNumber lease, Nanos now, bool awaits_admission = false);
  void OnUnblocked(LeaseNumber lease, Nanos now);
  // Nodes came, went, or reported (view.nodes changed).
  void OnClusterChanged(Nanos now);
  // view.here().draining became true. Leases of tasks outside of placement groups are asked back,
  // so that their owners go on elsewhere; actors stay until they end.
  void OnDraining(Nanos now);
  // view.groups[group] changed, or bundles of it came to or left the ledger.
  void OnGroupChanged(PlacementGroupId group, Nanos now);
  // The ledger got room by other means than OnReturn (a bundle returned).
  void OnRoom(Nanos now);
  // What the oldest pending placement group lacks on this node, so that leases make room for it;
  // nullopt: none waits.
  void SetGroupWaiting(std::optional<Resources> resources, Nanos now);
  // To be called at NextTick().
  void OnTick(Nanos now);
  Nanos NextTick() const;  // kForever: nothing is timed.

  // What is to be done, in order; cleared. A kGrant may name a lease that an action before it in
  // the same batch of events ended: Find() is nullptr then, or `ending` is set.
  std::vector<LeaseAction> TakeActions();

  const Lease* Find(LeaseNumber lease) const;
  // What a demand asks for; nullptr: unknown, or dropped.
  const LeaseSpec* FindSpec(const DemandId& demand) const;
  // All leases out, by number. For listings.
  std::vector<const Lease*> Leases() const;

  // A demand of which not all is granted, for listings and `why`.
  struct Pending {
    DemandId demand;
    const LeaseSpec* spec = nullptr;  // Valid until the next event.
    uint32_t missing = 0;             // wanted - held here - handed on.
    uint32_t held = 0;
    uint32_t handed_on = 0;
    uint64_t backlog = 0;
    Nanos since = 0;
    uint32_t overtaken = 0;  // Grants to others since it came to the head of its class.
    bool reserving = false;  // Room is being kept free for it.
    bool withheld = false;   // Room is being kept free for another.
    bool infeasible = false;
  };
  // In the order in which they would be served if all fitted.
  std::vector<Pending> AllPending() const;
  // nullopt: no such demand, or all of it is granted here.
  std::optional<Pending> FindPending(ProcessId owner, uint64_t key) const;
  size_t leases_out() const;
  size_t lenders() const { return lenders_; }
  const LeaseQueueOptions& options() const { return options_; }
  const ResourceLedger& ledger() const { return ledger_; }
  const ClusterView& view() const { return view_; }

 private:
  // raylet/scheduling/lease_queue_state.h.
  struct Record;
  struct Entry;
  struct Class;
  struct Pool;
  struct Owner;
  enum class Served : uint8_t { kNo, kYes, kChanged };  // kChanged: classes came or went.

  // lease_queue.cc: entries, classes and pools come and go.
  Entry* AddEntry(const DemandId& id, const proto::LeaseDemand& demand, uint32_t hops);
  void DropEntry(Entry* entry);
  void Enqueue(Entry& entry, Nanos now);
  void Dequeue(Entry& entry);
  void AppendTo(Class& of, Entry& entry);
  void Refuse(const DemandId& id, ErrorKind error, std::string words);
  void RefuseEntry(Entry& entry, ErrorKind error, const std::string& words);
  void SetWanted(Entry& entry, uint32_t wanted, Nanos now);
  void LoseOwner(Entry& entry);
  void TakeShareBack(Entry& entry, uint32_t count);
  void EndLease(Record& record, ErrorKind error, std::string words);
  Entry* EraseRecord(LeaseNumber lease);  // Its entry; nullptr: unknown.
  void LendDue(Nanos now);
  void LeavePool(Record& record);

  // lease_serving.cc: who is next, and where.
  void Serve(Pool& pool, Nanos now);
  void ServeClasses(Pool& pool, Nanos now);
  Served ServeOne(Class& of, Nanos now);
  Placement Decide(Class& of, const Entry& head);
  uint32_t CountFor(const Entry& head, const NodeView& node) const;
  bool Grant(Class& of, Entry& entry, Nanos now);
  Served HandOn(Class& of, Entry& entry, NodeNumber node, uint32_t count, Nanos now);
  Served GiveBack(Entry& entry);
  void RefuseToQueue(Entry& entry);
  bool BackIsDue(Class& of, const Entry& entry, Nanos now);
  void SayKept(const Entry& entry);
  void SetShare(Entry& entry, NodeNumber node, uint32_t share);
  void RefuseAll(Class& of, ErrorKind error, const std::string& words);
  void SetInfeasible(Class& of, bool infeasible);
  void SayInfeasible(Entry& entry);
  void SyncView();

  Pending PendingOf(const Entry& entry) const;  // lease_listing.cc

  // lease_fairness.cc: nobody waits for ever.
  bool Fits(const Class& of) const;
  bool Withheld(const Class& of) const;
  bool AwaitsLent(const Entry& entry) const;
  bool Obtainable(const Class& of) const;
  Resources FreeIn(const Pool& pool) const;
  bool KeepsReservation(Pool& pool, Nanos now);
  void UpdateReservation(Pool& pool, Nanos now);
  void AskBack(Pool& pool, Nanos now);
  void AskForDeficit(Pool& pool, Nanos now);
  void AskBackLease(Pool& pool, Record& victim, Nanos now);
  void AskForClass(Pool& pool, Class& of, Resources* free, int* looked, Nanos now);
  bool AskFor(Pool& pool, Class& of, const Entry* waiter, uint32_t share, Resources* free,
              Nanos now);
  Record* ChooseVictim(Pool& pool, const Entry* waiter, uint32_t share, const Resources& missing,
                       Nanos now);
  void ForgetRevoked(Pool& pool, Nanos now);
  void SetTimer(Pool& pool);

  const LeaseQueueOptions options_;
  ResourceLedger& ledger_;
  ClusterView& view_;
  Random& random_;
  uint64_t epoch_ = 1;  // Counts OnClusterChanged.
  NodeNumber last_spread_ = 0;
  LeaseNumber last_lease_ = 0;
  size_t lenders_ = 0;
  absl::flat_hash_map<LeaseNumber, std::unique_ptr<Record>> leases_;
  absl::flat_hash_map<DemandId, std::unique_ptr<Entry>> entries_;
  absl::flat_hash_map<ProcessId, std::unique_ptr<Owner>> owners_;
  absl::flat_hash_map<std::pair<Resources, Strategy>, std::unique_ptr<Class>> classes_;
  absl::flat_hash_map<PlacementGroupId, std::unique_ptr<Pool>> group_pools_;
  std::unique_ptr<Pool> node_pool_;
  std::unique_ptr<Class> group_waiting_;  // Stands in node_pool_ for the pending placement group.
  // Entries by the other nodes that own, sent or got them.
  absl::btree_map<NodeNumber, size_t> foreign_;
  std::deque<std::pair<LeaseNumber, Nanos>> blocked_;           // Not lent yet, by time.
  absl::btree_set<std::pair<Nanos, PlacementGroupId>> timers_;  // Of pools; nil: the node's.
  std::vector<LeaseAction> actions_;
};

}  // namespace sheaf
