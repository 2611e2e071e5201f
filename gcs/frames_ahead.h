// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which frames between raylets and the GCS must not wait behind bulk, as by them nodes live or die,
// and which need not wait for a GCS that is away.
#pragma once

#include <string_view>

#include "base/frame.h"

namespace sheaf {

// Heartbeats and their answers (which hold the leases of actors), and what raylets themselves
// follow: nodes and jobs, their ends above all. These are in order among themselves, which is all
// that their receivers need; whatever an order matters to otherwise goes behind what was said
// before.
bool GoesAhead(FrameKind kind, std::string_view body);

// A request that its sender says again until it is answered, or a heartbeat. It would only pile up
// on a link that is down.
bool IsSaidAgain(FrameKind kind, std::string_view body);

}  // namespace sheaf
