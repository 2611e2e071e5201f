// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The Transport of a driver or worker: rings to the processes of its node, and through its raylet
// to all others, whose frames travel inside kRelay. The order within a lane holds for both.
//
// Not thread-safe: guarded by the lock that guards the rings.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/transport.h"

namespace sheaf {

class RelayTransport final : public Transport {
 public:
  // `rings` reaches the processes of `node`, its raylet and the GCS; it outlives this.
  RelayTransport(NodeNumber node, Transport& rings);
  ~RelayTransport() override;

  Channel& To(ProcessId peer) override;
  void Forget(ProcessId peer) override;

 private:
  class RelayChannel;
  const NodeNumber node_;
  Transport& rings_;
  absl::flat_hash_map<ProcessId, std::unique_ptr<RelayChannel>> relays_;
};

// A frame of another node, as it came in kRelayed. False: `body` is malformed.
bool OpenRelayed(std::string_view body, ProcessId* from, Frame* frame);

}  // namespace sheaf
