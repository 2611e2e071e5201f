// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The life of detached actors: orders to raylets, their reports, restarts, ends. An incarnation is on
// disk before any raylet hears of it, so no two raylets are given the same.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gcs/actors/actor_placement.h"
#include "gcs/actors/actor_state.h"
#include "gcs/actors/actor_table.h"
#include "gcs/command_pipeline.h"
#include "gcs/gcs_options.h"
#include "gcs/job_table.h"
#include "gcs/node_table.h"
#include "gcs/publisher.h"

namespace sheaf {

// What a command that changes the actor holds in the pipeline.
std::string ActorLatch(const ActorId& id);
// Tells those that follow actors.
void PublishActor(Publisher& publisher, const proto::ActorInfo& info);

class ActorLifecycle {
 public:
  // All outlive it. `on_last_detached` is called when the last living detached actor of a job is
  // dead.
  ActorLifecycle(const GcsContext& context, const NodeTable& nodes, const JobTable& jobs,
                 ActorPlacement& placement, ActorTable& table,
                 std::function<void(JobNumber)> on_last_detached);
  ActorLifecycle(const ActorLifecycle&) = delete;
  ActorLifecycle& operator=(const ActorLifecycle&) = delete;

  // The raylets have reported (or had their time): what none of them knows is lost, and orders may
  // go out.
  void Activate();
  // A detached actor has been registered.
  void Begin(const ActorId& id, ActorEntry& entry);
  // For good.
  void End(CallPtr call, const ActorId& id, proto::Death death);
  // It has asked for its end, and will end soon: until then it may die, which is its end as well.
  void Leave(CallPtr call, const ActorId& id);
  // The incarnation that lives, if one does, shall end; whether another follows, its restarts say.
  void Restart(const ActorId& id, std::string_view reason);
  // From the raylet of `node`; `call` may be nullptr.
  void OnReport(CallPtr call, NodeNumber node, const proto::ActorStateReport& report);
  void OnNodeDead(NodeNumber node, const proto::Death& death);
  void Tick();

  uint64_t restarts() const { return restarts_; }

 private:
  struct Happening {
    ActorId id;
    uint32_t incarnation = 0;  // 0: any.
    ActorEvent event;
    bool stays = false;  // The next incarnation is ordered from the node that was asked for this.
    proto::Death death = {};
    proto::ActorStarted started = {};
  };
  void EndStale(const ActorId& id, ActorEntry* entry, NodeNumber node,
                const proto::ActorStateReport& report);
  void OnCurrentReport(CallPtr call, const ActorId& id, ActorEntry& entry, NodeNumber node,
                       const proto::ActorStateReport& report);
  void Happen(CallPtr call, Happening what);
  Outcome Plan(const Happening& what);
  void Apply(const Happening& what, const ActorStep& step, proto::ActorRecord record);
  // Says why an actor that ended soon after its start is not started again at once.
  void TellDelay(const Happening& what, ActorEntry& entry, NodeNumber host, Nanos delay);
  void Accept(NodeNumber node, const ActorId& id, const std::string& pending);
  void Order(const ActorId& id, ActorEntry& entry);
  bool FindNode(const ActorId& id, ActorEntry& entry);
  void EndIncarnation(NodeNumber node, const ActorId& id, ActorEntry& entry, uint32_t incarnation);
  void SendKill(NodeNumber node, const ActorId& id, uint32_t incarnation, std::string_view reason);

  const GcsContext context_;
  const NodeTable& nodes_;
  const JobTable& jobs_;
  ActorPlacement& placement_;
  ActorTable& table_;
  const std::function<void(JobNumber)> on_last_detached_;
  bool active_ = false;
  std::set<ActorId> ending_;           // Some raylet has yet to say that an incarnation is gone.
  std::vector<Happening> unrecorded_;  // Did not get to disk: again at the next Tick.
  uint64_t restarts_ = 0;
};

}  // namespace sheaf
