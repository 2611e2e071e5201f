// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who of this node has spoken with whom of another: the way of frames between them, and who hears of
// whose death.
//
// A process that has spoken with one of another node, in either direction, is in contact with it:
// when it dies, the other is told, behind all that it had sent. Raylets are contacts as well, for
// they ask on behalf of their processes. Most frames pass between open contacts, of which both are
// alive as far as is known here: all are closed whenever a process or node dies, and opened again by
// the next frame.
//
// Pure; one thread. A sender is a process of users and can write what it likes: a frame that may not
// leave the node is kInvalidArgument.
#pragma once

#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "metrics/page.h"
#include "proto/raylet.pb.h"
#include "raylet/cluster/node_links.h"
#include "raylet/death_register.h"
#include "raylet/node_tables.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class Contacts {
 public:
  // A node that nobody has described after so long is none.
  static constexpr Nanos kUnknownNodeLimit = 10 * kSecond;

  // All outlive it.
  struct Deps {
    NodeNumber node;
    Clock& clock;
    Transport& transport;
    NodeLinks& links;
    metrics::Page& metrics;
    const ClusterView& view;
    const AttachedProcesses& processes;
    const DeathRegister& deaths;
  };
  explicit Contacts(const Deps& deps) : deps_(deps) {}
  Contacts(const Contacts&) = delete;
  Contacts& operator=(const Contacts&) = delete;

  // --- Frames that leave the node.
  // kRelay of `from`, for an open contact of it: it is on its way. False: OnRelay has to look.
  bool ForwardOut(ProcessId from, const Frame& frame);
  // kRelay of `from`, for whomever: the two are in contact then. If the other is a process that is
  // known to be dead, `from` is told so; what is for a dead raylet goes nowhere.
  absl::Status OnRelay(ProcessId from, const Frame& frame);

  // --- Frames that come from other nodes.
  // `from` to `to`, a process of this node: it is delivered if the contact is open.
  bool ForwardIn(ProcessId from, ProcessId to, Lane lane, const Frame& frame);
  // The same, where nothing is known of the contact: of a dead `to` the sender is told.
  void DeliverLocal(ProcessId from, ProcessId to, Lane lane, const Frame& frame);

  // `process` of this node is about to hear of `remote`, and to speak with it.
  void Add(ProcessId process, ProcessId remote) { contacts_[process].insert(remote); }

  // --- Deaths.
  // `process` of this node is dead: all with whom it spoke learn of it behind what it sent, as
  // `told` says it to each, and so do the raylets of their nodes and of `nodes`. Returns the
  // processes of other nodes that may have references from it: they say when they have seen
  // everything.
  absl::btree_set<ProcessId> OnProcessDied(ProcessId process, const proto::Death& death,
                                           absl::FunctionRef<proto::ProcessDied(ProcessId)> told,
                                           const std::vector<NodeNumber>& nodes);
  // `process` of another node is dead: who spoke with it was told, or is told by its raylet.
  void OnRemoteDeath(ProcessId process);
  // A node is dead: the processes of this one hear so, and of each that they spoke with there.
  void OnNodeDead(NodeNumber node, const proto::Death& death);

  // Nodes that processes wrote to and that, for all that is known after kUnknownNodeLimit, do not
  // exist; each once.
  std::vector<NodeNumber> TakeUnknownNodes();

 private:
  void Deliver(ProcessId from, ProcessId to, Lane lane, const Frame& frame);
  void Refuse(ProcessId process, ProcessId remote);

  const Deps deps_;
  // Processes of this node, and those of others (raylets too) with which each has spoken.
  absl::btree_map<ProcessId, absl::btree_set<ProcessId>> contacts_;
  absl::flat_hash_set<std::pair<ProcessId, ProcessId>> open_;  // Local process first.
  // Written to by processes, and not heard of yet.
  absl::btree_map<NodeNumber, Nanos> unknown_nodes_;
};

}  // namespace sheaf
