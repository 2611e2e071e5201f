// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Communicator for nodes with several ranks each: shared memory within a node, and the lowest
// rank of each node, its leader, over the network (apart_communicator.h, with what it says about
// security). Pairs of ranks on two nodes talk to each other without the leaders.
//
// float16 and bfloat16 are rounded once within each node and once between them.
#pragma once

#include <memory>

#include "collective/communicator.h"
#include "collective/rendezvous.h"

namespace sheaf {

// Meets the other ranks at `rendezvous`, which is used until this returns. Errors as those of
// FormApartCommunicator; they name ranks of the whole group.
absl::StatusOr<std::unique_ptr<Communicator>> FormHierarchicalCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous);

// The one that fits: shared memory if all ranks are on one node, else the above. Every rank calls
// this, and finds out by itself.
absl::StatusOr<std::unique_ptr<Communicator>> FormCommunicator(const CommunicatorOptions& options,
                                                               Rendezvous& rendezvous);

}  // namespace sheaf
