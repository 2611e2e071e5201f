// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Communicator for ranks that share no memory: arrays travel over TCP, straight between each
// two ranks (net_collectives.h), and what the ranks say of their operations over links beside them
// (peer_links.h), so that errors are those of shared memory.
//
// Security. Links and connections listen on options.host alone, and only while the group is formed.
// Both ends prove that they know what the other published or sent (link_formation.cc, net_bulk.cc);
// from then on nothing is authenticated or encrypted. Use such groups in a network that only the
// cluster is in.
#pragma once

#include <memory>

#include "collective/communicator.h"
#include "collective/rendezvous.h"

namespace sheaf {

// Meets the other ranks at `rendezvous`, which is used until this returns. Errors as those of
// FormShmCommunicator.
absl::StatusOr<std::unique_ptr<Communicator>> FormApartCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous);

}  // namespace sheaf
