// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/node_objects.h"

#include <algorithm>
#include <utility>

#include "metrics/counter.h"
#include "object_store/messages.h"

namespace sheaf {

using metrics::Counter;
using metrics::CounterId;

NodeObjects::NodeObjects(Deps deps)
    : deps_(std::move(deps)),
      references_(deps_.node, deps_.clock, deps_.transport,
                  [this](ProcessId owner) { return deps_.deaths.IsDead(owner); }),
      adoption_({.clock = deps_.clock,
                 .transport = deps_.transport,
                 .store = deps_.store,
                 .metrics = deps_.metrics,
                 .view = deps_.view,
                 .deaths = deps_.deaths,
                 .references = references_,
                 .is_draining = deps_.is_draining}),
      transfers_({.node = deps_.node,
                  .clock = deps_.clock,
                  .transport = deps_.transport,
                  .store = deps_.store,
                  .blocks = deps_.blocks,
                  .loop = deps_.loop,
                  .copier = deps_.copier,
                  .deaths = deps_.deaths,
                  .references = references_,
                  .adoption = adoption_}),
      arguments_(deps_.clock, deps_.transport, deps_.store) {}

absl::Status NodeObjects::OnStoreFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == kStoreFetch) return transfers_.OnFetch(from, frame);
  if (frame.kind == kStorePart) return transfers_.OnPart(from, frame);
  if (frame.kind == kStoreHold) return arguments_.OnHold(from, frame);
  deps_.store.OnFrame(from, frame.kind, frame.body);
  return absl::OkStatus();
}

absl::Status NodeObjects::OnRemoteStoreFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == kStoreFetch) return transfers_.OnFetch(from, frame);
  if (frame.kind == kStoreFree) {
    const auto names = FrameItems<ObjectName>(frame.body);
    deps_.store.OnRemoteFree(from, std::vector<ObjectName>(names.begin(), names.end()));
  }
  return absl::OkStatus();
}

absl::Status NodeObjects::OnReferenceFrame(ProcessId from, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kAdoptedQuery:
      return adoption_.OnQuery(from, frame);
    case FrameKind::kOrphanRefs:
      return adoption_.OnOrphanRefs(from, frame);
    case FrameKind::kOrphanRefsAck:
      return adoption_.OnOrphanRefsAck(from, frame);
    default:
      return references_.OnFrame(from, frame);
  }
}

void NodeObjects::OnBlockRequest(NodeNumber reader, std::string_view request,
                                 ObjectServer::Respond respond) {
  transfers_.OnBlockRequest(reader, request, std::move(respond));
}

void NodeObjects::OnProcessGone(ProcessId process) {
  transfers_.OnProcessGone(process);
  adoption_.OnProcessGone(process);
  deps_.store.OnProcessDied(process);
}

void NodeObjects::OnDrained(ProcessId process) {
  // First: what it borrowed may lie inside what is adopted from it.
  adoption_.AdoptObjectsOf(process);
  references_.DropHolder(process);
}

void NodeObjects::OnRemoteOwnerGone(ProcessId owner) {
  adoption_.OnOwnerDied(owner);
  adoption_.AdoptObjectsOf(owner);
}

void NodeObjects::OnNodeDead(NodeNumber node) {
  transfers_.OnNodeDead(node);
  adoption_.OnNodeDead(node);
}

void NodeObjects::Settle() {
  transfers_.Settle();
  adoption_.Settle();
  for (const ObjectId id : deps_.store_events.TakeGone()) {
    Counter(deps_.metrics, CounterId::kObjectsFreed).Add();
    transfers_.OnGone(id);
    adoption_.OnGone(id);
  }
  for (const auto& [process, what] : deps_.store_events.TakeViolations())
    deps_.on_violation(process, absl::InvalidArgumentError(what));
}

void NodeObjects::Tick() {
  references_.Tick();
  next_store_tick_ = deps_.store.Tick();
  transfers_.Tick();
  adoption_.Tick();
}

Nanos NodeObjects::NextTick() const { return std::min(next_store_tick_, transfers_.NextTick()); }

}  // namespace sheaf
