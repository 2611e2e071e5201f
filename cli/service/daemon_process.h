// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node does to its own process before it begins.
#pragma once

#include "base/unique_fd.h"

namespace sheaf::cli {

// Signals that end a node, as something to poll. Blocked here, so in all threads that are started
// later.
UniqueFd BlockSignals();
// The number of one that came; 0: none has.
int TakeSignal(int signals);
// Who started us may have closed them; nothing else may get their numbers.
void OpenStandardStreams();

}  // namespace sheaf::cli
