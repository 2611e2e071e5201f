// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/event_writer.h"

#include <algorithm>
#include <bit>

#include "telemetry/event_words.h"

namespace sheaf::telemetry {

size_t RunTimeBucketOf(Nanos run) {
  constexpr int kFirstBoundBits = 10;
  if (run <= 1) return 0;
  const int bits = std::bit_width(static_cast<uint64_t>(run) - 1);
  return static_cast<size_t>(
      std::clamp(bits - kFirstBoundBits, 0, static_cast<int>(kRunTimeBuckets) - 1));
}

const char* OutcomeName(Outcome outcome) {
  return outcome == Outcome::kFinished ? "FINISHED"
         : outcome == Outcome::kFailed ? "FAILED"
                                       : "CANCELLED";
}

const char* CallKindName(CallKind kind) {
  return kind == CallKind::kActorCreation ? "ACTOR_CREATION_TASK"
         : kind == CallKind::kActorMethod ? "ACTOR_TASK"
                                          : "NORMAL_TASK";
}

const char* ListedErrorName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kTaskFailed:
      return "TASK_EXECUTION_EXCEPTION";
    case ErrorKind::kTaskCancelled:
      return "TASK_CANCELLED";
    case ErrorKind::kWorkerCrashed:
      return "WORKER_DIED";
    case ErrorKind::kActorDied:
      return "ACTOR_DIED";
    case ErrorKind::kActorUnavailable:
      return "ACTOR_UNAVAILABLE";
    case ErrorKind::kActorUnschedulable:
      return "ACTOR_UNSCHEDULABLE_ERROR";
    case ErrorKind::kTaskUnschedulable:
      return "TASK_UNSCHEDULABLE_ERROR";
    case ErrorKind::kObjectLost:
      return "OBJECT_LOST";
    case ErrorKind::kOwnerDied:
      return "OWNER_DIED";
    case ErrorKind::kOutOfDisk:
      return "OUT_OF_DISK_ERROR";
    case ErrorKind::kOutOfMemory:
      return "OUT_OF_MEMORY";
    case ErrorKind::kEnvironmentFailed:
      return "RUNTIME_ENV_SETUP_FAILED";
    case ErrorKind::kGroupRemoved:
      return "TASK_PLACEMENT_GROUP_REMOVED";
    case ErrorKind::kActorGroupRemoved:
      return "ACTOR_PLACEMENT_GROUP_REMOVED";
    case ErrorKind::kNodeDied:
      return "NODE_DIED";
    case ErrorKind::kRayletDied:
      return "LOCAL_RAYLET_DIED";
    case ErrorKind::kReconstructionFailed:
      return "OBJECT_UNRECONSTRUCTABLE";
    default:
      return ErrorName(kind);
  }
}

std::string_view LastOf(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t begin = text.size() - most;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  return text.substr(begin);
}

EventWriter::EventWriter(EventPage& page) : page_(page), samplers_(1) {}

uint16_t EventWriter::FunctionOf(std::string_view name, CallKind kind) {
  const std::string_view shown = Shortened(name, kFunctionNameBytes);
  auto& numbers = numbers_[static_cast<size_t>(kind)];
  const absl::string_view key(shown.data(), shown.size());
  if (const auto known = numbers.find(key); known != numbers.end()) return known->second;
  if (samplers_.size() == kFunctions) return kOtherFunction;
  const auto number = static_cast<uint16_t>(samplers_.size());
  FunctionSlot& slot = page_.functions[number];
  slot.kind.store(static_cast<uint64_t>(kind), std::memory_order_relaxed);
  StoreText(slot.name, shown);
  page_.header.functions.store(number, std::memory_order_release);
  samplers_.emplace_back();
  numbers.emplace(key, number);
  return number;
}

void EventWriter::SetActor(ActorId actor) {
  page_.header.actor_maker.store(actor.maker_bits, std::memory_order_relaxed);
  page_.header.actor_sequence.store(actor.sequence_bits, std::memory_order_relaxed);
}

void EventWriter::CountTimes(FunctionSlot& slot, Sampler& sampler, Nanos run) {
  const uint64_t took = run > 0 ? static_cast<uint64_t>(run) : 0;
  Add(slot.timed, 1);
  Add(slot.run_ns, took);
  if (took > slot.longest_ns.load(std::memory_order_relaxed))
    slot.longest_ns.store(took, std::memory_order_relaxed);
  Add(slot.run_time[RunTimeBucketOf(run)], 1);
  // Of about the last 1,024 calls: each timed one stands for as many as it weighs. A first, long one
  // counts as all that are to come.
  const auto bounded = static_cast<int64_t>(std::min<uint64_t>(took, UINT32_MAX));
  const int64_t part = std::max<int64_t>(1, 1024 / 16 / sampler.weight);
  const int64_t average = sampler.average_ns;
  sampler.average_ns =
      average == 0
          ? static_cast<uint32_t>(bounded)
          : static_cast<uint32_t>(std::max<int64_t>(1, average + (bounded - average) / part));
  sampler.weight = sampler.average_ns < kRareBelow      ? kRareWeight
                   : sampler.average_ns < kSampledBelow ? kSampledWeight
                                                        : sampler.least_weight;
  sampler.until_next = std::min(sampler.until_next, sampler.weight);
}

void EventWriter::CountRecord(Sampler& sampler, Nanos now) {
  const auto took =
      static_cast<Nanos>(static_cast<uint64_t>(now) - static_cast<uint64_t>(sampler.looked_at));
  if (++sampler.records < kRecordsLookedAt && took <= kFew) return;
  if (took < kTooMany) {
    sampler.least_weight = std::min<uint16_t>(sampler.least_weight * 2, kSampledWeight);
  } else if (took > kFew) {
    // At once, where they have become rare: the next ones come late.
    const bool are_rare = took > kFew * kRecordsLookedAt / sampler.records;
    sampler.least_weight = are_rare ? 1 : std::max<uint16_t>(sampler.least_weight / 2, 1);
  }
  sampler.looked_at = now;
  sampler.records = 0;
}

namespace {

// The words of the event, and in `to` the trace, if there is one; both are of one slot.
void StoreWords(EventSlot& slot, TraceSlot& to, const TaskEvent& event, const TraceContext& trace) {
  EventWords words = Pack(event);
  if (trace.is_set()) [[unlikely]] {
    MarkTraced(words);
    to.words[0].store(trace.trace_high, std::memory_order_relaxed);
    to.words[1].store(trace.trace_low, std::memory_order_relaxed);
    to.words[2].store(trace.span, std::memory_order_relaxed);
    to.words[3].store(trace.flags, std::memory_order_relaxed);
  }
  for (size_t i = 0; i < kEventWords; ++i) slot.words[i].store(words[i], std::memory_order_relaxed);
}

}  // namespace

void EventWriter::Append(const TaskEvent& event, const TraceContext& trace) {
  const uint64_t number = page_.header.recorded.load(std::memory_order_relaxed) + 1;
  const size_t place = (number - 1) % kEndedCalls;
  EventSlot& slot = page_.ended[place];
  WriteSlot(slot, number, [&] { StoreWords(slot, page_.ended_traces[place], event, trace); });
  page_.header.recorded.store(number, std::memory_order_release);
}

void EventWriter::Record(const TaskEvent& event, const TraceContext& trace) {
  FunctionSlot& slot = page_.functions[event.function];
  Add(slot.ended[static_cast<size_t>(event.outcome)], 1);
  Sampler& sampler = samplers_[event.function];
  CountRecord(sampler, event.end);
  // Whatever the times are.
  CountTimes(
      slot, sampler,
      static_cast<Nanos>(static_cast<uint64_t>(event.end) - static_cast<uint64_t>(event.begin)));
  Append(event, trace);
}

void EventWriter::RecordFailure(const TaskEvent& event, std::string_view text,
                                const TraceContext& trace) {
  FunctionSlot& function = page_.functions[event.function];
  Add(function.ended[static_cast<size_t>(event.outcome)], 1);
  const uint64_t number = page_.header.failures.load(std::memory_order_relaxed) + 1;
  const size_t place = (number - 1) % kFailures;
  FailureSlot& slot = page_.failures[place];
  WriteSlot(slot.event, number, [&] {
    StoreWords(slot.event, page_.failure_traces[place], event, trace);
    StoreText(slot.text, Shortened(text, kErrorTextBytes));
  });
  page_.header.failures.store(number, std::memory_order_release);
}

}  // namespace sheaf::telemetry
