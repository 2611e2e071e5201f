// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The spans of calls that wait to be exported, at most kMost: whoever adds never waits, what has no
// room is dropped and counted. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/trace/trace_context.h"
#include "telemetry/task_events.h"
#include "telemetry/task_history.h"

namespace sheaf::telemetry {

// One attempt of a call, ended. `trace` has its trace, and the span that it is below: 0: none.
struct CallSpan {
  TaskEvent event;
  TraceContext trace;
  std::shared_ptr<const TaskHistory::Place> place;
  std::string text;  // Of failures.
};

// Which traces are exported.
struct TraceSampling {
  double ratio = 1;            // Of those that begin in Sheaf, jobs; from 0 to 1.
  bool follows_caller = true;  // A user's trace: as its flags say; else by the ratio, too.
};

class SpanQueue {
 public:
  static constexpr size_t kMost = 10'000, kBatch = 512;

  explicit SpanQueue(TraceSampling sampling) : sampling_(sampling) {}
  SpanQueue(const SpanQueue&) = delete;
  SpanQueue& operator=(const SpanQueue&) = delete;

  // Jobs of different clusters are different traces. Called once, before the first Add.
  void SetCluster(std::string_view cluster_id);
  void Add(const TaskEvent& event, const std::shared_ptr<const TaskHistory::Place>& place,
           std::string_view text, const TraceContext& trace);

  // Waits until there are kBatch, or `patience` has passed since it saw the first; then takes the
  // oldest, at most kBatch. None: it was closed, and all are gone.
  std::vector<CallSpan> Take(Nanos patience);
  // Take waits no more.
  void Close();
  // Those that were taken are not to be had by whom they were for.
  void CountDropped(size_t spans) { dropped_.fetch_add(spans, std::memory_order_relaxed); }
  void CountSent(size_t spans) { sent_.fetch_add(spans, std::memory_order_relaxed); }
  // So far.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  bool Samples(const TraceContext& trace, bool of_user) const;
  TraceContext TraceOf(JobNumber job) const;

  const TraceSampling sampling_;
  uint64_t cluster_high_ = 0, cluster_low_ = 0;
  std::atomic<uint64_t> dropped_ = 0, sent_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::deque<CallSpan> spans_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf::telemetry
