// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Transport of a driver or worker: rings to the processes of its node, a loop to itself, and
// through its raylet to all others, whose frames travel inside kRelay. The order within a lane holds
// for all. Each end counts what the other has of it (worker/owner/back_pressure.h).
//
// Not thread-safe: guarded by the lock that guards the rings.
#pragma once

#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/transport.h"
#include "worker/core/loopback.h"
#include "worker/owner/back_pressure.h"

namespace sheaf {

class RelayTransport final : public Transport {
 public:
  // `rings` reaches the other processes of the node of `self`, its raylet and the GCS; it outlives
  // this. `sent_to_self`: of Loopback.
  RelayTransport(ProcessId self, Transport& rings, std::function<void(Lane)> sent_to_self,
                 const BackPressure& limits = {});
  ~RelayTransport() override;

  Channel& To(ProcessId peer) override;
  void Forget(ProcessId peer) override;

  // Takes a frame of another node out of the kRelayed that brought it, and grants its sender room.
  // False: `body` is malformed, or was for this transport alone.
  bool Take(std::string_view body, ProcessId* from, Frame* frame);

  Loopback& loopback() { return loopback_; }

 private:
  class RelayChannel;
  bool IsNear(ProcessId peer) const { return peer.node == self_.node || peer.node == kGcs.node; }
  RelayChannel& RelayTo(ProcessId peer);

  const ProcessId self_;
  Transport& rings_;
  Loopback loopback_;
  const BackPressure limits_;
  absl::flat_hash_map<ProcessId, std::unique_ptr<RelayChannel>> relays_;
  RelayChannel* last_ = nullptr;  // What RelayTo found last.
};

}  // namespace sheaf
