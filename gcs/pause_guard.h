// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a GCS says after a pause of its process waits for a while: others may follow a later one by
// now, of which it hears in that time, and then what was said to nobody was never acknowledged.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"

namespace sheaf {

struct PauseGuardOptions {
  Nanos longest_pause = 3 * kSecond;  // Without a Turn: more counts as a pause.
  Nanos held = 2 * kSecond;           // Links are dialled once a second.
};

// One thread at a time.
class PauseGuard {
 public:
  struct Frame {
    ProcessId to;
    FrameKind kind;
    std::string body;
  };
  // `send` gets the frames, in order.
  PauseGuard(PauseGuardOptions options, const Clock& clock, std::function<void(Frame)> send)
      : options_(options), clock_(clock), send_(std::move(send)) {}

  // To be called more often than the longest pause: looks for pauses, and lets go what was held.
  void Turn() {
    const Nanos now = clock_.Now();
    if (last_turn_ != 0 && now - last_turn_ >= options_.longest_pause) {
      held_until_ = now + options_.held;
    }
    last_turn_ = now;
    while (!held_.empty() && now >= held_until_) {
      Frame frame = std::move(held_.front());
      held_.pop_front();
      send_(std::move(frame));
    }
  }
  void Pass(Frame frame) {
    Turn();
    if (last_turn_ < held_until_) {
      held_.push_back(std::move(frame));
    } else {
      send_(std::move(frame));
    }
  }

 private:
  const PauseGuardOptions options_;
  const Clock& clock_;
  const std::function<void(Frame)> send_;
  Nanos last_turn_ = 0;
  Nanos held_until_ = 0;
  std::deque<Frame> held_;
};

}  // namespace sheaf
