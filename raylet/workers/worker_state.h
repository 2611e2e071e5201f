// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The life of one worker process, as a pure transition function.
#pragma once

#include <cstdint>
#include <optional>

namespace sheaf {

enum class WorkerState : uint8_t {
  kStarting,  // Its process was asked for; it has not said kWorkerReady yet.
  kIdle,
  kLeased,
  kBlocked,  // Leased, and its user code waits in get.
  kActor,    // Leased for ever.
  kActorBlocked,
  kDying,  // Was told to die, or is not wanted any more; only its exit is awaited.
};

enum class WorkerEvent : uint8_t {
  kReady,
  kLeasedToTasks,
  kLeasedToActor,
  kReturned,
  kBlocked,
  kUnblocked,
  kKilled,
};

// nullopt: `event` means nothing in `state` (a late or repeated message), and the caller drops it.
//   kStarting --ready--> kIdle --tasks--> kLeased <--blocked/unblocked--> kBlocked
//                          ^ ^--returned----+  ^---------returned------------+
//                        kIdle --actor--> kActor <--blocked/unblocked--> kActorBlocked
// Killed leads to kDying from everywhere, and nothing leads out of it but the exit.
constexpr std::optional<WorkerState> Next(WorkerState state, WorkerEvent event) {
  using enum WorkerState;
  if (state == kDying) return std::nullopt;
  switch (event) {
    case WorkerEvent::kReady:
      return state == kStarting ? std::optional(kIdle) : std::nullopt;
    case WorkerEvent::kLeasedToTasks:
      return state == kIdle ? std::optional(kLeased) : std::nullopt;
    case WorkerEvent::kLeasedToActor:
      return state == kIdle ? std::optional(kActor) : std::nullopt;
    case WorkerEvent::kReturned:
      return state == kLeased || state == kBlocked ? std::optional(kIdle) : std::nullopt;
    case WorkerEvent::kBlocked:
      if (state == kLeased) return kBlocked;
      return state == kActor ? std::optional(kActorBlocked) : std::nullopt;
    case WorkerEvent::kUnblocked:
      if (state == kBlocked) return kLeased;
      return state == kActorBlocked ? std::optional(kActor) : std::nullopt;
    case WorkerEvent::kKilled:
      return kDying;
  }
  return std::nullopt;
}
static_assert(!Next(WorkerState::kDying, WorkerEvent::kReady).has_value());
static_assert(!Next(WorkerState::kActor, WorkerEvent::kReturned).has_value());
static_assert(Next(WorkerState::kBlocked, WorkerEvent::kReturned) == WorkerState::kIdle);

constexpr const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kStarting:
      return "STARTING";
    case WorkerState::kIdle:
      return "IDLE";
    case WorkerState::kLeased:
      return "LEASED";
    case WorkerState::kBlocked:
    case WorkerState::kActorBlocked:
      return "BLOCKED";
    case WorkerState::kActor:
      return "ACTOR";
    case WorkerState::kDying:
      return "DYING";
  }
  return "UNKNOWN";
}

}  // namespace sheaf
