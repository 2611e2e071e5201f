// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/ended_processes.h"

#include <utility>
#include <vector>

namespace sheaf {
namespace {

// A worker that said goodbye is killed after this.
constexpr Nanos kExitAfterGoodbye = 5 * kSecond;

}  // namespace

void EndedProcesses::Add(ProcessId process, const AttachedProcess& was, bool exited,
                         absl::btree_set<ProcessId> undrained) {
  Ended& ended = ended_[process];
  ended.role = was.info.role;
  ended.job = was.job;
  ended.died_at = deps_.clock.Now();
  ended.exited = exited;
  ended.socket_closed = was.socket_closed_at != 0;
  ended.undrained = std::move(undrained);
  TellStore(process, ended);
}

bool EndedProcesses::OnExited(ProcessId process) {
  const auto it = ended_.find(process);
  if (it == ended_.end()) return false;
  it->second.exited = true;
  RemoveIfOver(process);
  return true;
}

bool EndedProcesses::OnSocketClosed(ProcessId process) {
  const auto it = ended_.find(process);
  if (it == ended_.end()) return false;
  it->second.socket_closed = true;
  RemoveIfOver(process);
  return true;
}

void EndedProcesses::OnPeerDrained(ProcessId peer, ProcessId process) {
  const auto it = ended_.find(process);
  if (it == ended_.end() || it->second.undrained.erase(peer) == 0) return;
  if (it->second.undrained.empty()) OnDrained(process);
}

void EndedProcesses::OnPeersGone(absl::FunctionRef<bool(ProcessId)> gone) {
  std::vector<ProcessId> drained;
  for (auto& [process, ended] : ended_) {
    absl::erase_if(ended.undrained, gone);
    if (ended.undrained.empty() && !ended.drained) drained.push_back(process);
  }
  for (const ProcessId process : drained) OnDrained(process);
}

void EndedProcesses::OnDrained(ProcessId process) {
  ended_.at(process).drained = true;
  deps_.objects.OnDrained(process);
  RemoveIfOver(process);
}

// What the store learns as a process goes: first that it is dead, then that nobody can see through
// its views any more.
void EndedProcesses::TellStore(ProcessId process, Ended& ended) {
  if (!ended.store_knows && (ended.exited || ended.socket_closed)) {
    ended.store_knows = true;
    deps_.objects.OnProcessGone(process);
  }
  if (ended.store_knows && ended.socket_closed && !ended.views_gone) {
    ended.views_gone = true;
    deps_.objects.OnViewsGone(process);
  }
}

void EndedProcesses::RemoveIfOver(ProcessId process) {
  Ended& ended = ended_.at(process);
  TellStore(process, ended);
  if (!ended.drained || !ended.socket_closed) return;
  if (ended.role == ProcessRole::kWorker && !ended.exited) return;
  ended_.erase(process);
  deps_.deaths.RecordNothingLeft(process, deps_.clock.Now());
  deps_.switchboard.Remove(process);
  deps_.transport.Forget(process);
}

void EndedProcesses::Tick() {
  const Nanos now = deps_.clock.Now();
  std::vector<ProcessId> overdue;
  for (auto& [process, ended] : ended_) {
    if (!ended.drained && now - ended.died_at >= deps_.drain_limit) {
      ended.undrained.clear();
      overdue.push_back(process);
    }
    if (ended.role == ProcessRole::kWorker && !ended.exited &&
        now - ended.died_at >= kExitAfterGoodbye) {
      deps_.launcher.Kill(process, "it said goodbye and did not go");
    }
  }
  for (const ProcessId process : overdue) OnDrained(process);
}

bool EndedProcesses::IsDraining(ProcessId process) const {
  const auto it = ended_.find(process);
  return it != ended_.end() && !it->second.drained;
}

JobNumber EndedProcesses::JobOf(ProcessId process) const {
  const auto it = ended_.find(process);
  return it == ended_.end() ? 0 : it->second.job;
}

}  // namespace sheaf
