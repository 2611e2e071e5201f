// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which address of this machine others see.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rpc/listen_address.h"

namespace sheaf {

// The address that this machine has on its way to `there`, whose host is a numeric address, as the
// routing table says; nothing is sent or asked. kUnavailable: it is a name, or there is no way.
absl::StatusOr<std::string> AddressOnTheWayTo(const ListenAddress& there);

}  // namespace sheaf
