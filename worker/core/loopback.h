// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a process says to itself: an actor that calls itself is its own caller. No ring leads back,
// so the frames wait here until the process looks at what has come (Driver::PollRings), and are
// handled as those of any peer: never inside Send, in the order of their lane, control before work.
//
// Not thread-safe: guarded by the lock that guards the rings.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/transport.h"

namespace sheaf {

class Loopback final : public Channel {
 public:
  // `sent` is called after each frame: somebody shall look, as a peer's bell would say.
  explicit Loopback(std::function<void(Lane)> sent) : sent_(std::move(sent)) {}

  void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override;
  size_t queued_bytes() const override { return bytes_; }
  bool empty() const { return lanes_[0].empty() && lanes_[1].empty(); }
  // Hands as many frames to `take` as wait now, so that one who always answers itself does not keep
  // the process from its peers. More may be left: `sent` was called for each.
  void HandOver(absl::FunctionRef<void(const Frame&)> take);

 private:
  struct Waiting {
    FrameKind kind;
    std::string body;
    size_t cost() const { return sizeof(Waiting) + body.size(); }
  };

  const std::function<void(Lane)> sent_;
  std::deque<Waiting> lanes_[2];
  size_t bytes_ = 0;
};

}  // namespace sheaf
