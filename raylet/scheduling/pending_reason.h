// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Why is it pending? In words, for `sheaf why`, listings and errors. Each answer names what is
// waited for, who has it, and what would help. Pure; reads, changes nothing.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "base/ids.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/placement_group_ledger.h"

namespace sheaf {

// What runs on a lease: what it was granted for, or another function of its owner.
using NameOfLease = absl::FunctionRef<std::string(const Lease& lease)>;

// "waits for 1 CPU: 2 of 2 CPU are held by 2 leases of f (owner 1.5)".
std::string WhyPending(const LeaseQueue::Pending& pending, const LeaseQueue& queue,
                       NameOfLease name_of);
// A lease that is granted but has no worker yet. `starting`: workers of its job and environment
// that start now.
std::string WhyNoWorker(const Lease& lease, int starting);
// "waits for room: 2 CPU ...", "is placed on node 1", "was removed, or was never made".
std::string WhyGroup(const PlacementGroupLedger& groups, const LeaseQueue& queue,
                     PlacementGroupId group, NameOfLease name_of);

}  // namespace sheaf
