// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the threads of this process do, in Python's frames, also while native code holds the GIL.
#pragma once

#include <string_view>

#include "worker/runtime.h"

namespace sheaf::python {

// With the GIL, before TellStacks: remembers what is to be called when nobody gets the GIL. False: an
// exception is set, of a signal handler's.
bool PrepareStacks();
// RuntimeOptions::tell_stacks. Without the GIL, on any thread. A thread walks the stacks with the
// GIL, which is safe while they change. Where it does not get the GIL, native code has it, no stack
// changes, and faulthandler writes them without.
proto::ProcessStacks TellStacks();

// Of what faulthandler writes; lines that mean nothing are skipped.
proto::ProcessStacks ParseFaultHandler(std::string_view text);

}  // namespace sheaf::python
