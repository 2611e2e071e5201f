// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Communicator for ranks that share no memory: arrays travel by Gloo's TCP transport, straight
// between each two ranks (net_collectives.h), and what the ranks say of their operations over links
// of our own (peer_links.h), so that errors are those of shared memory.
//
// Security. Links and pairs listen on options.host alone, and only while the group is formed. Both
// ends prove that they know what the other published or sent (link_formation.cc, net_bulk.cc);
// from then on nothing is authenticated or encrypted, and a packet that is forged into a connection
// of Gloo may end the process. Use such groups in a network that only the cluster is in.
#pragma once

#include <memory>

#include "collective/communicator.h"
#include "collective/rendezvous.h"

namespace sheaf {

// Meets the other ranks at `rendezvous`, which is used until this returns. Errors as those of
// FormShmCommunicator; kUnimplemented: Gloo is not installed.
absl::StatusOr<std::unique_ptr<Communicator>> FormGlooCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous);

}  // namespace sheaf
