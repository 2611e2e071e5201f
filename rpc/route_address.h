// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which address of this machine others see.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rpc/listen_address.h"

namespace sheaf {

// The address that this machine has on its way to `there`, as the routing table says; nothing is
// sent. kUnavailable: no such name, or no way there.
absl::StatusOr<std::string> AddressOnTheWayTo(const ListenAddress& there);

}  // namespace sheaf
