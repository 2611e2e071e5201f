// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the lease queue consists of. Included by its own files and tests only.
#pragma once

#include "raylet/scheduling/cpu_lending.h"
#include "raylet/scheduling/demand_table.h"
#include "raylet/scheduling/lease_actions.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/lease_revoker.h"
#include "raylet/scheduling/lease_server.h"
#include "raylet/scheduling/reservations.h"
#include "raylet/scheduling/spillback.h"

namespace sheaf {

struct LeaseQueueParts {
  LeaseQueueParts(const LeaseQueueOptions& all_options, ResourceLedger& the_ledger,
                  ClusterView& the_view, Random& random)
      : options(all_options),
        ledger(the_ledger),
        view(the_view),
        spillback(ledger, view, actions),
        reservations(options, ledger, demands),
        revoker(options, ledger, demands, actions),
        lending(options, ledger, demands),
        server({ledger, view, random, demands, actions, spillback, reservations, revoker}) {}

  const LeaseQueueOptions options;
  ResourceLedger& ledger;
  ClusterView& view;
  LeaseActions actions;
  DemandTable demands;
  Spillback spillback;
  Reservations reservations;
  LeaseRevoker revoker;
  CpuLending lending;
  LeaseServer server;
};

}  // namespace sheaf
