// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The writer of a process's task events (task_events.h). All under the runtime's lock.
//
// A clock read costs as much as a short call, so those of quick functions are sampled: of a function
// whose calls take under 5 us on average one in 16 is timed and recorded, under 1 us one in 64, with
// that weight. So are those of a function of which alone the ring would not hold what a second brings,
// down to one in 16: calls that overlap may be long and many. All others, and all failures, are recorded.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/worker.pb.h"
#include "telemetry/event_words.h"
#include "telemetry/task_events.h"

namespace sheaf::telemetry {

constexpr CallKind CallKindOf(proto::TaskTemplate::Kind kind) {
  return kind == proto::TaskTemplate::ACTOR_CREATION ? CallKind::kActorCreation
         : kind == proto::TaskTemplate::ACTOR_METHOD ? CallKind::kActorMethod
                                                     : CallKind::kTask;
}

// At most `most` bytes from the end of `text`, which is UTF-8.
std::string_view LastOf(std::string_view text, size_t most);

class EventWriter {
 public:
  static constexpr Nanos kSampledBelow = 5 * kMicrosecond, kRareBelow = kMicrosecond;
  static constexpr uint16_t kSampledWeight = 16, kRareWeight = 64;
  // Over so many records, the time at which there are too many, and at which there may be more.
  static constexpr uint16_t kRecordsLookedAt = 64;
  static constexpr Nanos kTooMany = kRecordsLookedAt * kSecond / (4 * kEndedCalls);
  static constexpr Nanos kFew = 4 * kTooMany;

  explicit EventWriter(EventPage& page);
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // The number of the function of that name, for what follows; stays the same.
  uint16_t FunctionOf(std::string_view name, CallKind kind);
  void SetActor(ActorId actor);
  void SetJob(JobNumber job) { page_.header.job.store(job, std::memory_order_relaxed); }

  // A call of `function` begins. Its weight, if its times shall be taken; 0: it only counts.
  uint16_t Begin(uint16_t function) {
    Sampler& sampler = samplers_[function];
    if (--sampler.until_next != 0) [[likely]]
      return 0;
    sampler.until_next = sampler.weight;
    return sampler.weight;
  }
  // Of one whose times are taken, before and behind it; `thread` as its event has it.
  void OnRunning(uint16_t thread, const RunningCall& call) {
    // Behind the name of its function.
    page_.running[thread % kRunningCalls].store(Pack(call), std::memory_order_release);
  }
  void OnNotRunning(uint16_t thread, const RunningCall& call) {
    std::atomic<uint64_t>& word = page_.running[thread % kRunningCalls];
    if (word.load(std::memory_order_relaxed) == Pack(call))
      word.store(0, std::memory_order_relaxed);
  }
  // One that succeeded, without times.
  void Count(uint16_t function) { Add(page_.functions[function].ended[0], 1); }
  // One that succeeded, with times.
  void Record(const TaskEvent& event, const TraceContext& trace = {});
  // One that did not succeed: counted, and recorded in the ring of failures.
  void RecordFailure(const TaskEvent& event, std::string_view text, const TraceContext& trace = {});
  bool spans_are_exported() const {
    return page_.header.spans_are_exported.load(std::memory_order_relaxed) != 0;
  }

 private:
  struct Sampler {
    uint16_t until_next = 1, weight = 1;
    uint16_t least_weight = 1;  // So that there are not too many records.
    uint16_t records = 0;       // Since `looked_at`.
    uint32_t average_ns = 0;
    Nanos looked_at = 0;
  };
  static void Add(std::atomic<uint64_t>& word, uint64_t n) {
    word.store(word.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void Append(const TaskEvent& event, const TraceContext& trace);
  void CountTimes(FunctionSlot& slot, Sampler& sampler, Nanos run);
  static void CountRecord(Sampler& sampler, Nanos now);

  EventPage& page_;
  std::vector<Sampler> samplers_;
  std::array<absl::flat_hash_map<std::string, uint16_t>, kCallKinds> numbers_;  // By name.
};

}  // namespace sheaf::telemetry
