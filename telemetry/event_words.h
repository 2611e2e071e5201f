// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How an event stands in its slot's words, and how slots are written and read (task_events.h has the
// protocol). For the writer, the reader, and their tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "telemetry/task_events.h"

namespace sheaf::telemetry {

using EventWords = std::array<uint64_t, kEventWords>;

inline EventWords Pack(const TaskEvent& event) {
  return {
      event.task.maker_bits,
      event.task.sequence_bits,
      static_cast<uint64_t>(event.begin),
      static_cast<uint64_t>(event.end),
      event.parent_sequence,
      uint64_t{event.created_ms} | uint64_t{event.function} << 32 | uint64_t{event.thread} << 48,
      uint64_t{event.weight} | uint64_t{event.attempt} << 16 |
          uint64_t{static_cast<uint8_t>(event.outcome)} << 32 |
          uint64_t{static_cast<uint8_t>(event.error)} << 40 | uint64_t{event.parent_tag} << 48};
}

inline TaskEvent Unpack(const EventWords& words) {
  TaskEvent event;
  event.task = {words[0], words[1]};
  // Whatever a misbehaving writer says, a time of day can be added to it.
  constexpr uint64_t kMostNanos = uint64_t{1} << 61;
  event.begin = static_cast<Nanos>(words[2] % kMostNanos);
  event.end = static_cast<Nanos>(words[3] % kMostNanos);
  event.parent_sequence = words[4];
  event.created_ms = static_cast<uint32_t>(words[5]);
  event.function = static_cast<uint16_t>(words[5] >> 32);
  event.thread = static_cast<uint16_t>(words[5] >> 48);
  event.weight = static_cast<uint16_t>(words[6]);
  event.attempt = static_cast<uint16_t>(words[6] >> 16);
  const auto outcome = static_cast<uint8_t>(words[6] >> 32 & ~kTraced);
  event.outcome = outcome < kOutcomes ? static_cast<Outcome>(outcome) : Outcome::kFailed;
  event.error = static_cast<ErrorKind>(static_cast<uint8_t>(words[6] >> 40));
  event.parent_tag = static_cast<uint16_t>(words[6] >> 48);
  return event;
}

inline bool IsTraced(const EventWords& words) { return (words[6] >> 32 & kTraced) != 0; }
inline void MarkTraced(EventWords& words) { words[6] |= uint64_t{kTraced} << 32; }

// A call that runs: its function, and when it began, to a microsecond. Never 0.
struct RunningCall {
  Nanos begin = 0;
  uint16_t function = kOtherFunction;
};
inline constexpr int kRunningShift = 10, kFunctionBits = 16;
inline uint64_t Pack(const RunningCall& call) {
  return ((static_cast<uint64_t>(call.begin) >> kRunningShift) + 1) << kFunctionBits |
         call.function;
}
inline RunningCall UnpackRunning(uint64_t word) {
  return {static_cast<Nanos>(((word >> kFunctionBits) - 1) << kRunningShift),
          static_cast<uint16_t>(word)};
}

// `write` stores the slot's words.
template <class Write>
void WriteSlot(EventSlot& slot, uint64_t number, Write write) {
#ifdef __SANITIZE_THREAD__
  slot.number.exchange(0, std::memory_order_acq_rel);  // It knows no fences.
#else
  slot.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
#endif
  write();
  slot.number.store(number, std::memory_order_release);
}

// `read` loads the slot's words; false: they are not, or not all, those of event `number`.
template <class Read>
bool ReadSlot(const EventSlot& slot, uint64_t number, Read read) {
  if (slot.number.load(std::memory_order_acquire) != number) return false;
  read();
#ifdef __SANITIZE_THREAD__
  // No read-modify-write: the reader's mapping is read-only. GCC keeps atomic loads in order.
  return slot.number.load(std::memory_order_acquire) == number;
#else
  std::atomic_thread_fence(std::memory_order_acquire);
  return slot.number.load(std::memory_order_relaxed) == number;
#endif
}

inline void StoreText(std::span<std::atomic<uint64_t>> to, std::string_view text) {
  for (size_t i = 0; i < to.size(); ++i) {
    uint64_t word = 0;
    if (i * 8 < text.size())
      std::memcpy(&word, text.data() + i * 8, std::min<size_t>(8, text.size() - i * 8));
    to[i].store(word, std::memory_order_relaxed);
  }
}

inline std::string LoadText(std::span<const std::atomic<uint64_t>> from) {
  std::string text(from.size() * 8, '\0');
  for (size_t i = 0; i < from.size(); ++i) {
    const uint64_t word = from[i].load(std::memory_order_relaxed);
    std::memcpy(text.data() + i * 8, &word, 8);
  }
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

// At most `most` bytes of `text`, no UTF-8 sequence cut in two.
inline std::string_view Shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace sheaf::telemetry
