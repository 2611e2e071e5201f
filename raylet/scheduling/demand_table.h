// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All demands, the leases that they got, and the classes and capacities that they stand in: who
// comes, goes, waits, in which order. Decides nothing. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/resources.h"
#include "raylet/scheduling/demand.h"
#include "raylet/scheduling/lease.h"
#include "scheduling/lease_spec.h"

namespace sheaf {

class DemandTable {
 public:
  using Owned = lease_queue_internal::List<Demand, lease_queue_internal::OfOwner>;

  DemandTable();
  DemandTable(const DemandTable&) = delete;
  DemandTable& operator=(const DemandTable&) = delete;

  // --- Demands. ---
  Demand* Find(const DemandId& id) const;  // Null: unknown.
  Owned* OwnedBy(ProcessId owner) const;   // In the order in which they came; null: none.
  bool HasMost(ProcessId owner) const;     // kMaxKeysPerOwner.
  // `id` is not known. Its class and capacity come with it.
  Demand& Add(const DemandId& id, LeaseSpec spec, uint32_t hops);
  // It does not wait and holds no lease. Its class goes with the last one; its capacity stays until
  // DropIfUnused.
  void Drop(Demand& demand);
  template <class Visit>
  void ForEach(Visit&& visit) const {  // In no order.
    for (const auto& [id, demand] : demands_) visit(*demand);
  }

  // --- Waiting. ---
  // Behind the others of its class. False: it waits already.
  bool Enqueue(Demand& demand, Nanos now);
  // It waits and was served, or holds nothing any more: behind its like.
  void Requeue(Demand& demand);
  void Dequeue(Demand& demand);

  // --- Leases. ---
  GrantedLease* FindLease(LeaseNumber number) const;  // Null: unknown.
  GrantedLease& AddLease(Demand& demand, Lease lease);
  // What it adds to the sums of its capacity was taken out.
  void EraseLease(GrantedLease& lease);
  std::vector<const Lease*> Leases() const;  // By number.
  size_t leases() const { return leases_.size(); }

  // --- Capacities. ---
  Capacity& node() const { return *node_; }
  Capacity* Find(PlacementGroupId group) const;  // Nil: the node. Null: nobody asks for it.
  void DropIfUnused(Capacity& capacity);
  std::vector<const Capacity*> Capacities() const;  // By group, the node first.
  // The placement group that waits for room, as a class of the node's.
  SchedulingClass& pending_group() const { return *pending_group_; }

  // Counts changes of the cluster, which void what classes know of it.
  uint64_t epoch() const { return epoch_; }
  void OnClusterChanged() { ++epoch_; }
  bool IsInfeasible(const SchedulingClass& cls) const {
    return cls.infeasible && cls.epoch == epoch_;
  }

 private:
  SchedulingClass& ClassOf(const std::shared_ptr<const LeaseSpec>& spec);
  void Append(Demand& demand);

  absl::flat_hash_map<LeaseNumber, std::unique_ptr<GrantedLease>> leases_;
  absl::flat_hash_map<DemandId, std::unique_ptr<Demand>> demands_;
  absl::flat_hash_map<ProcessId, std::unique_ptr<DemandOwner>> owners_;
  absl::flat_hash_map<std::pair<Resources, Strategy>, std::unique_ptr<SchedulingClass>> classes_;
  absl::flat_hash_map<PlacementGroupId, std::unique_ptr<Capacity>> groups_;
  const std::unique_ptr<Capacity> node_;
  const std::unique_ptr<SchedulingClass> pending_group_;
  uint64_t epoch_ = 1;
};

}  // namespace sheaf
