// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the processor time of a C++ worker's calls goes, always on (telemetry/profile_page.h).
//
// A thread that runs calls has a timer of its own processor time: so often a second of work, and never
// while it waits, the kernel interrupts it with a real-time signal (SampleSignal; SIGPROF is for the
// profilers of users). The handler notes in which functions it is. It follows the frame pointers from
// the interrupted one to the frame that began the call, so it reads this thread's stack and nothing
// else, takes no lock and cannot fail, whatever it has interrupted. A thread of the sampler, asleep while
// nobody works, names what was noted and writes it into the segment.
//
// Callers that were compiled without frame pointers are missing in a stack; its innermost function and
// the call that it belongs to are not. Of code that runs on another stack than its thread's (fibers) the
// innermost function is noted alone. What has no symbol is its library. Where the program handles that
// signal itself, nothing is sampled.
//
//   thread of a call (handler)                 thread of the sampler
//   notes samples[written % N]
//   written (release)                     ->   reads up to it
//   asks whether there is room            <-   read (release)
// The handler alone writes `written`, the sampler alone `read`; a full ring loses the sample's stack, and
// its time goes to the function that was called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sheaf/internal/registry.h"

namespace sheaf::inline v1::internal {

int SampleSignal();

// Where the main thread's stack lies: for a template, whose workers need not ask the kernel for all
// their mappings. Not thread-safe.
void LearnMainStack();

// One per process at a time. Thread-safe.
class CallSampler {
 public:
  // `segment`: the bytes of the process's; `hz`: so often a second of work, at least 1. nullptr:
  // somebody else handles SampleSignal().
  static std::unique_ptr<CallSampler> Start(std::shared_ptr<std::byte> segment, int64_t hz);
  // Notes all samples that were taken, and takes no more.
  ~CallSampler();
  CallSampler(const CallSampler&) = delete;
  CallSampler& operator=(const CallSampler&) = delete;

 private:
  class Writer;
  explicit CallSampler(std::unique_ptr<Writer> writer);
  const std::unique_ptr<Writer> writer_;
};

// What the calling thread runs.
struct RunningFunction {
  const FunctionRecord* function = nullptr;  // nullptr: no call.
  const void* outermost = nullptr;           // All frames of the call lie below it.
};
RunningFunction CurrentFunction();

// The calling thread runs `function` while this lives, as a local variable of who calls it; nullptr:
// what it runs is no call's.
class SampledCall {
 public:
  explicit SampledCall(const FunctionRecord* function);
  ~SampledCall();
  SampledCall(const SampledCall&) = delete;
  SampledCall& operator=(const SampledCall&) = delete;

 private:
  const RunningFunction outer_;
};

}  // namespace sheaf::inline v1::internal
