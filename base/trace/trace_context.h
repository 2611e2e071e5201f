// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Whose trace a call belongs to, as OpenTelemetry and W3C Trace Context have it, and which span each
// attempt of a call is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/ids.h"

namespace sheaf {

// A span that others are below. Travels in pushes (worker/wire.h) and lies in events
// (telemetry/task_events.h), whoever may have written it: any bits are one.
struct TraceContext {
  uint64_t trace_high = 0, trace_low = 0;  // The trace's id, as its 32 digits read; both 0: none.
  uint64_t span = 0;                       // The span's id, as its 16 digits read.
  uint64_t flags = 0;                      // Those of a traceparent.

  static constexpr uint64_t kSampled = 1;
  bool is_set() const { return (trace_high | trace_low) != 0; }
  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};
static_assert(sizeof(TraceContext) == 32 && std::is_trivially_copyable_v<TraceContext>);

// The call that submits others: what they are told of it.
struct CallOrigin {
  TaskId task{};  // Nil: user code of a driver, or none.
  uint32_t attempt = 0;
  TraceContext trace{};  // Not set: it belongs to nobody's trace.
};

// All bits of `value` in all of the result (the finalizer of SplitMix64).
constexpr uint64_t Mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// Tells attempts of calls apart that one process ran for several owners under one number. A push has
// it of the call that made it, beside that one's number; 0: a driver's own. Of large attempts the
// last 16 bits count, as in events.
inline uint16_t TagOf(TaskId task, uint32_t attempt) {
  return task.is_nil()
             ? 0
             : static_cast<uint16_t>(Mixed(task.maker_bits + static_cast<uint16_t>(attempt)) | 1);
}

// The span of the attempt with that tag that the process `ran_in` ran. Whoever knows a call's owner,
// which ran its parent, and what the push says of the parent, knows the parent's span. Never 0.
inline uint64_t SpanOf(uint64_t ran_in, uint64_t sequence_bits, uint16_t tag) {
  return Mixed(Mixed(ran_in ^ uint64_t{tag} << 16) + sequence_bits) | 1;
}

}  // namespace sheaf
