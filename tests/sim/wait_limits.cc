// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/wait_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gcs/gcs_options.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/objects/object_puller.h"
#include "raylet/objects/orphan_ledger.h"
#include "tests/sim/node.h"
#include "worker/core/gcs_calls.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kSlack = kSecond;            // Ticks, ways, and the time between two looks.
constexpr Nanos kOrphanGrace = 3 * kSecond;  // raylet/objects/adoption.cc
constexpr Nanos kTryAnotherQueue =
    30 * kSecond;  // raylet/jobs/detached_actors.cc, raylet/scheduling/lease_queue.h
constexpr Nanos kStoreWait = 30 * kSecond;  // worker/runtime_objects.cc

struct Bound {
  Nanos limit;
  const char* words;
};

Bound BoundOf(WaitReason reason) {
  switch (reason) {
    case WaitReason::kDeadOwner:  // Its node is found dead, and the others are asked for copies.
      return {kReturnToHead + kOrphanGrace + OrphanLedger::kAnswerLimit + kSlack,
              "an object of a dead owner"};
    case WaitReason::kDeadActor:
      return {kReturnToHead + kSlack, "a call of an actor whose creator is dead"};
    case WaitReason::kReady:
      return {ObjectPullerOptions().give_up_after + kSlack, "an object that its owner has"};
    case WaitReason::kRoom:
      return {kStoreWait + kSlack, "room in the store"};
    case WaitReason::kGcs:  // A question that is lost is sent again by the process and the raylet.
      return {GcsCalls::kLongestPause + GcsLink::kLongestPause + kSlack, "the GCS"};
    case WaitReason::kWork:
      return {kTryAnotherQueue + 5 * kSlack, "work of others, and none is done"};
    case WaitReason::kNone:
      break;
  }
  return {kForever, ""};
}

Process* FindProcess(const std::vector<std::unique_ptr<Node>>& nodes, ProcessId id) {
  for (const auto& node : nodes) {
    if (node->number() == id.node) return node->Find(id);
  }
  return nullptr;
}

// The work that is waited for is with one of them.
std::string OthersWords(const std::vector<std::unique_ptr<Node>>& nodes, const Process& waiter) {
  std::string words;
  for (const auto& node : nodes) {
    for (auto& [id, process] : node->processes()) {
      if (!process->alive || process.get() == &waiter || process->is_at_rest()) continue;
      absl::StrAppend(&words, "\n  ", process->Describe());
    }
  }
  return words;
}

}  // namespace

WaitReason WaitLimits::ReasonOf(const std::vector<std::unique_ptr<Node>>& nodes, Process& process,
                                const Until& wait) const {
  using Kind = Awaited::Kind;
  switch (wait.awaited().kind) {
    case Kind::kNothing:
      return WaitReason::kNone;
    case Kind::kGcs:
    case Kind::kJob:
      return WaitReason::kGcs;
    case Kind::kRoom:
      return WaitReason::kRoom;
    case Kind::kAdmission:
    case Kind::kArguments:
    case Kind::kItem:
    case Kind::kCredits:
    case Kind::kGroup:
      return WaitReason::kWork;
    case Kind::kObject:
      break;
  }
  const ObjectId object = wait.awaited().object;
  const ProcessId owner = object.maker();
  if (owner != process.self && world_.oracle.IsDead(owner)) return WaitReason::kDeadOwner;
  if (world_.oracle.IsOfDeadActor(TaskOf(object))) return WaitReason::kDeadActor;
  Process* at = FindProcess(nodes, owner);
  if (at == nullptr || !at->alive || at == &process) return WaitReason::kWork;
  const ObjectEntry* entry = at->owner().references.Find(object);
  return entry != nullptr && entry->ready() ? WaitReason::kReady : WaitReason::kWork;
}

void WaitLimits::LookAt(const std::vector<std::unique_ptr<Node>>& nodes, Process& process,
                        Until& wait) {
  const WaitReason reason = ReasonOf(nodes, process, wait);
  if (reason != wait.reason) {
    wait.reason = reason;
    wait.reason_since = world_.now();
  }
  const Bound bound = BoundOf(reason);
  Nanos since = wait.reason_since;
  if (reason == WaitReason::kWork) since = std::max({since, world_.progress_at, first_look_});
  if (bound.limit == kForever || world_.now() - since <= bound.limit) return;
  world_.oracle.Fail(
      "O1", absl::StrCat("process ", process.self.ToString(), " has waited ",
                         (world_.now() - since) / kSecond, " s for ", bound.words, ", at most ",
                         bound.limit / kSecond, " s are promised",
                         reason == WaitReason::kReady || reason == WaitReason::kDeadOwner
                             ? absl::StrCat(" (", wait.awaited().object.ToHex(), ")")
                             : "",
                         "\n  ", process.Describe(), OthersWords(nodes, process)));
}

void WaitLimits::Look(const std::vector<std::unique_ptr<Node>>& nodes) {
  if (first_look_ == 0) first_look_ = world_.now();
  for (const auto& node : nodes) {
    // Of a node that was declared dead nobody is promised anything.
    if (node->crashed() || world_.oracle.IsNodeDead(node->number())) continue;
    for (auto& [id, process] : node->processes()) {
      if (!process->alive || world_.oracle.IsDead(process->job_driver)) continue;
      for (Until* wait : process->waiting()) LookAt(nodes, *process, *wait);
    }
  }
}

}  // namespace sheaf::sim
