// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The implementations of Communicator that run on CPUs, for the tests that hold for each of them.
#pragma once

#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "collective/net/apart_communicator.h"
#include "collective/net/hierarchical_communicator.h"
#include "collective/shm/shm_communicator.h"

namespace sheaf {

// kChosen finds out by itself that its ranks are on two nodes.
enum class Implementation { kShm, kApart, kHierarchical, kChosen };

inline std::ostream& operator<<(std::ostream& out, Implementation implementation) {
  constexpr const char* kNames[] = {"shm", "apart", "hierarchical", "chosen"};
  return out << kNames[static_cast<int>(implementation)];
}

// Odd and even ranks are on different nodes; for kApart all are.
inline absl::StatusOr<std::unique_ptr<Communicator>> FormFor(Implementation implementation,
                                                             CommunicatorOptions options,
                                                             Rendezvous& rendezvous) {
  switch (implementation) {
    case Implementation::kShm:
      return FormShmCommunicator(options, rendezvous);
    case Implementation::kApart:
      return FormApartCommunicator(options, rendezvous);
    default:
      options.node = options.rank % 2 == 0 ? "even" : "odd";
      return implementation == Implementation::kHierarchical
                 ? FormHierarchicalCommunicator(options, rendezvous)
                 : FormCommunicator(options, rendezvous);
  }
}

}  // namespace sheaf
