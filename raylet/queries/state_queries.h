// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the command line and the `list` functions ask: answered from this raylet's own state
// (StateRows), from the GCS where it knows more, from the owners on this node, who alone know their
// tasks and objects, and from the other raylets, which ask theirs. Who does not answer in time is
// left out. Pure; one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/logs/node_logs.h"
#include "raylet/node_tables.h"
#include "raylet/queries/log_queries.h"
#include "raylet/queries/state_rows.h"
#include "raylet/queries/task_events.h"
#include "raylet/workers/process_states.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class StateQueries {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Nanos limit;  // Processes have so long to answer, other nodes half of it.
    Clock& clock;
    Transport& transport;
    GcsLink& gcs;
    const ClusterView& view;
    const AttachedProcesses& processes;
    std::function<bool(NodeNumber)> is_node_dead;
    std::function<bool(const std::string& submission_id)> runs_entrypoint;
    std::function<void()> drain_here;  // A tool wants it, and the GCS does not answer.
    NodeLogs* logs;                    // nullptr: this node keeps none.
    TaskEvents* task_events;           // nullptr: nothing is remembered of ended calls.
    ProcessStates* process_states;     // nullptr: the kernel is not asked of processes.
  };
  StateQueries(Deps deps, const StateRows::Sources& sources);
  StateQueries(const StateQueries&) = delete;
  StateQueries& operator=(const StateQueries&) = delete;

  // kStateQuery of a process of this node, or of another raylet. kInvalidArgument: malformed.
  absl::Status OnQuery(ProcessId from, const Frame& frame);
  // kStateAnswer of somebody who was asked; late and repeated ones change nothing.
  absl::Status OnAnswer(ProcessId from, const Frame& frame);
  // `process`, or the raylet of a node, is gone: it will not answer.
  void Forget(ProcessId process);
  // Answers what has waited for long enough.
  void Tick();

 private:
  struct Query {
    ProcessId asker;
    StateAsked asked;
    Nanos deadline = 0;
    absl::btree_set<ProcessId> waits_for;  // Processes of this node, and raylets of others.
    std::deque<NodeNumber> nodes_to_ask;   // Later: so many are asked at once.
    bool waits_for_gcs = false;
    bool waits_for_events = false;
    Nanos stacks_until = 0;  // STACKS: then the kernel is asked of who is silent. 0: it was.
    bool waits_for_kernel = false;
    proto::GroupList groups;  // As the GCS knows them.
  };
  Channel& To(ProcessId process) { return deps_.transport.To(process); }
  Nanos PatienceOf(const proto::StateQuery& message) const;
  void AskProcesses(uint64_t number, Query& query);
  void AskNodes(uint64_t number, Query& query);
  bool AddAskedNode(Query& query);
  void AskSomeNodes(uint64_t number, Query& query);
  void AskGcs(uint64_t number, Query& query);
  void AskEvents(uint64_t number, Query& query);
  void OnEvents(uint64_t number, proto::StateAnswer answer);
  void AskKernel(uint64_t number, Query& query);
  void OnKernel(uint64_t number, const std::vector<proto::ProcessStacks>& described);
  void OnGcsReply(uint64_t number, const proto::GcsReply& reply);
  void AskGcsOfItself(uint64_t number);
  void AskGcsForDemand(uint64_t number);
  void MergeGcs(const proto::GcsReply& reply, StateAsked& asked) const;
  static bool WaitsForProcesses(const Query& query);
  static void TellLate(Query& query);
  void DrainWithoutGcs(StateAsked& asked) const;
  static void Merge(proto::StateAnswer& message, StateAsked& asked);
  void FinishIfComplete(uint64_t number);

  const Deps deps_;
  const StateRows rows_;
  LogQueries logs_;
  absl::btree_map<uint64_t, Query> queries_;
  uint64_t last_query_ = 0;
};

}  // namespace sheaf
