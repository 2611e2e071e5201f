// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/event_reader.h"

#include <algorithm>

#include "telemetry/event_words.h"

namespace sheaf::telemetry {
namespace {

uint64_t Load(const std::atomic<uint64_t>& word) { return word.load(std::memory_order_relaxed); }

EventWords Words(const EventSlot& slot) {
  EventWords words;
  for (size_t i = 0; i < kEventWords; ++i) words[i] = Load(slot.words[i]);
  return words;
}

TraceContext TraceOf(const EventWords& words, const TraceSlot& slot) {
  if (!IsTraced(words)) return {};
  return {Load(slot.words[0]), Load(slot.words[1]), Load(slot.words[2]), Load(slot.words[3])};
}

// Calls `read` with the number of each event that may still be there; it says whether it was.
// Returns how many were not.
template <class ReadOne>
uint64_t ReadRing(uint64_t recorded, size_t capacity, uint64_t& read, ReadOne read_one) {
  if (recorded < read) read = recorded;  // Only a writer that misbehaves counts backwards.
  uint64_t lost = 0;
  if (recorded - read > capacity) {
    lost = recorded - read - capacity;
    read = recorded - capacity;
  }
  while (read != recorded) {
    if (!read_one(++read)) ++lost;
  }
  return lost;
}

}  // namespace

void FunctionFigures::Add(const FunctionFigures& other) {
  for (size_t i = 0; i < kOutcomes; ++i) ended[i] += other.ended[i];
  timed += other.timed;
  run_ns += other.run_ns;
  longest_ns = std::max(longest_ns, other.longest_ns);
  for (size_t i = 0; i < kRunTimeBuckets; ++i) run_time[i] += other.run_time[i];
}

uint64_t EventReader::Drain(Visit visit) {
  uint64_t lost = ReadRing(page_.header.recorded.load(std::memory_order_acquire), kEndedCalls,
                           ended_read_, [&](uint64_t number) {
                             const size_t place = (number - 1) % kEndedCalls;
                             const EventSlot& slot = page_.ended[place];
                             EventWords words;
                             TraceContext trace;
                             if (!ReadSlot(slot, number, [&] {
                                   words = Words(slot);
                                   trace = TraceOf(words, page_.ended_traces[place]);
                                 }))
                               return false;
                             visit(Unpack(words), {}, trace);
                             return true;
                           });
  lost += ReadRing(page_.header.failures.load(std::memory_order_acquire), kFailures, failures_read_,
                   [&](uint64_t number) {
                     const size_t place = (number - 1) % kFailures;
                     const FailureSlot& slot = page_.failures[place];
                     EventWords words;
                     TraceContext trace;
                     std::string text;
                     if (!ReadSlot(slot.event, number, [&] {
                           words = Words(slot.event);
                           text = LoadText(slot.text);
                           trace = TraceOf(words, page_.failure_traces[place]);
                         }))
                       return false;
                     visit(Unpack(words), text, trace);
                     return true;
                   });
  return lost;
}

bool EventReader::HasNews() const {
  return Load(page_.header.recorded) != ended_read_ ||
         Load(page_.header.failures) != failures_read_;
}

void EventReader::VisitRunning(
    absl::FunctionRef<void(const RunningCall&, uint16_t thread)> visit) const {
  for (size_t i = 0; i < kRunningCalls; ++i) {
    const uint64_t word = page_.running[i].load(std::memory_order_acquire);
    if (word >> kFunctionBits != 0) visit(UnpackRunning(word), static_cast<uint16_t>(i));
  }
}

size_t EventReader::functions() const {
  return 1 +
         std::min<size_t>(page_.header.functions.load(std::memory_order_acquire), kFunctions - 1);
}

FunctionFigures EventReader::FiguresOf(uint16_t function) const {
  FunctionFigures figures;
  const FunctionSlot& slot = page_.functions[std::min<size_t>(function, kFunctions - 1)];
  figures.name = function == kOtherFunction ? std::string(kOtherFunctionName) : LoadText(slot.name);
  figures.kind = static_cast<CallKind>(std::min<uint64_t>(Load(slot.kind), 2));
  for (size_t i = 0; i < kOutcomes; ++i) figures.ended[i] = Load(slot.ended[i]);
  figures.timed = Load(slot.timed);
  figures.run_ns = Load(slot.run_ns);
  figures.longest_ns = Load(slot.longest_ns);
  for (size_t i = 0; i < kRunTimeBuckets; ++i) figures.run_time[i] = Load(slot.run_time[i]);
  return figures;
}

JobNumber EventReader::job() const { return static_cast<JobNumber>(Load(page_.header.job)); }

ActorId EventReader::actor() const {
  return {Load(page_.header.actor_maker), Load(page_.header.actor_sequence)};
}

}  // namespace sheaf::telemetry
