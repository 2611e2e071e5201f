// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Names of actors, and the whole life of detached ones: orders to raylets, their reports, restarts.
// Durable: names, incarnations, deaths. An incarnation is on disk before any raylet hears of it, so
// no two raylets are given the same.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gcs/actor_placement.h"
#include "gcs/actor_state.h"
#include "gcs/actor_table.h"
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
  void OnReport(CallPtr call, NodeNumber node, const proto::ActorStateReport& report);
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
  uint64_t restarts() const { return restarts_; }
  // A detached actor of `job` lives, or will as soon as it is on disk.
  bool KeepsJob(JobNumber job) const {
    return table_.HasDetachedOf(job) || registering_.contains(job);
  }

 private:
  struct Happening {
    ActorId id;
    uint32_t incarnation = 0;  // 0: any.
    ActorEvent event;
    bool stays = false;  // The next incarnation is ordered from the node that was asked for this.
    proto::Death death = {};
    proto::ActorStarted started = {};
  };
  void EndKnown(CallPtr call, const proto::EndActor& request);
  void Happen(CallPtr call, Happening what);
  Outcome Plan(const Happening& what);
  void Apply(const Happening& what, const ActorStep& step, proto::ActorRecord record);
  void Accept(NodeNumber node, const ActorId& id, const std::string& pending);
  void EndNamed(CallPtr call, const ActorId& id, proto::Death death);
  void Trim();
  void Order(const ActorId& id, ActorEntry& entry);
  bool FindNode(const ActorId& id, ActorEntry& entry);
  void EndIncarnation(NodeNumber node, const ActorId& id, ActorEntry& entry, uint32_t incarnation);
  void SendKill(NodeNumber node, const ActorId& id, uint32_t incarnation, std::string_view reason);
  void Publish(const proto::ActorInfo& info);

  const GcsContext context_;
  const NodeTable& nodes_;
  const JobTable& jobs_;
  ActorPlacement& placement_;
  const std::function<void(JobNumber)> on_last_detached_;
  ActorTable table_;
  bool active_ = false;
  std::set<ActorId> ending_;           // Some raylet has yet to say that an incarnation is gone.
  std::vector<Happening> unrecorded_;  // Did not get to disk: again at the next Tick.
  std::vector<std::pair<ActorId, proto::Death>> unended_;
  std::multiset<JobNumber> registering_;  // Of detached actors on their way to the disk.
  uint64_t restarts_ = 0;
};

}  // namespace sheaf
