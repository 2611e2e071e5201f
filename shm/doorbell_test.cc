// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/doorbell.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace {

BellState State(const Bell& bell) { return static_cast<BellState>(bell.state.load()); }

// Waits until `condition` holds; false after 10 s.
template <class Condition>
bool Eventually(Condition condition) {
  const Nanos deadline = MonotonicNow() + 10 * kSecond;
  for (int step = 0; !condition(); ++step) {
    if (MonotonicNow() > deadline) return false;
    SpinStep(step);
  }
  return true;
}

// Nothing, some steps of a spin, or a nap: the receiver falls asleep now and then.
void Pause(Random& random) {
  if (random.OneIn(16)) {
    usleep(1);
  } else {
    const int steps = static_cast<int>(random.Below(160));
    for (int step = 0; step < steps; ++step) SpinStep(step);
  }
}

}  // namespace

SCENARIO("whom a sender wakes depends on the bell's state and the lane") {
  auto bell = std::make_unique<Bell>();
  SetBell(*bell, BellState::kAwake);
  RingBell(*bell, Lane::kControl);
  CHECK(State(*bell) == BellState::kAwake);
  CHECK(bell->knock.load() == 0);

  SetBell(*bell, BellState::kAway);
  RingBell(*bell, Lane::kWork);  // A busy process is not woken for work.
  CHECK(State(*bell) == BellState::kAway);
  CHECK(bell->knock.load() == 0);
  RingBell(*bell, Lane::kControl);
  CHECK(State(*bell) == BellState::kAwake);
  CHECK(bell->knock.load() == 1);

  bell->knock.store(0);
  SetBell(*bell, BellState::kAsleep);
  RingBell(*bell, Lane::kWork);
  CHECK(State(*bell) == BellState::kAwake);
  CHECK(bell->knock.load() == 0);
}

SCENARIO("a bell with a word that no correct process stores is rung and does no harm") {
  auto bell = std::make_unique<Bell>();
  bell->state.store(77);
  RingBell(*bell, Lane::kWork);
  CHECK(State(*bell) == BellState::kAwake);
  bell->state.store(77);
  SleepOnBell(*bell, kForever);  // Not kAsleep: returns at once.
}

SCENARIO("nobody sleeps when the bell was rung before, or longer than kLongestSleep") {
  auto bell = std::make_unique<Bell>();
  Nanos start = MonotonicNow();
  SetBell(*bell, BellState::kAsleep);
  RingBell(*bell, Lane::kWork);
  SleepOnBell(*bell, kForever);
  Knock(*bell);
  SleepOnKnock(*bell, kForever);
  CHECK(bell->knock.load() == 0);
  CHECK(MonotonicNow() - start < kLongestSleep);

  SetBell(*bell, BellState::kAsleep);
  start = MonotonicNow();
  SleepOnBell(*bell, kForever);
  CHECK(MonotonicNow() - start >= kLongestSleep);
  SleepOnBell(*bell, 0);
  SleepOnBell(*bell, -5);
  SleepOnKnock(*bell, 0);
}

SCENARIO("a death wakes the driver and the background thread, whatever the state says") {
  auto bell = std::make_unique<Bell>();
  std::atomic<int> woken{0};
  // The dead sender's exchange: both sleep although the state says awake.
  SetBell(*bell, BellState::kAsleep);
  std::thread driver([&] {
    SleepOnBell(*bell, kForever);
    ++woken;
  });
  std::thread background([&] {
    SleepOnKnock(*bell, kForever);
    ++woken;
  });
  RingAfterDeath(*bell);
  CHECK(Eventually([&] { return woken == 2; }));
  CHECK(State(*bell) == BellState::kAwake);
  driver.join();
  background.join();
}

// A receiver with driver and background thread, and senders on both lanes, all sleeping at random.
// A frame is a count that goes up. Lost: a sleep of kLongestSleep ended with a frame that had
// waited all the time.
SCENARIO("no wake-up is lost between senders, a driver and a background thread") {
  constexpr int kSenders = 3;
  constexpr uint64_t kFrames = 4'000;
  const uint64_t seed = 11;
  struct alignas(64) Count {
    std::atomic<uint64_t> work, control;
    std::atomic<Nanos> work_at, control_at;  // When the last one was published.
  };
  auto bell = std::make_unique<Bell>();
  std::vector<Count> sent(kSenders);
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&, s] {
      SeededRandom random(seed + s);
      for (uint64_t i = 0; i < kFrames; ++i) {
        const Lane lane = random.OneIn(2) ? Lane::kWork : Lane::kControl;
        (lane == Lane::kWork ? sent[s].work_at : sent[s].control_at).store(MonotonicNow());
        (lane == Lane::kWork ? sent[s].work : sent[s].control)
            .fetch_add(1, std::memory_order_release);
        RingBell(*bell, lane);
        Pause(random);
      }
    });
  }

  std::mutex token;  // Of the receiving process.
  uint64_t taken_work[kSenders] = {}, taken_control[kSenders] = {};
  bool away = false;
  std::atomic<bool> done{false};
  uint64_t lost = 0, sleeps = 0;
  auto take = [&](bool take_work) {
    bool found = false;
    for (int s = 0; s < kSenders; ++s) {
      const uint64_t control = sent[s].control.load(std::memory_order_acquire);
      found |= control != std::exchange(taken_control[s], control);
      if (!take_work) continue;
      const uint64_t work = sent[s].work.load(std::memory_order_acquire);
      found |= work != std::exchange(taken_work[s], work);
    }
    return found;
  };
  auto waited_since = [&](bool look_at_work,
                          Nanos start) {  // Some frame waits since before `start`.
    for (int s = 0; s < kSenders; ++s) {
      if (sent[s].control.load() != taken_control[s] && sent[s].control_at.load() < start)
        return true;
      if (look_at_work && sent[s].work.load() != taken_work[s] && sent[s].work_at.load() < start)
        return true;
    }
    return false;
  };
  std::thread background([&] {
    while (!done) {
      const Nanos start = MonotonicNow();
      SleepOnKnock(*bell, kLongestSleep);
      std::lock_guard lock(token);
      if (!away) continue;
      if (MonotonicNow() - start >= kLongestSleep && waited_since(false, start + kLongestSleep / 2))
        ++lost;
      do {
        SetBell(*bell, BellState::kAway);
      } while (take(false));
    }
  });
  SeededRandom random(seed);
  auto all = [&] {
    uint64_t total = 0;
    for (int s = 0; s < kSenders; ++s) total += taken_work[s] + taken_control[s];
    return total == kSenders * kFrames;
  };
  while (true) {
    {
      std::lock_guard lock(token);
      away = false;
      SetBell(*bell, BellState::kAwake);
      take(true);
      if (all()) break;
      SetBell(*bell, BellState::kAsleep);
      if (!take(true)) {
        const Nanos start = MonotonicNow();
        ++sleeps;
        SleepOnBell(*bell, kLongestSleep);
        if (MonotonicNow() - start >= kLongestSleep &&
            waited_since(true, start + kLongestSleep / 2))
          ++lost;
      }
      SetBell(*bell, BellState::kAwake);
      if (random.OneIn(3)) {  // User code runs now.
        away = true;
        do {
          SetBell(*bell, BellState::kAway);
        } while (take(false));
      }
    }
    Pause(random);
  }
  done = true;
  Knock(*bell);
  background.join();
  for (std::thread& sender : senders) sender.join();
  CHECK(lost == 0);
  CHECK(sleeps > 100);
}

}  // namespace sheaf
