// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/node_tables.h"

namespace sheaf {

std::vector<ProcessId> HungUp(const AttachedProcesses& processes, Nanos latest) {
  std::vector<ProcessId> hung_up;
  for (const auto& [process, entry] : processes) {
    if (entry.socket_closed_at != 0 && entry.socket_closed_at <= latest) hung_up.push_back(process);
  }
  return hung_up;
}

JobNumber JobOfDetached(const DetachedActorTable& actors, uint64_t key) {
  for (const auto& [id, actor] : actors) {
    if (actor.key == key) return actor.job;
  }
  return 0;
}

proto::ActorStateReport ReportOf(const DetachedActor& actor, const AttachedProcesses& processes) {
  proto::ActorStateReport report;
  report.set_actor_id(actor.start.actor_id());
  report.set_incarnation(actor.start.incarnation());
  if (actor.started) {
    report.mutable_started()->set_process(actor.worker.packed());
    report.mutable_started()->set_lease(actor.lease);
    if (const auto it = processes.find(actor.worker); it != processes.end()) {
      report.mutable_started()->set_os_pid(it->second.info.os_pid);
    }
  } else if (actor.worker.process != 0) {
    report.set_pending("its constructor runs");
  } else {
    report.set_pending(actor.pending.empty() ? "a worker" : actor.pending);
  }
  return report;
}

}  // namespace sheaf
