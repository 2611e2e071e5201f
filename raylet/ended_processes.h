// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is left of the processes of this node that died. When its ring peers have drained what a
// process sent, no reference can be on its way from it any more: what it held goes, and of what it
// owned this node keeps the sealed objects that somebody still borrows. When its socket is at its
// end as well, nobody has a view through it: its rings, segment and pins go. Pure; one thread.
#pragma once

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "raylet/death_register.h"
#include "raylet/node_tables.h"
#include "raylet/objects/node_objects.h"
#include "raylet/workers/launcher.h"

namespace sheaf {

class EndedProcesses {
 public:
  // All outlive it.
  struct Deps {
    Nanos drain_limit;  // Peers have so long to drain what a process sent.
    Clock& clock;
    Transport& transport;
    WorkerLauncher& launcher;
    Switchboard& switchboard;
    DeathRegister& deaths;
    NodeObjects& objects;
  };
  explicit EndedProcesses(const Deps& deps) : deps_(deps) {}
  EndedProcesses(const EndedProcesses&) = delete;
  EndedProcesses& operator=(const EndedProcesses&) = delete;

  // `process`, which was attached as `was`, is dead, or said goodbye and has not exited yet.
  // `undrained`: who may have references from it. OnPeersGone for `process` itself comes next.
  void Add(ProcessId process, const AttachedProcess& was, bool exited,
           absl::btree_set<ProcessId> undrained);
  // False: nothing is left of `process`, or it is alive.
  bool OnExited(ProcessId process);
  bool OnSocketClosed(ProcessId process);
  // `peer` has drained what `process` sent; those for whom `gone` is true will never say so.
  void OnPeerDrained(ProcessId peer, ProcessId process);
  void OnPeersGone(absl::FunctionRef<bool(ProcessId)> gone);
  void Tick();

  bool contains(ProcessId process) const { return ended_.contains(process); }
  bool IsDraining(ProcessId process) const;
  JobNumber JobOf(ProcessId process) const;  // As in AttachedProcess; 0: nothing is left of it.
  size_t size() const { return ended_.size(); }

 private:
  struct Ended {
    ProcessRole role = ProcessRole::kTool;
    JobNumber job = 0;
    Nanos died_at = 0;
    // Its pidfd said so (else it said goodbye, and its exit is still to come).
    bool exited = false;
    bool socket_closed = false;
    bool drained = false;  // All its peers have drained what it sent.
    bool store_knows = false;
    bool views_gone = false;
    absl::btree_set<ProcessId> undrained;
  };
  void OnDrained(ProcessId process);
  void TellStore(ProcessId process, Ended& ended);
  void RemoveIfOver(ProcessId process);

  const Deps deps_;
  absl::btree_map<ProcessId, Ended> ended_;
};

}  // namespace sheaf
