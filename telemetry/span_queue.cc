// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/span_queue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace sheaf::telemetry {

void SpanQueue::SetCluster(std::string_view cluster_id) {
  for (size_t i = 0; i < cluster_id.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, cluster_id.data() + i, std::min<size_t>(8, cluster_id.size() - i));
    cluster_high_ = Mixed(cluster_high_ + word);
    cluster_low_ = Mixed(cluster_low_ ^ ~word);
  }
}

// All nodes of a cluster come to the same.
TraceContext SpanQueue::TraceOf(JobNumber job) const {
  return {Mixed(cluster_high_ + job) | 1, Mixed(cluster_low_ + job), 0, TraceContext::kSampled};
}

// By the trace alone, so that a trace is exported whole, by whichever nodes; as the samplers of
// OpenTelemetry do it, by the last 8 bytes of its id.
bool SpanQueue::Samples(const TraceContext& trace, bool of_user) const {
  if (of_user && sampling_.follows_caller) return (trace.flags & TraceContext::kSampled) != 0;
  return sampling_.ratio >= 1 ||
         static_cast<double>(trace.trace_low) < sampling_.ratio * std::ldexp(1.0, 64);
}

void SpanQueue::Add(const TaskEvent& event, const std::shared_ptr<const TaskHistory::Place>& place,
                    std::string_view text, const TraceContext& trace) {
  const bool of_user = trace.is_set();
  CallSpan span{event, of_user ? trace : TraceOf(place->job), place, std::string(text)};
  if (!Samples(span.trace, of_user)) return;
  // Of a call in a user's trace the push names the span that it is below; of others their owner ran
  // the call that made them.
  if (!of_user && event.parent_tag != 0)
    span.trace.span = SpanOf(event.task.maker_bits, event.parent_sequence, event.parent_tag);
  {
    const MutexLock lock(mutex_);
    if (spans_.size() >= kMost || closed_) return CountDropped(1);
    spans_.push_back(std::move(span));
    if (spans_.size() != 1 && spans_.size() != kBatch) return;  // Nobody waits for that.
  }
  changed_.NotifyAll();
}

std::vector<CallSpan> SpanQueue::Take(Nanos patience) {
  std::vector<CallSpan> taken;
  const MutexLock lock(mutex_);
  while (spans_.empty() && !closed_) changed_.Wait(mutex_);
  const Nanos until = Deadline(MonotonicNow(), patience);
  for (Nanos now = MonotonicNow(); spans_.size() < kBatch && !closed_ && now < until;
       now = MonotonicNow())
    changed_.WaitFor(mutex_, until - now);
  const auto end = spans_.begin() + static_cast<ptrdiff_t>(std::min(kBatch, spans_.size()));
  taken.assign(std::make_move_iterator(spans_.begin()), std::make_move_iterator(end));
  spans_.erase(spans_.begin(), end);
  return taken;
}

void SpanQueue::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace sheaf::telemetry
