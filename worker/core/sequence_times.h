// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// When a process made which of its sequence numbers, and so its objects and calls: known from taking
// a number now and then, so that none of them carries a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace sheaf {

class SequenceTimes {
 public:
  static constexpr Nanos kPeriod = 5 * kSecond;

  // A number is to be taken: every kPeriod.
  bool IsDue(Nanos now) const { return numbers_.empty() || now - numbers_.back().at >= kPeriod; }
  // The number was taken now; they only grow.
  void Note(uint64_t sequence, Nanos now);
  // A time when the number had been made: at most kPeriod, or an eighth of what has passed since,
  // too late. nullopt: it has been made since the last one that was taken.
  std::optional<Nanos> MadeBefore(uint64_t sequence) const;
  size_t size() const { return numbers_.size(); }

 private:
  struct Number {
    uint64_t sequence;
    Nanos at;
  };
  std::vector<Number> numbers_;  // Oldest first; fewer the older they are.
};

}  // namespace sheaf
