// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the store knows of the disk that it spills to: it takes what comes, slowly perhaps, or it
// is full or broken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace sheaf {

// Pure; one thread.
class SpillProgress {
 public:
  SpillProgress(Nanos retry_period, int most_waits)
      : retry_period_(retry_period), most_waits_(most_waits) {}

  void OnBegin(Nanos now) {
    if (!failing_) moved_at_ = now;
  }
  // `written`: SpillStorage::BytesWritten().
  void Look(Nanos now, uint64_t written) {
    if (std::exchange(written_, written) != written) moved_at_ = now;
  }
  void OnEnd(Nanos now, bool complete) {
    failing_ = !complete;
    if (complete) moved_at_ = now;
    if (failing_) retry_at_ = now + retry_period_;
  }
  bool failing() const { return failing_; }     // The last file could not be written;
  Nanos retry_at() const { return retry_at_; }  // the next may be then.
  // When one who asked for room at `since`, and may wait until `deadline`, has waited in vain: a
  // slow disk is no full one. Of several who wait at once each gets room behind those before it, so
  // the wait is counted from what came to the disk last; in all it is `most_waits` times as long.
  Nanos EndOfWait(Nanos since, Nanos deadline) const {
    const Nanos wait = deadline - since;
    return std::min(std::max(deadline, moved_at_ + wait), since + most_waits_ * wait);
  }

 private:
  const Nanos retry_period_;
  const int most_waits_;
  bool failing_ = false;
  Nanos retry_at_ = 0;
  Nanos moved_at_ = 0;  // A file was begun, or bytes came to the disk.
  uint64_t written_ = 0;
};

}  // namespace sheaf
