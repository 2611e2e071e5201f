// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/sequence_times.h"

#include <algorithm>

namespace sheaf {

void SequenceTimes::Note(uint64_t sequence, Nanos now) {
  numbers_.push_back({sequence, now});
  // One goes where those beside it are near enough to each other to stand for it.
  for (size_t i = 1; i + 1 < numbers_.size();) {
    const Nanos gap = numbers_[i + 1].at - numbers_[i - 1].at;
    if (gap <= (now - numbers_[i + 1].at) / 8) {
      numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

std::optional<Nanos> SequenceTimes::MadeBefore(uint64_t sequence) const {
  const auto found =
      std::upper_bound(numbers_.begin(), numbers_.end(), sequence,
                       [](uint64_t made, const Number& number) { return made < number.sequence; });
  if (found == numbers_.end()) return std::nullopt;
  return found->at;
}

}  // namespace sheaf
