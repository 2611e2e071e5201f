// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the time of a worker's calls goes, always on (telemetry/profile_page.h). A thread, started by
// the first call and asleep while nothing runs, asks so often a second for a sample. It is taken where
// the main thread comes by next in Python, so that nobody waits for the GIL; at the end of a call that
// does not come by; or by the thread itself, with the GIL, when the others wait or run native code.
//
// A sample gives the time since the last one to the functions in which the threads that run calls are,
// and to those of other threads (event loops, the user's own) what processors have worked for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "python_bindings/core/python.h"

namespace sheaf::python {

// Before the first call, with the bytes of the process's segment. `hz` 0: nothing is sampled.
void PrepareSampler(std::shared_ptr<std::byte> segment, int64_t hz);

struct CallThread;

// The calling thread runs a call while one lives; made and ended with the GIL.
class SampledCall {
 public:
  SampledCall();
  ~SampledCall();
  SampledCall(const SampledCall&) = delete;
  SampledCall& operator=(const SampledCall&) = delete;
  void Calls(const Owned& function) { function_ = function; }

 private:
  CallThread* thread_ = nullptr;  // nullptr: nothing is sampled.
  Owned function_;
};

// With the GIL: an event loop begins a call.
void SampleAsyncCall();

}  // namespace sheaf::python
