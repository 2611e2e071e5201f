// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// When the calls of this worker began and ended: the last few thousand, in a file of the session
// directory that sheaf.timeline() reads, also after the worker's death. Everything here is called
// with the GIL held, which is also what guards the state.
//
//   offset  0  u64 how many calls were recorded, ever; 56 bytes that are 0
//   offset 64  records of 64 bytes, the n-th call at n % capacity:
//              u64 begin, u64 end (nanoseconds, monotonic), u32 thread, u32 0, 40 bytes of name,
//              ended by 0 if it is shorter
#pragma once

#include <string>

#include "base/clock.h"
#include "python_bindings/core/python.h"

namespace sheaf::python {

// Remembers a call that began then and ends now. The first one opens the file; without a file
// nothing is remembered.
void RecordCall(std::string_view name, Nanos begin);

}  // namespace sheaf::python
