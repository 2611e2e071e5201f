// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: a GcsService with what an actor needs.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gcs/gcs_world_for_test.h"

namespace sheaf {

// One node, one job, and the detached actor `id` (not registered yet).
class ActorWorld : public GcsWorld {
 public:
  explicit ActorWorld(GcsOptions options = {}) : GcsWorld(std::move(options)) {
    node = AddNode();
    job = AddJob(node);
    driver = {node, 1};
    id = ActorId::Make(driver, 1);
  }
  proto::GcsRequest Registration(const std::string& name, bool detached,
                                 int max_restarts = 0) const {
    proto::GcsRequest request;
    proto::RegisterActor* actor = request.mutable_register_actor();
    actor->set_actor_id(id.Binary());
    actor->set_name(name);
    actor->set_name_space("ns");
    actor->set_job(job);
    actor->set_detached(detached);
    actor->set_max_restarts(max_restarts);
    actor->set_creation("creation task");
    actor->set_handle("methods");
    return request;
  }
  proto::ActorInfo Lookup(const ActorId& actor) {
    proto::GcsRequest request;
    request.mutable_lookup_actor()->set_actor_id(actor.Binary());
    return Ask(driver, request).actor();
  }
  proto::GcsReply LookupName(const std::string& name) {
    proto::GcsRequest request;
    request.mutable_lookup_actor()->set_name(name);
    request.mutable_lookup_actor()->set_name_space("ns");
    return Ask(driver, request);
  }
  proto::ActorStateReport Report(uint32_t incarnation) const {
    proto::ActorStateReport report;
    report.set_actor_id(id.Binary());
    report.set_incarnation(incarnation);
    return report;
  }
  void SendReport(NodeNumber from, proto::ActorStateReport report) {
    proto::GcsRequest request;
    *request.mutable_actor_state_report() = std::move(report);
    Ask(RayletOf(from), request);
  }
  void Started(NodeNumber from, uint32_t incarnation, uint32_t process = 9) {
    auto report = Report(incarnation);
    report.mutable_started()->set_process(ProcessId{from, process}.packed());
    SendReport(from, report);
  }
  void Died(NodeNumber from, uint32_t incarnation) {
    auto report = Report(incarnation);
    report.mutable_died()->set_cause(proto::Death::SIGNALLED);
    report.mutable_died()->set_message("killed by signal 11");
    SendReport(from, report);
  }
  // The incarnations that `raylet` has been told to start since the last call.
  std::vector<uint32_t> Starts(NodeNumber raylet) {
    std::vector<uint32_t> starts;
    for (const proto::GcsEvent& event : TakeEvents(RayletOf(raylet))) {
      if (event.has_start_actor()) starts.push_back(event.start_actor().incarnation());
      if (event.has_kill_actor()) kills.push_back(event.kill_actor().incarnation());
    }
    return starts;
  }
  // Registers the actor, which holds a CPU and restarts for ever. One that holds nothing is spread
  // over the nodes, whatever fails.
  void RegisterWithCpu() {
    proto::GcsRequest request = Registration("name", /*detached=*/true, /*max_restarts=*/-1);
    auto& amounts = *request.mutable_register_actor()->mutable_lease()->mutable_resources();
    (*amounts.mutable_amounts())["CPU"] = 10'000;
    Ask(driver, request);
  }
  // Waits until one of `nodes` is told to start `incarnation`, which fails; returns that node.
  NodeNumber FailStart(uint32_t incarnation, const std::vector<NodeNumber>& nodes) {
    for (;; Pass(100 * kMillisecond, nodes)) {
      for (const NodeNumber asked : nodes) {
        const std::vector<uint32_t> told = Starts(asked);
        if (std::count(told.begin(), told.end(), incarnation) == 0) continue;
        auto report = Report(incarnation);
        report.mutable_died()->set_cause(proto::Death::START_FAILED);
        report.mutable_died()->set_message("it uses Sheaf 0.0.9, the node 0.1.0");
        SendReport(asked, report);
        return asked;
      }
    }
  }

  NodeNumber node;
  JobNumber job;
  ProcessId driver;
  ActorId id;
  std::vector<uint32_t> kills;  // Seen by Starts.
};

}  // namespace sheaf
