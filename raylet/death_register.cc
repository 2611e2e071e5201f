// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/death_register.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sheaf {

void DeathRegister::Record(ProcessId process, const proto::Death& death) {
  if (!deaths_.emplace(process, death).second) return;
  order_.push_back(process);
  if (order_.size() <= kMostRecorded) return;
  deaths_.erase(order_.front());
  order_.pop_front();
}

void DeathRegister::RecordNothingLeft(ProcessId process, Nanos now) {
  ended_.emplace_back(now, process);
}

void DeathRegister::OnNodeDescribed(NodeNumber node) {
  last_described_ = std::max(last_described_, node);
}

bool DeathRegister::IsNodeDead(NodeNumber node) const {
  if (node == view_.local) return false;
  if (const NodeView* seen = view_.Find(node); seen != nullptr) return !seen->alive;
  // Unknown: forgotten long ago, or so new that the word of it is on its way, though a newer one
  // may have spoken.
  return view_.complete && node <= last_described_;
}

bool DeathRegister::IsDead(ProcessId process) const {
  if (process.node == view_.local) return !IsAlive(process);
  return IsNodeDead(process.node) || IsRecorded(process);
}

proto::Death DeathRegister::DeathOf(ProcessId process) const {
  if (const auto it = deaths_.find(process); it != deaths_.end()) return it->second;
  proto::Death death;
  if (process.node != view_.local) {
    death.set_cause(proto::Death::NODE_DIED);
    death.set_message(absl::StrCat("node ", process.node, " is dead, or not of this cluster"));
  } else {
    death.set_message(IsAlive(process) ? "the kernel refused another connection"
                                       : "it ended a long time ago, or never was");
  }
  return death;
}

std::vector<ProcessId> DeathRegister::EndedWithin(Nanos limit, Nanos now) {
  while (!ended_.empty() && now - ended_.front().first > limit) ended_.pop_front();
  std::vector<ProcessId> processes;
  for (const auto& [at, process] : ended_) processes.push_back(process);
  return processes;
}

}  // namespace sheaf
