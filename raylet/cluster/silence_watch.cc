// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/cluster/silence_watch.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "proto/raylet.pb.h"

namespace sheaf {

void SilenceWatch::OnNodeLink(NodeNumber node, bool up) {
  if (up) {
    silent_since_.erase(node);
    if (told_.erase(node) != 0) TellAll(node, /*heard=*/true);
  } else if (node != deps_.node && !deps_.deaths.IsNodeDead(node)) {
    silent_since_.try_emplace(node, deps_.clock.Now());
  }
}

void SilenceWatch::OnGcsLink(bool up) { gcs_silent_since_ = up ? kForever : deps_.clock.Now(); }

void SilenceWatch::OnNodeDead(NodeNumber node) {
  silent_since_.erase(node);
  told_.erase(node);
}

void SilenceWatch::OnAttached(ProcessId process) {
  for (const NodeNumber node : told_) Tell(process, node, /*heard=*/false);
}

void SilenceWatch::Tick() {
  const Nanos now = deps_.clock.Now();
  const auto is_over = [&](Nanos since) { return since != kForever && now - since >= deps_.limit; };
  if (!is_over(gcs_silent_since_)) {
    while (!told_.empty()) {
      const NodeNumber node = *told_.begin();
      told_.erase(told_.begin());
      TellAll(node, /*heard=*/true);
    }
    return;
  }
  for (const auto& [node, since] : silent_since_) {
    if (!is_over(since) || !told_.insert(node).second) continue;
    Log(LogLevel::kWarning, "neither node ", node, " nor the GCS is heard: waits for it end");
    TellAll(node, /*heard=*/false);
  }
}

void SilenceWatch::TellAll(NodeNumber node, bool heard) {
  for (const auto& [process, entry] : deps_.processes) Tell(process, node, heard);
}

void SilenceWatch::Tell(ProcessId process, NodeNumber node, bool heard) {
  const auto it = deps_.processes.find(process);
  if (it == deps_.processes.end() || it->second.info.role == ProcessRole::kTool) return;
  proto::NodeSilent message;
  message.set_node(node);
  if (!heard) {
    message.set_words(absl::StrCat(
        "node ", node, " was not heard for ", deps_.limit / kSecond,
        " s, and neither was the GCS, which would say whether it is dead (SHEAF_SILENCE_LIMIT)"));
  }
  SendMessage(deps_.transport.To(process), FrameKind::kNodeSilent, message);
}

}  // namespace sheaf
