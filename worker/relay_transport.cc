// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/relay_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace sheaf {

class RelayTransport::RelayChannel final : public Channel {
 public:
  RelayChannel(Transport& rings, ProcessId self_raylet, ProcessId peer)
      : rings_(rings), raylet_(self_raylet), peer_(peer) {}

  void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
    RelayHead relay;
    relay.peer = peer_.packed();
    relay.kind = static_cast<uint16_t>(kind);
    relay.lane = static_cast<uint16_t>(lane);
    Channel& raylet = rings_.To(raylet_);
    std::array<char, 256> front;  // Where a usual head fits.
    if (sizeof relay + head.size() <= front.size()) [[likely]] {
      std::memcpy(front.data(), &relay, sizeof relay);
      std::copy(head.begin(), head.end(), front.begin() + sizeof relay);  // May be none at all.
      raylet.Send(lane, FrameKind::kRelay, {front.data(), sizeof relay + head.size()}, tail);
    } else {
      raylet.Send(lane, FrameKind::kRelay, std::string(AsBytes(relay)).append(head), tail);
    }
  }
  size_t queued_bytes() const override { return rings_.To(raylet_).queued_bytes(); }

 private:
  Transport& rings_;
  const ProcessId raylet_;
  const ProcessId peer_;
};

RelayTransport::RelayTransport(NodeNumber node, Transport& rings) : node_(node), rings_(rings) {}
RelayTransport::~RelayTransport() = default;

Channel& RelayTransport::To(ProcessId peer) {
  if (peer.node == node_ || peer.node == kGcs.node) return rings_.To(peer);
  std::unique_ptr<RelayChannel>& relay = relays_[peer];
  if (relay == nullptr) relay = std::make_unique<RelayChannel>(rings_, RayletOf(node_), peer);
  return *relay;
}

void RelayTransport::Forget(ProcessId peer) {
  if (peer.node == node_ || peer.node == kGcs.node) {
    rings_.Forget(peer);
  } else {
    relays_.erase(peer);
  }
}

bool OpenRelayed(std::string_view body, ProcessId* from, Frame* frame) {
  const auto* head = FrameHead<RelayHead>(body);
  if (head == nullptr) return false;
  *from = ProcessId::Unpack(head->peer);
  *frame = {static_cast<FrameKind>(head->kind), body.substr(sizeof(RelayHead))};
  return frame->kind != FrameKind::kRelayed && frame->kind != FrameKind::kRelay;
}

}  // namespace sheaf
