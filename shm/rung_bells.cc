// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/rung_bells.h"

namespace sheaf {

void RungBells::Add(const Bell& bell) {
  std::erase_if(rung_, [&](const Rung& rung) { return rung.bell == &bell; });
  if (rung_.size() == most_) rung_.erase(rung_.begin());
  rung_.push_back({&bell, clock_.Now()});
}

bool RungBells::HasRoom(size_t at_once) {
  if (HasRoomForSure(at_once)) return true;
  const Nanos now = clock_.Now();
  std::erase_if(rung_, [&](const Rung& rung) {
    const auto state = static_cast<BellState>(rung.bell->state.load(std::memory_order_relaxed));
    return state != BellState::kAwake || now - rung.at >= kLongestLook;
  });
  return HasRoomForSure(at_once);
}

}  // namespace sheaf
