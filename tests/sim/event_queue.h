// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Virtual time: what is to happen, in order. Events of one moment happen in the order in which they
// were made, so a run depends on nothing but its seed. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fake_clock.h"
#include "base/random.h"

namespace sheaf::sim {

class EventQueue {
 public:
  void At(Nanos when, std::function<void()> run) {
    heap_.push_back({std::max(when, clock_.Now()), next_++, std::move(run)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  void After(Nanos delay, std::function<void()> run) { At(clock_.Now() + delay, std::move(run)); }

  // Moves the clock to the next event and runs it; false: nothing is left.
  bool RunOne() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    clock_.SetNow(event.when);
    ++run_;
    event.run();
    return true;
  }
  void Clear() {  // What an event holds may make others as it goes: a pin that is dropped does.
    while (!heap_.empty()) std::exchange(heap_, {}).clear();
  }

  FakeClock& clock() { return clock_; }
  Nanos now() const { return clock_.Now(); }
  uint64_t events() const { return run_; }

 private:
  struct Event {
    Nanos when;
    uint64_t number;
    std::function<void()> run;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }

  FakeClock clock_;
  std::vector<Event> heap_;
  uint64_t next_ = 0;
  uint64_t run_ = 0;
};

// Work of other threads (disk, memory), as events: in order, each a little later.
class EventExecutor final : public Executor {
 public:
  EventExecutor(EventQueue& queue, Random& random, Nanos longest)
      : queue_(queue), random_(random), longest_(longest) {}
  void Post(std::function<void()> work) override {
    last_ = std::max(
        last_, queue_.now() + static_cast<Nanos>(random_.Below(static_cast<uint64_t>(longest_))));
    queue_.At(last_, std::move(work));
  }

 private:
  EventQueue& queue_;
  Random& random_;
  const Nanos longest_;
  Nanos last_ = 0;
};

}  // namespace sheaf::sim
