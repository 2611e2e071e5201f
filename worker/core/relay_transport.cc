// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/relay_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/message_limits.h"

namespace sheaf {

class RelayTransport::RelayChannel final : public Channel {
 public:
  RelayChannel(Transport& rings, ProcessId self_raylet, ProcessId peer)
      : peer(peer), rings_(rings), raylet_(self_raylet) {}

  void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
    const size_t size = RelayedBytes(head.size() + tail.size());
    if (size <= kMaxBodyBytes) sent_ += size;  // Longer ones go nowhere (shm/mailbox.h).
    Relay(lane, kind, head, tail);
  }

  // Raylets take what comes, and grant nothing.
  size_t queued_bytes() const override {
    return peer.is_raylet() ? rings_.To(raylet_).queued_bytes() : sent_ - granted_;
  }

  // The peer has taken so much in all; it cannot have more than it was sent.
  void OnGrant(uint64_t bytes) { granted_ = std::max(granted_, std::min(bytes, sent_)); }

  // A frame of the peer was taken; tells it now and then.
  void Took(uint64_t bytes, uint64_t step) {
    taken_ += bytes;
    if (taken_ - told_ < step) [[likely]]
      return;
    told_ = taken_;
    Relay(Lane::kControl, kTaken, AsBytes(Taken{taken_}), {});
  }

  const ProcessId peer;

 private:
  void Relay(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) {
    RelayHead relay;
    relay.peer = peer.packed();
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

  Transport& rings_;
  const ProcessId raylet_;
  uint64_t sent_ = 0, granted_ = 0;  // To the peer.
  uint64_t taken_ = 0, told_ = 0;    // Of the peer.
};

RelayTransport::RelayTransport(ProcessId self, Transport& rings,
                               std::function<void(Lane)> sent_to_self, const BackPressure& limits)
    : self_(self), rings_(rings), loopback_(std::move(sent_to_self)), limits_(limits) {}
RelayTransport::~RelayTransport() = default;

RelayTransport::RelayChannel& RelayTransport::RelayTo(ProcessId peer) {
  if (last_ != nullptr && last_->peer == peer) [[likely]]
    return *last_;
  std::unique_ptr<RelayChannel>& relay = relays_[peer];
  if (relay == nullptr) relay = std::make_unique<RelayChannel>(rings_, RayletOf(self_.node), peer);
  return *(last_ = relay.get());
}

Channel& RelayTransport::To(ProcessId peer) {
  if (peer == self_) [[unlikely]]
    return loopback_;
  if (IsNear(peer)) return rings_.To(peer);
  return RelayTo(peer);
}

void RelayTransport::Forget(ProcessId peer) {
  if (IsNear(peer)) {  // Never this process.
    rings_.Forget(peer);
    return;
  }
  last_ = nullptr;
  relays_.erase(peer);
}

bool RelayTransport::Take(std::string_view body, ProcessId* from, Frame* frame) {
  const auto* head = FrameHead<RelayHead>(body);
  if (head == nullptr) return false;
  *from = ProcessId::Unpack(head->peer);
  *frame = {static_cast<FrameKind>(head->kind), body.substr(sizeof(RelayHead))};
  if (frame->kind == FrameKind::kRelayed || frame->kind == FrameKind::kRelay || IsNear(*from))
    return false;
  if (from->is_raylet()) return true;
  if (frame->kind == kTaken) {
    if (const auto* taken = FrameHead<Taken>(frame->body)) RelayTo(*from).OnGrant(taken->bytes);
    return false;
  }
  RelayTo(*from).Took(RelayedBytes(frame->body.size()), limits_.taken_step);
  return true;
}

}  // namespace sheaf
