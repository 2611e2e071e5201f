// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The way to the other nodes, as raylets see it: over rpc/links.h on real nodes, over a virtual
// network in tests/sim.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/transport.h"

namespace sheaf {

class NodeLinks {
 public:
  virtual ~NodeLinks() = default;
  // Sends a frame of `from` (this raylet, or a process of its node) to `to`, a process or raylet
  // of another node or the GCS. Frames for one node arrive once and in order, or it is dead. Never
  // blocks.
  virtual void Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string_view head,
                    std::string_view tail = {}) = 0;
  // Accepted for `node` and not known to have arrived.
  virtual size_t queued_bytes(NodeNumber node) const = 0;
  // Where the raylet of `node` can be dialled.
  virtual void SetAddress(NodeNumber node, const std::string& address) = 0;
  // `node` is dead: what is queued for it goes, nothing of it is heard again.
  virtual void Forget(NodeNumber node) = 0;
};

// Of a cluster of one node.
class NoOtherNodes final : public NodeLinks {
 public:
  void Send(ProcessId, ProcessId, Lane, FrameKind, std::string_view, std::string_view) override {}
  size_t queued_bytes(NodeNumber) const override { return 0; }
  void SetAddress(NodeNumber, const std::string&) override {}
  void Forget(NodeNumber) override {}
};

// The channels of one raylet to what is not on its node, for its Transport.
class RemoteChannels {
 public:
  RemoteChannels(NodeNumber node, NodeLinks& links) : self_(RayletOf(node)), links_(links) {}

  Channel& To(ProcessId peer) {
    std::unique_ptr<RemoteChannel>& channel = channels_[peer];
    if (channel == nullptr) channel = std::make_unique<RemoteChannel>(self_, peer, links_);
    return *channel;
  }
  void Forget(ProcessId peer) { channels_.erase(peer); }

 private:
  struct RemoteChannel final : Channel {
    RemoteChannel(ProcessId self, ProcessId peer, NodeLinks& links)
        : self(self), peer(peer), links(links) {}
    void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      links.Send(self, peer, lane, kind, head, tail);
    }
    size_t queued_bytes() const override { return links.queued_bytes(peer.node); }
    const ProcessId self, peer;
    NodeLinks& links;
  };
  const ProcessId self_;
  NodeLinks& links_;
  absl::flat_hash_map<ProcessId, std::unique_ptr<RemoteChannel>> channels_;
};

}  // namespace sheaf
