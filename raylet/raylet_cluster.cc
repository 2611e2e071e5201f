// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What follows from changes of the cluster, and from silence in it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "raylet/raylet.h"

namespace sheaf {

void Raylet::OnNodeLink(NodeNumber node, bool up) {
  if (up) {
    OnHeardAgain(node);
  } else if (node != options_.node && !deaths_.IsNodeDead(node)) {
    silent_since_.try_emplace(node, Now());
  }
  follower_.OnNodeLink(node, up);
}

void Raylet::OnDraining() {
  std::vector<uint64_t> waiting;  // Detached actors that have no worker yet.
  for (const auto& [id, actor] : detached_) {
    if (actor.worker.process == 0 && !MayStartHere(actor)) waiting.push_back(actor.key);
  }
  for (const uint64_t key : waiting)
    OnDetachedRefused(key, ErrorKind::kNodeDied, "the node drains");
  room_came_ = true;  // Placement groups that were to come here go elsewhere.
}

bool Raylet::IsDrained() const {
  const NodeView* here = view_.Find(options_.node);
  return here->draining && queue_.leases_out() == 0 &&
         std::none_of(processes_.begin(), processes_.end(), [](const auto& entry) {
           return entry.second.info.role == ProcessRole::kDriver;
         });
}

// Whether a node lives only the GCS can say. While that is silent too nothing is given up here:
// what is pending there stays so, as it may run, but who waits for it is told, and may do something
// else.
void Raylet::CheckSilence() {
  const Nanos now = Now();
  const auto is_over = [&](Nanos since) {
    return since != kForever && now - since >= options_.silence_limit;
  };
  if (!is_over(gcs_silent_since_)) {
    while (!told_silent_.empty()) {
      const NodeNumber node = *told_silent_.begin();
      told_silent_.erase(told_silent_.begin());
      for (const auto& [process, entry] : processes_) TellSilence(process, node, /*heard=*/true);
    }
    return;
  }
  for (const auto& [node, since] : silent_since_) {
    if (!is_over(since) || !told_silent_.insert(node).second) continue;
    Log(LogLevel::kWarning, "neither node ", node, " nor the GCS is heard: waits for it end");
    for (const auto& [process, entry] : processes_) TellSilence(process, node, /*heard=*/false);
  }
}

void Raylet::OnHeardAgain(NodeNumber node) {
  silent_since_.erase(node);
  if (told_silent_.erase(node) == 0) return;
  for (const auto& [process, entry] : processes_) TellSilence(process, node, /*heard=*/true);
}

void Raylet::TellSilence(ProcessId process, NodeNumber node, bool heard) {
  const auto it = processes_.find(process);
  if (it == processes_.end() || it->second.info.role == ProcessRole::kTool) return;
  proto::NodeSilent message;
  message.set_node(node);
  if (!heard) {
    message.set_words(absl::StrCat(
        "node ", node, " was not heard for ", options_.silence_limit / kSecond,
        " s, and neither was the GCS, which would say whether it is dead (SHEAF_SILENCE_LIMIT)"));
  }
  SendMessage(To(process), FrameKind::kNodeSilent, message);
}

}  // namespace sheaf
