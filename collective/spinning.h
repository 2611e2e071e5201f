// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How long a thread that waits for another process looks without a pause before it sleeps. It
// learns two things:
//
//   whether it pays: a look that was in vain shortens the next, one that was just enough, or nearly,
//   makes it longer;
//   whether it has its core for itself: while it looks it yields again and again, for the one whom
//   it waits for may be on its core. Where somebody computes there instead, a yield comes back after
//   his whole slice, and counts (Linux 6.18) as if this thread had used up its own: two ranks beside
//   two busy processes needed 6 ms for 4 KiB, and 10 us where they sleep at once, as who is woken
//   runs at once. So after two yields that came back late, soon after each other, it sleeps without
//   looking for a while, and for twice as long each time that it finds the core shared once more.
//   One alone is chance: a daemon, or the host of a virtual machine.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "shm/doorbell.h"

namespace sheaf {

// Of one thread at a time.
class Spinning {
 public:
  explicit Spinning(Nanos longest) : longest_(longest), spin_(longest / 4) {}

  // Looks at `ready` until it is so. False: it sleeps now.
  template <class Ready>
  bool Until(Ready ready) {
    const Nanos began = MonotonicNow();
    if (began < shared_until_) return false;
    Nanos looked = began;
    for (int step = 0;; ++step) {
      SpinStep(step);
      const bool yielded = SpinStepYields(step);
      if (yielded) {
        const Nanos now = MonotonicNow();
        if (now - looked > kLate) {
          IsLate(now);
          return ready();
        }
        looked = now;
      }
      if (ready()) {
        if (step > 128) spin_ = std::min(spin_ * 2, longest_);
        if (looked != began) shared_for_ = kShortestShared;  // Yields came back in time.
        return true;
      }
      if (yielded && looked - began > spin_) return false;
    }
  }

  // It slept, and what it waited for came `waited` after it began to look.
  void Slept(Nanos waited) {
    // A look a little longer would have caught it, or none would.
    spin_ = waited < longest_ ? std::min(spin_ * 2, longest_) : std::max(spin_ / 2, kShortest);
  }

  bool SharesCore() const { return MonotonicNow() < shared_until_; }

 private:
  static constexpr Nanos kShortest = 5 * kMicrosecond;
  static constexpr Nanos kLate = 500 * kMicrosecond;  // Of a yield.
  static constexpr Nanos kSoon = 20 * kMillisecond;   // One late yield after another.
  static constexpr Nanos kShortestShared = 5 * kMillisecond;
  static constexpr Nanos kLongestShared = kSecond;

  void IsLate(Nanos now) {
    // What was found after a time of sleeping is the same as before it.
    const bool again = now - std::max(last_late_, shared_until_) < kSoon;
    last_late_ = now;
    if (!again) return;
    shared_until_ = now + shared_for_;
    shared_for_ = std::min(shared_for_ * 2, kLongestShared);
  }

  const Nanos longest_;
  Nanos spin_;
  Nanos last_late_ = -kSecond;
  Nanos shared_until_ = -kSecond;
  Nanos shared_for_ = kShortestShared;
};

}  // namespace sheaf
