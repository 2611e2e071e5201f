// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reads the task events of one process, alive or dead (task_events.h). One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "telemetry/event_words.h"
#include "telemetry/task_events.h"

namespace sheaf::telemetry {

// Of one function of one process.
struct FunctionFigures {
  std::string name;
  CallKind kind = CallKind::kTask;
  uint64_t ended[kOutcomes] = {};  // By Outcome.
  uint64_t timed = 0, run_ns = 0, longest_ns = 0;
  uint64_t run_time[kRunTimeBuckets] = {};

  // Adds the numbers of `other`, name and kind aside.
  void Add(const FunctionFigures& other);
};

class EventReader {
 public:
  explicit EventReader(const EventPage& page) : page_(page) {}

  // Calls `visit` with what has been recorded since the last call: first ended calls, then failures,
  // each in their order; `text` is empty but for failures, `trace` not set where the call is in
  // nobody's. Returns how many were overwritten before they were read.
  using Visit =
      absl::FunctionRef<void(const TaskEvent&, std::string_view text, const TraceContext& trace)>;
  uint64_t Drain(Visit visit);
  // Whether Drain would find something.
  bool HasNews() const;

  // Calls `visit` with what runs, as far as it is known, and a number of its thread.
  void VisitRunning(absl::FunctionRef<void(const RunningCall&, uint16_t thread)> visit) const;

  // 1 + how many functions have a number: each number below is one (kOtherFunction, too).
  size_t functions() const;
  FunctionFigures FiguresOf(uint16_t function) const;
  JobNumber job() const;
  ActorId actor() const;

 private:
  const EventPage& page_;
  uint64_t ended_read_ = 0, failures_read_ = 0;
};

}  // namespace sheaf::telemetry
