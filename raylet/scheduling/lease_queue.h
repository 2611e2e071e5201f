// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who gets a worker next on this raylet. Owners state how many leases of a kind they can use; the
// queue grants them as the ledger has room, asks some back when others wait, and spills demands
// back to other nodes. Pure state machine: events in, actions out, time as an argument. One thread.
// Its work per grant and per return does not depend on the number of tasks behind a demand, nor on
// the number of owners that ask for the same.
//
// Between classes of demands the one that was served least recently comes first. A class that does
// not fit is overtaken at most `overtakes_max` times or for `reserve_after`; then what it needs is
// kept free until it fits.
//
// All of it, in the order in which it is best read:
//
//   scheduling/lease_spec.h          what a lease is asked for
//   scheduling/scheduling_policy.h   on which node it should be, from a cluster_view.h
//   resource_ledger.h                who holds how much of this node
//   lease.h                          a lease, its demand, and what is to be done about them
//   lease_queue.h                    here: the events, and who is told of them
//   demand.h, demand_table.h         demands, classes of them, and what they compete for
//   lease_server.h                   who is next, and where
//   spillback.h                      what other nodes are asked for
//   reservations.h                   room kept free for a large request
//   lease_revoker.h                  leases asked back for those who wait
//   cpu_lending.h                    CPUs of workers that wait
//   pending_reason.h                 why a demand waits, in words
//   revocations.h                    what the raylet does with an owner that does not answer
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/resources.h"
#include "proto/raylet.pb.h"
#include "raylet/scheduling/lease.h"
#include "raylet/scheduling/resource_ledger.h"
#include "scheduling/cluster_view.h"
#include "scheduling/lease_spec.h"
#include "scheduling/scheduling_policy.h"

namespace sheaf {

struct Demand;
struct LeaseQueueParts;  // lease_queue_parts.h

class LeaseQueue {
 public:
  // `ledger`, `view` (which contains the local node) and `random` outlive the queue. The queue
  // keeps view.here().available equal to the ledger's, and subtracts from other nodes what it hands
  // to them.
  LeaseQueue(const LeaseQueueOptions& options, ResourceLedger& ledger, ClusterView& view,
             Random& random);
  ~LeaseQueue();

  // `message` is absolute: `wanted` leases in all, held ones included; none is granted while the
  // owner says that it has no backlog. A repeat changes nothing. An owner that returns a lease for
  // good lowers `wanted` first, or gets another. An actor's demand ends with its lease: to restart,
  // ask again, with the spec. Of the spec of a known demand only the name counts. Malformed demands
  // are refused. `via` and `hops` when another raylet spilled it back to here. `argument_bytes`: of
  // the first waiting task's arguments, by the node that holds them.
  void OnDemand(ProcessId owner, const proto::LeaseDemand& message, Nanos now,
                ArgumentBytes argument_bytes = {}, NodeNumber via = 0, uint32_t hops = 0);
  // `node` keeps only `kept` of what it got of this demand, and has it for the `hops`-th time; for want
  // of room, or since no more is needed there.
  void OnGivenBack(ProcessId owner, uint64_t key, NodeNumber node, uint32_t hops, uint32_t kept,
                   bool unneeded, Nanos now);
  // Comes before OnReturn: the owner of `lease` had nothing to do for it. If another node sent
  // the demand, this one counts one less as wanted, and says so to that node; the owner's own node
  // hears that from the owner.
  void OnUnneeded(LeaseNumber lease);
  // Comes before OnReturn: `lease` was taken from its owner, which did not answer when it was asked
  // back. That demand waits until the owner speaks again (OnDemand, OnOwnerSpoke); of an owner of
  // another node OnDemand may never come, as that node has nothing new to ask for.
  void OnOwnerSilent(LeaseNumber lease);
  void OnOwnerSpoke(ProcessId owner, Nanos now);
  // `lease` is over: given back, its worker died, or it was never bound. false: unknown (a repeat).
  bool OnReturn(LeaseNumber lease, Nanos now);
  // No worker can be had for `lease`, and trying again would not help: the whole demand is refused.
  void OnGrantFailed(LeaseNumber lease, ErrorKind error, const std::string& message, Nanos now);
  // The process is dead or left: its queued demands go, kEnd for each of its leases.
  void OnOwnerGone(ProcessId owner, Nanos now);
  // The worker of `lease` waits in user code, or goes on. OnTick lends its CPUs after `lend_after`.
  // `awaits_admission`: of its arguments (argument_ledger.h). Then its demand gets none of the CPUs
  // that such calls lend: its next call would wait as well, and so on.
  void OnBlocked(LeaseNumber lease, Nanos now, bool awaits_admission = false);
  void OnUnblocked(LeaseNumber lease, Nanos now);
  // Its owner has done with it, and its worker leaves within some time: OnReturn follows. Nobody asks
  // for it back, the end of its owner is not the worker's, and its CPUs are lent: what the worker has
  // begun may need them.
  void OnLeaving(LeaseNumber lease, Nanos now);
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
    uint32_t missing = 0;             // wanted - held here - spillback.
    uint32_t held = 0;
    uint32_t spillback = 0;  // Leases that other nodes are asked for.
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
  size_t lenders() const;
  const LeaseQueueOptions& options() const;
  const ResourceLedger& ledger() const;
  const ClusterView& view() const;

 private:
  Demand* AddDemand(const DemandId& id, const proto::LeaseDemand& message, uint32_t hops);
  void SetWanted(Demand& demand, uint32_t wanted, Nanos now);
  void LoseOwner(Demand& demand);
  Demand* EraseLease(LeaseNumber lease);  // What it was granted to; nullptr: unknown.
  void LendDue(Nanos now);
  Pending PendingOf(const Demand& demand) const;

  const std::unique_ptr<LeaseQueueParts> parts_;
};

}  // namespace sheaf
