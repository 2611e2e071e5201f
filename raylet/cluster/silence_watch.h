// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Nodes that are not heard while the GCS is not heard either. Whether a node lives only the GCS can
// say, so nothing is given up: what is pending there stays so, as it may run. But who waits for it
// is told, and may do something else. Pure; one thread.
#pragma once

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "raylet/death_register.h"
#include "raylet/node_tables.h"

namespace sheaf {

class SilenceWatch {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Nanos limit;  // After which silence is spoken of.
    Clock& clock;
    Transport& transport;
    const AttachedProcesses& processes;
    const DeathRegister& deaths;
  };
  explicit SilenceWatch(const Deps& deps) : deps_(deps) {}
  SilenceWatch(const SilenceWatch&) = delete;
  SilenceWatch& operator=(const SilenceWatch&) = delete;

  // The link to `node`, or to the GCS, is up or down.
  void OnNodeLink(NodeNumber node, bool up);
  void OnGcsLink(bool up);
  // `node` is dead, which says more.
  void OnNodeDead(NodeNumber node);
  // A process has come: it hears what the others have heard.
  void OnAttached(ProcessId process);
  void Tick();

 private:
  void Tell(ProcessId process, NodeNumber node, bool heard);
  void TellAll(NodeNumber node, bool heard);

  const Deps deps_;
  absl::btree_map<NodeNumber, Nanos> silent_since_;  // Nodes whose links are down.
  absl::btree_set<NodeNumber> told_;                 // Those of them that processes know of.
  Nanos gcs_silent_since_ = kForever;
};

}  // namespace sheaf
