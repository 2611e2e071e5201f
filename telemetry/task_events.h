// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What calls a process has run, how long they took and how they ended: always on, in the process's
// segment (shm/process_segment.h), so that the raylet reads it without asking, also after a death.
//
//   EventHeader | functions: counts of each | ended calls, a ring | failures, a ring | what runs |
//   the traces of the two rings
//
// Counts are exact. Times are taken of a sample (event_writer.h says which), whose weight stands
// beside each; failures have a ring of their own, so that a flood of successes washes none away.
//
// Who writes: the process alone, under its runtime's lock, so there is one writer. Who reads: the
// raylet, at any time. All words are atomic; a slot of a ring is a seqlock:
//   writer  slot.number = 0; release fence; the words, relaxed; slot.number = its event (release);
//           ring.recorded = events so far (release)
//   reader  number (acquire); the words, relaxed; acquire fence; number again, relaxed: a slot whose
//           number is not the one that is looked for, before or after, is dropped and counted
// Events are numbered from 1, event n lies in slot (n - 1) % capacity. A function's name is written
// before header.functions counts it (release), and never changes. A death between two stores leaves
// one slot whose number is 0, or one count that is an event behind.
// What runs now stands in `running`, a word for each thread, or none: its writer stores it (release)
// when a call begins whose times are taken, and 0 at its end.
// Memory of zeros is valid: nothing has ended yet. A misbehaving writer can only make its own
// numbers and texts wrong: readers check indices and lengths.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/trace/trace_context.h"
#include "shm/process_segment.h"

namespace sheaf::telemetry {

inline constexpr size_t kFunctions =
    512;  // Distinct ones of a process; the rest is kOtherFunction.
inline constexpr uint16_t kOtherFunction = 0;  // The first slot.
inline constexpr std::string_view kOtherFunctionName = "(other functions)";
inline constexpr size_t kEndedCalls = 4096;  // Of the ring.
inline constexpr size_t kFailures = 256;     // Of the ring.
inline constexpr size_t kRunningCalls = 32;  // Threads share a place modulo this.
inline constexpr size_t kFunctionNameBytes = 120;
inline constexpr size_t kErrorTextBytes = 192;

enum class CallKind : uint8_t { kTask = 0, kActorCreation = 1, kActorMethod = 2 };
inline constexpr size_t kCallKinds = 3;
enum class Outcome : uint8_t { kFinished = 0, kFailed = 1, kCancelled = 2 };
inline constexpr size_t kOutcomes = 3;

// Bucket b counts calls of (2^(b + 9), 2^(b + 10)] nanoseconds; the first also shorter ones, the
// last all longer ones: 1 us to 137 s.
inline constexpr size_t kRunTimeBuckets = 28;

// One attempt of one call, ended.
struct TaskEvent {
  TaskId task;
  Nanos begin = 0, end = 0;      // Of the machine's monotonic clock. Equal: it did not run, or only
                                 // its end is known.
  uint64_t parent_sequence = 0;  // TaskId::sequence_bits of the call that made it; 0: a driver's.
  uint32_t created_ms = 0;       // When it was made: wall time of its owner, modulo 2^32.
  uint16_t function = kOtherFunction;
  uint16_t thread = 0;      // A number of the process's own.
  uint16_t weight = 1;      // It stands for so many calls.
  uint16_t attempt = 0;     // Of large ones the last 16 bits.
  uint16_t parent_tag = 0;  // Of that call (TagOf, base/trace).
  Outcome outcome = Outcome::kFinished;
  ErrorKind error = ErrorKind::kNone;

  friend bool operator==(const TaskEvent&, const TaskEvent&) = default;
};

inline constexpr size_t kEventWords = 7;

struct EventSlot {
  std::atomic<uint64_t> number;
  std::atomic<uint64_t> words[kEventWords];
};
static_assert(sizeof(EventSlot) == 64);

struct FailureSlot {
  EventSlot event;
  std::atomic<uint64_t> text[kErrorTextBytes / 8];  // Bytes of UTF-8, ended by 0 if shorter.
};
static_assert(sizeof(FailureSlot) == 256);

// The trace that an event's call is in, if its outcome has kTraced. Part of the slot of that event.
struct TraceSlot {
  std::atomic<uint64_t> words[4];
};
inline constexpr uint8_t kTraced = 0x80;

struct alignas(64) FunctionSlot {
  std::atomic<uint64_t> kind;
  std::atomic<uint64_t> name[kFunctionNameBytes / 8];
  std::atomic<uint64_t> ended[kOutcomes];  // Exact.
  // Of those whose times were taken.
  std::atomic<uint64_t> timed, run_ns, longest_ns;
  std::atomic<uint64_t> run_time[kRunTimeBuckets];
};

struct alignas(64) EventHeader {
  std::atomic<uint64_t> recorded;   // Events of the ring of ended calls, ever.
  std::atomic<uint64_t> failures;   // Events of the ring of failures, ever.
  std::atomic<uint64_t> functions;  // Slots in use behind kOtherFunction.
  std::atomic<uint64_t> job;        // Its own, as the GCS numbers it; 0: not known yet.
  std::atomic<uint64_t> actor_maker, actor_sequence;  // The actor that it is; 0: none.
  // 1: the node exports the spans of calls. The raylet alone writes it, before the process has the
  // segment.
  std::atomic<uint64_t> spans_are_exported;
};

struct EventPage {
  EventHeader header;
  FunctionSlot functions[kFunctions];
  EventSlot ended[kEndedCalls];
  FailureSlot failures[kFailures];
  std::atomic<uint64_t> running[kRunningCalls];  // event_words.h
  // Untouched, and no memory, where no call is in a user's trace.
  TraceSlot ended_traces[kEndedCalls];
  TraceSlot failure_traces[kFailures];
};
static_assert(sizeof(EventPage) <= kEventsBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The page inside a mapped process segment (kProcessSegmentBytes from `segment`).
inline EventPage& EventPageOf(std::byte* segment) {
  return *reinterpret_cast<EventPage*>(segment + kEventsOffset);
}
inline const EventPage& EventPageOf(const std::byte* segment) {
  return *reinterpret_cast<const EventPage*>(segment + kEventsOffset);
}

size_t RunTimeBucketOf(Nanos run);
const char* OutcomeName(Outcome outcome);     // "FINISHED", as listings have it.
const char* CallKindName(CallKind kind);      // "NORMAL_TASK", as listings have it.
const char* ListedErrorName(ErrorKind kind);  // "WORKER_DIED", as listings have it.

}  // namespace sheaf::telemetry
