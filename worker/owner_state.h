// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Everything a process knows as an owner, borrower and caller, wired together: the pure half of a
// Runtime, which tests/sim runs as it is. One lock (the runtime's) or one thread (the simulator's)
// guards it.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/transport.h"
#include "worker/owner/actor_submitter.h"
#include "worker/owner/created_actors.h"
#include "worker/owner/object_resolver.h"
#include "worker/owner/peer_table.h"
#include "worker/owner/reference_table.h"
#include "worker/owner/task_submitter.h"
#include "worker/owner/task_table.h"
#include "worker/owner/template_table.h"
#include "worker/owner/transit_table.h"

namespace sheaf {

class OwnerState {
 public:
  OwnerState(ProcessId self, Clock& clock, Transport& transport, LocalStore& store,
             std::function<void(std::span<const ObjectId>)> look_up,
             const BackPressure& limits = {});

  ~OwnerState();  // Handles may outlive it.

  // Frames for owners, borrowers and callers. False: not one of these kinds.
  bool OnFrame(ProcessId from, const Frame& frame);
  // All frames of `process` have been handled.
  void OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started);
  // No process of `node` lives any more; OnProcessDied was called for those that were spoken to.
  void OnNodeGone(NodeNumber node);
  // Nobody can say whether `node` lives. Empty `reason`: it is heard again, or somebody can.
  void OnNodeSilent(NodeNumber node, const std::string& reason);
  // Not empty: what `object` waits for is on such a node. It stays pending, as it may come yet.
  std::string WordsOfSilence(const ObjectEntry& object) const;
  // What `task`, which is pending, waits for.
  std::string WordsOf(const TaskRecord& task) const;
  bool knows_silence() const { return !silent_nodes_.empty(); }
  // Cancels the call that makes `object`, wherever it is.
  void Cancel(ObjectEntry& object, bool force, bool recursive);
  void CancelTask(TaskId task, bool force, bool recursive);
  // All unfinished calls that were submitted by `parent`.
  void CancelChildren(TaskId parent, bool force);
  // Returns when it wants to be called next.
  Nanos Tick();

  const ProcessId self;
  Transport& transport;
  ReferenceTable references;
  TransitTable transits;
  PeerTable peers;
  TaskTable tasks;
  TaskSubmitter submitter;
  TemplateTable templates;
  ActorSubmitter actors;
  CreatedActors created_actors;
  ObjectResolver resolver;
  uint64_t pushes_returned = 0;  // Given back by workers unstarted.

 private:
  void OnTransitDone(ProcessId from, const Frame& frame);
  void OnActorControl(ProcessId from, const Frame& frame);
  bool OnLeaseFrame(ProcessId from, const Frame& frame);
  void OnReply(ProcessId from, std::string_view body);
  void OnReturned(ProcessId from, std::string_view body);
  void CancelRecord(TaskRecord& task, bool force, bool recursive);
  NodeNumber SilentNodeOf(const ObjectEntry& object, int* looks) const;

  absl::btree_map<NodeNumber, std::string> silent_nodes_;  // With the raylet's reason.
};

}  // namespace sheaf
