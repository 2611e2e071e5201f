// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// To whom a raylet speaks and how: processes of its node over rings, tools over their sockets,
// other nodes over links, the GCS through a callback. One thread, the raylet's loop.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "base/transport.h"
#include "raylet/cluster/node_links.h"
#include "raylet/host/attach_server.h"
#include "shm/mailbox.h"

namespace sheaf {

class NodeTransport final : public Transport {
 public:
  using ToGcs = std::function<void(ProcessId from, FrameKind kind, std::string body)>;

  // References outlive the transport; `attach` is set before the first frame to a tool.
  NodeTransport(NodeNumber node, Mailbox& mailbox, NodeLinks& links, ToGcs to_gcs)
      : node_(node),
        mailbox_(mailbox),
        remote_(node, links),
        gcs_(RayletOf(node), std::move(to_gcs)) {}
  void set_attach(AttachServer* attach) { attach_ = attach; }

  Channel& To(ProcessId peer) override {
    if (peer == kGcs) return gcs_;
    if (peer.node != node_) return remote_.To(peer);
    if (Channel* tool = attach_->ToolChannel(peer)) return *tool;
    return mailbox_.To(peer);
  }
  void Forget(ProcessId peer) override {
    if (peer.node == node_) {
      mailbox_.Forget(peer);
    } else {
      remote_.Forget(peer);
    }
  }

 private:
  class GcsChannel final : public Channel {
   public:
    GcsChannel(ProcessId self, ToGcs to_gcs) : self_(self), to_gcs_(std::move(to_gcs)) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      std::string body(head);
      body.append(tail);
      to_gcs_(self_, kind, std::move(body));
    }
    size_t queued_bytes() const override { return 0; }

   private:
    const ProcessId self_;
    const ToGcs to_gcs_;
  };

  const NodeNumber node_;
  Mailbox& mailbox_;
  RemoteChannels remote_;
  AttachServer* attach_ = nullptr;
  GcsChannel gcs_;
};

}  // namespace sheaf
