// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Communicator for ranks of one node: shared memory, without copies between arrays that are
// allocated from it. rank_page.h has the protocol, shm_formation.cc how the ranks meet.
#pragma once

#include <memory>

#include "collective/communicator.h"
#include "collective/rendezvous.h"

namespace sheaf {

// Meets the other ranks at `rendezvous`, which is used until this returns.
// kInvalidArgument: the options are wrong by themselves. kDeadlineExceeded: a rank did not come
// within the formation timeout. kUnimplemented: a rank is on another machine or in another
// container. kAlreadyExists: another process claims this rank. kPermissionDenied: the kernel does
// not let ranks open each other's memory. kResourceExhausted: no descriptor or address space.
absl::StatusOr<std::unique_ptr<Communicator>> FormShmCommunicator(
    const CommunicatorOptions& options, Rendezvous& rendezvous);

}  // namespace sheaf
