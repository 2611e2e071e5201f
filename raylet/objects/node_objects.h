// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The objects of a node and the references that it holds, as one: which part reads which frame, what
// follows when the store drops an object, and in which order the parts and the store hear of a death.
// Pure; one thread. A malformed frame is kInvalidArgument, and changes nothing.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "metrics/page.h"
#include "object_store/server/store_server.h"
#include "raylet/death_register.h"
#include "raylet/objects/adoption.h"
#include "raylet/objects/argument_admission.h"
#include "raylet/objects/block_source.h"
#include "raylet/objects/object_server.h"
#include "raylet/objects/object_transfers.h"
#include "raylet/objects/reference_ledger.h"
#include "raylet/objects/store_events.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class NodeObjects {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Clock& clock;
    Transport& transport;
    StoreServer& store;
    StoreEvents& store_events;  // The observer of `store`.
    metrics::Page& metrics;
    BlockSource& blocks;
    Executor& loop;    // Runs on the thread that calls everything here.
    Executor& copier;  // Large copies and checksums.
    const ClusterView& view;
    const DeathRegister& deaths;
    // Not all that a dead process of this node sent has been read by its peers yet.
    std::function<bool(ProcessId)> is_draining;
    // The store found that a process broke the protocol.
    std::function<void(ProcessId, const absl::Status&)> on_violation;
  };
  explicit NodeObjects(Deps deps);
  NodeObjects(const NodeObjects&) = delete;
  NodeObjects& operator=(const NodeObjects&) = delete;

  // A process of this node sent a frame of the store (IsStoreFrame).
  absl::Status OnStoreFrame(ProcessId from, const Frame& frame);
  // A process or raylet of another node sent one.
  absl::Status OnRemoteStoreFrame(ProcessId from, const Frame& frame);
  // kRefsReport, kNodeRefsAck, kAdoptedQuery, kOrphanRefs, kOrphanRefsAck.
  absl::Status OnReferenceFrame(ProcessId from, const Frame& frame);
  // The raylet `reader` asks for a block of an object (ObjectServer::OnFetch).
  void OnBlockRequest(NodeNumber reader, std::string_view request, ObjectServer::Respond respond);

  // --- A process of this node is dead, in the order in which this happens:
  // its calls hold no arguments any more;
  void OnCallsGone(ProcessId process) { arguments_.OnProcessGone(process); }
  // who keeps what it was sent hears first that this node holds it;
  void TellBeforeDeath(ProcessId process) { references_.TellBeforeDeath(process); }
  // Lets calls hold their arguments as far as there is room.
  void AdmitArguments() { arguments_.Settle(); }
  // it has exited, or closed its socket: it waits for nothing;
  void OnProcessGone(ProcessId process);
  // its peers have read all that it sent, so no reference is on its way from it;
  void OnDrained(ProcessId process);
  // nobody can look at the store through its views.
  void OnViewsGone(ProcessId process) { deps_.store.OnViewsGone(process); }

  // `owner`, of any node, is dead: who asks now for what it had learns what is here.
  void OnOwnerDied(ProcessId owner) { adoption_.OnOwnerDied(owner); }
  // That of another node is dead, and no reference is on its way from it.
  void OnRemoteOwnerGone(ProcessId owner);
  // After OnRemoteOwnerGone for the owners on `node`.
  void OnNodeDead(NodeNumber node);

  // Carries out what follows from what was said. To be called often: it costs little when that is
  // nothing.
  void Settle();
  void Tick();
  Nanos NextTick() const;

  const ObjectTransfers& transfers() const { return transfers_; }
  const ReferenceLedger& references() const { return references_; }
  const Adoption& adoption() const { return adoption_; }
  const ArgumentAdmission& arguments() const { return arguments_; }
  // For the sweeps, which repair what is wrong there.
  ReferenceLedger& references() { return references_; }
  Adoption& adoption() { return adoption_; }

 private:
  const Deps deps_;
  ReferenceLedger references_;
  Adoption adoption_;
  ObjectTransfers transfers_;
  ArgumentAdmission arguments_;
  Nanos next_store_tick_ = 0;
};

}  // namespace sheaf
