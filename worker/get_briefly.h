// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A get for a thread that holds what other threads need, as Python's interpreter lock is: to give
// that up, and to have it again, takes longer than the answer to a short call.
#pragma once

#include "worker/runtime.h"

namespace sheaf {

// Whether the value of `object` is in this process's memory, or comes there within some
// microseconds; then it is `*view`. False at once where that was so in vain lately. Thread-safe; it
// waits for other threads no longer than for the runtime's lock.
bool GetBriefly(Runtime& runtime, const ObjectHandle& object, ObjectView* view);

}  // namespace sheaf
