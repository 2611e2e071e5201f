// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Named and detached actors, as processes ask for them: who has which name, where an actor is, and
// that it shall end. Durable: names, incarnations, deaths. The life of detached ones is
// ActorLifecycle.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gcs/actors/actor_lifecycle.h"
#include "gcs/actors/actor_placement.h"
#include "gcs/actors/actor_table.h"
#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/job_table.h"
#include "gcs/node_table.h"

namespace sheaf {

class ActorService {
 public:
  static constexpr size_t kMaxNameBytes = 1024;
  static constexpr size_t kMaxRows = 200'000;

  // `on_last_detached` is called when the last living detached actor of a job is dead.
  ActorService(const GcsContext& context, const NodeTable& nodes, const JobTable& jobs,
               ActorPlacement& placement, std::function<void(JobNumber)> on_last_detached);

  void Load(std::string_view key, std::string_view value);
  // The raylets have reported (or had their time): what none of them knows is lost, and orders may
  // go out.
  void Activate();

  void Register(CallPtr call, const proto::RegisterActor& request);
  void Lookup(const CallPtr& call, const proto::LookupActor& request) const;
  void List(const CallPtr& call, const proto::ListActors& request) const;
  void End(CallPtr call, const proto::EndActor& request);
  // From the raylet of `node`; `call` may be nullptr.
  void OnReport(CallPtr call, NodeNumber node, const proto::ActorStateReport& report) {
    life_.OnReport(std::move(call), node, report);
  }
  void OnRows(NodeNumber node, const google::protobuf::RepeatedPtrField<proto::ActorRow>& rows);
  void OnNodeDead(NodeNumber node);
  void OnProcessGone(ProcessId process);
  void OnJobEnded(JobNumber job);
  // Of living named actors.
  std::set<ProcessId> CreatorsOn(NodeNumber node) const;
  // False: the answer would be too large, or `key` is no id.
  bool AddSnapshot(std::string_view key, proto::Snapshot* snapshot) const;
  void Tick();

  const ActorTable& table() const { return table_; }
  uint64_t restarts() const { return life_.restarts(); }
  // A detached actor of `job` lives, or will as soon as it is on disk.
  bool KeepsJob(JobNumber job) const {
    return table_.HasDetachedOf(job) || registering_.contains(job);
  }

 private:
  // Of a registration; empty: nothing.
  std::string WhatIsWrong(const Call& call, const proto::RegisterActor& request) const;
  Outcome PlanRegistration(const ActorId& id, const proto::RegisterActor& request,
                           const std::function<void()>& registered);
  void EndKnown(CallPtr call, const proto::EndActor& request);
  void EndNamed(CallPtr call, const ActorId& id, proto::Death death);
  void Trim();

  const GcsContext context_;
  const NodeTable& nodes_;
  const JobTable& jobs_;
  ActorTable table_;
  ActorLifecycle life_;
  // Ends of named actors that did not get to disk: again at the next Tick.
  std::vector<std::pair<ActorId, proto::Death>> unended_;
  std::multiset<JobNumber> registering_;  // Of detached actors on their way to the disk.
};

}  // namespace sheaf
