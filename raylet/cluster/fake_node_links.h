// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Remembers what was sent to other nodes, delivers nothing.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "raylet/cluster/node_links.h"

namespace sheaf {

class FakeNodeLinks final : public NodeLinks {
 public:
  struct Sent {
    ProcessId from, to;
    Lane lane = Lane::kControl;
    FrameKind kind = FrameKind::kNone;
    std::string body;
  };

  void Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string_view head,
            std::string_view tail) override {
    sent.push_back({from, to, lane, kind, std::string(head) + std::string(tail)});
  }
  size_t queued_bytes(NodeNumber) const override { return 0; }
  void SetAddress(NodeNumber node, const std::string& address) override {
    addresses[node] = address;
  }
  void Forget(NodeNumber node) override { forgotten.push_back(node); }

  std::vector<Sent> Take() { return std::exchange(sent, {}); }

  std::vector<Sent> sent;
  std::map<NodeNumber, std::string> addresses;
  std::vector<NodeNumber> forgotten;
};

}  // namespace sheaf
