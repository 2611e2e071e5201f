// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a process that sleeps learns that a ring has something for it. One Bell per process, all on
// one board that every process of the node maps; senders ring, the owner of the bell waits.
//
// Protocol. Two things can sleep in a process: the driver (the thread that waits for results and
// drains the rings), and the background thread, which drains while user code keeps every other
// thread busy ("away").
//   state: kAwake   somebody looks at the rings again before it sleeps, or within a millisecond;
//                   nobody need be woken.
//          kAsleep  the driver sleeps on `state`.
//          kAway    user code runs: control wakes the background thread (it sleeps on `knock`),
//                   work does not.
//   Sleeper: state := kAsleep or kAway, fence, look at the rings again, then wait while unchanged,
//            state := kAwake. While user code runs, the background thread does the same with kAway
//            each time it wakes: a sender that called it has left kAwake. While frames keep coming
//            it leaves kAwake instead, and looks each millisecond. Of the process only the holder of
//            its token (worker/driver.h) sets the state, or who leaves it, so the two never mix.
//   Sender:  publish the frame, seq_cst fence, load state; if it asks for a wake,
//            exchange(kAwake), and only the sender whose exchange returned the old state wakes.
//   Either the sender sees the sleeper's store, or the sleeper's second look sees the frame
//   (Dekker). Load and clear must be one exchange: with a load and a plain store a late store
//   clears the mark of a receiver that slept since, and its wake-up is lost. doorbell.pml is the
//   model; its variants show this loss and that of a sender that dies (below).
//
// Calls. A receiver looks at few of many rings (ring.h): the sender whose ring is unwatched sets
// the bit of its own bell's number in `calls`, before it looks at the state. For the receiver that
// word is one more ring: it takes the bits and then looks at the rings that they stand for, and its
// second look covers it. Two senders may share a bit: both are looked at. watch.pml is the model.
//
// Late. A sender may take its time between publishing and the fence, and publish more meanwhile: it
// looks at the state behind all of it (mailbox.h, PutBellsOff; LATE in the model).
//
// Crash. A sender that dies or stops between its exchange and its wake leaves kAwake with the
// receiver asleep. So the raylet rings every peer of a dead process (RingAfterDeath), and no wait
// is longer than kLongestSleep.
// Spurious wake-ups are always allowed.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/frame.h"

namespace sheaf {

enum class BellState : uint32_t { kAwake = 0, kAsleep = 1, kAway = 2 };

inline constexpr uint32_t kCallWords = 6;
inline constexpr uint32_t kCallBits = 64 * kCallWords;

struct alignas(64) Bell {
  std::atomic<uint32_t> state;              // BellState.
  std::atomic<uint32_t> knock;              // 1: the background thread was called.
  std::atomic<uint64_t> calls[kCallWords];  // By number of the caller's bell, modulo kCallBits.
};
static_assert(sizeof(Bell) == 64 && std::atomic<uint32_t>::is_always_lock_free);

// Bells of a node's board, 1 MiB of sparse memory.
inline constexpr uint32_t kMaxProcessesPerNode = 16 * 1024;
inline constexpr size_t kBellBoardBytes = kMaxProcessesPerNode * sizeof(Bell);
inline constexpr Nanos kLongestSleep = 250 * kMillisecond;

// A seq_cst fence. ThreadSanitizer models none: there it is a read-modify-write of `word`.
inline void FullFence([[maybe_unused]] std::atomic<uint32_t>& word) {
#ifdef SHEAF_TSAN
  word.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

void WakeSleeper(Bell& bell, BellState was);  // The system call behind RingBell.

// Sender, after publishing and a FullFence. True: the receiver slept, and a system call woke it.
inline bool RingBellFenced(Bell& bell, Lane lane) {
  const auto seen = static_cast<BellState>(bell.state.load(std::memory_order_relaxed));
  if (seen == BellState::kAwake || (seen == BellState::kAway && lane == Lane::kWork)) return false;
  const auto was = static_cast<BellState>(
      bell.state.exchange(static_cast<uint32_t>(BellState::kAwake), std::memory_order_seq_cst));
  if (was == BellState::kAwake) return false;
  WakeSleeper(bell, was);
  return true;
}

inline bool RingBell(Bell& bell, Lane lane) {
  FullFence(bell.state);
  return RingBellFenced(bell, lane);
}

// Sender whose ring was unwatched; RingBell follows. `caller` is the number of its own bell.
inline void CallReader(Bell& bell, uint32_t caller) {
  const uint32_t bit = caller % kCallBits;
  bell.calls[bit / 64].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_seq_cst);
}

// Raylet, for each process that the dead could have rung.
void RingAfterDeath(Bell& bell);

// Receiver. Set before the second look at the rings.
inline void SetBell(Bell& bell, BellState state) {
  bell.state.exchange(static_cast<uint32_t>(state), std::memory_order_seq_cst);
  FullFence(bell.state);  // The looks that follow are plain acquire loads, which may pass a seq_cst
                          // write (AArch64).
}

// The driver sleeps until rung, or `timeout` (cut to kLongestSleep), or a signal. The caller has
// called SetBell(kAsleep) and looked at its rings; it calls SetBell(kAwake) afterwards.
void SleepOnBell(Bell& bell, Nanos timeout);
// Another thread of the receiver, which watches while it has no driver: sleeps while the state is
// `seen`, whatever that is; if it is kAsleep when a sender rings, this is the sleeper that is
// woken.
void SleepWhile(Bell& bell, BellState seen, Nanos timeout);
// The background thread sleeps until it is called for (a control frame came while the process was
// away).
void SleepOnKnock(Bell& bell, Nanos timeout);
// Another thread of the same process calls the background thread.
void Knock(Bell& bell);

// One step of a spin, for a loop that looks at its rings after each: a pause, and a yield in each
// `yield_every`-th step. The yield matters: two processes that share a core would else burn their
// whole time slice waiting for each other. `step` counts from 0.
void SpinStep(int step, int yield_every = 8);
constexpr bool SpinStepYields(int step, int yield_every = 8) {
  return step % yield_every == yield_every - 1;
}

}  // namespace sheaf
