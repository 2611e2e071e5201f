// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The receivers that this process has woken and that have yet to get through what they were woken
// for. More of them than there are cores only wait for each other, and one that is woken later
// finds more to do at once.
#pragma once

#include <vector>

#include "base/clock.h"
#include "shm/doorbell.h"

namespace sheaf {

class RungBells {
 public:
  // `most` are kept in mind; of more the first are forgotten.
  RungBells(const Clock& clock, size_t most) : clock_(clock), most_(most) {}

  void Add(const Bell& bell);
  // Fewer than `at_once` still look. One that waits on its bell again, or runs user code, does not;
  // nor does one that has been awake for kLongestLook: it may wait for something else.
  bool HasRoom(size_t at_once);
  // The same without a look at the bells: false may be wrong.
  bool HasRoomForSure(size_t at_once) const { return rung_.size() < at_once; }

  static constexpr Nanos kLongestLook = 200 * kMicrosecond;

 private:
  struct Rung {
    const Bell* bell;
    Nanos at;
  };

  const Clock& clock_;
  const size_t most_;
  std::vector<Rung> rung_;  // The longest first.
};

}  // namespace sheaf
