// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The link of two nodes in runs of every method (fault row 22): the real LinkState at both ends,
// over connections that break with what is on its way, and bring messages twice. What it hands over
// must be what was sent, once and in order; anything else fails the run.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/links.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class NodeWire {
 public:
  // `delay`: the way of one message. `deliver`: what came.
  NodeWire(World& world, std::function<Nanos()> delay,
           std::function<void(const LinkFrame&)> deliver);
  ~NodeWire();

  // `end`: 0 or 1, who sends.
  void Send(int end, const LinkFrame& frame);
  // Of `end`, accepted and not acknowledged.
  size_t queued_bytes(int end) const;
  // One of the nodes is dead: nothing arrives any more.
  void Close();
  // At rest: what was sent has come.
  void CheckAtRest() const;

 private:
  struct End;
  void Pump(int end);
  void PumpLater(int end);
  void Write(int end, std::string bytes);
  void Arrive(int end, uint64_t connection, const std::string& bytes);
  // Hands over what is new in a message that `end` wrote. False: it came before.
  bool Take(int end, const std::string& bytes);
  void Break();

  World& world_;
  const std::function<Nanos()> delay_;
  const std::function<void(const LinkFrame&)> deliver_;
  std::array<std::unique_ptr<End>, 2> ends_;
  uint64_t connection_ = 0;  // Grows with each; messages of an older one do not arrive.
  bool connecting_ = false, closed_ = false;
  std::vector<std::pair<int, std::string>> late_;  // Arrive beside the next connection.
};

}  // namespace sheaf::sim
