// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The processes that this one pushes calls to.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "base/transport.h"
#include "worker/owner/task_record.h"

namespace sheaf {

class PeerTable {
 public:
  explicit PeerTable(Transport& transport) : transport_(transport) {}

  // Stable until Forget.
  Peer& Of(ProcessId process) {
    std::unique_ptr<Peer>& peer = peers_[process];
    if (!peer) peer = std::make_unique<Peer>(Peer{process, &transport_.To(process), {}});
    return *peer;
  }
  template <class Visit>
  void ForEach(Visit visit) {
    for (auto& [process, peer] : peers_) visit(*peer);
  }
  // `process` is dead.
  void Forget(ProcessId process) {
    peers_.erase(process);
    transport_.Forget(process);
  }

 private:
  Transport& transport_;
  absl::flat_hash_map<ProcessId, std::unique_ptr<Peer>> peers_;
};

}  // namespace sheaf
