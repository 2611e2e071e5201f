// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The life of a detached actor, as the GCS decides it.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/gcs.pb.h"

namespace sheaf {

enum class ActorEvent : uint8_t {
  kAccepted,  // A raylet works on its start.
  kStarted,   // Its constructor has run.
  kDied,      // Its worker ended, or the constructor failed.
  kLost,      // Its node is dead or drains, or no raylet knows of it after a restart of the GCS.
  kKilled,    // For good, on request.
  kLeaves,    // It will end by itself: whatever ends it before that is no reason to start it again.
};
enum class ActorAction : uint8_t {
  kTell,     // Subscribers hear of it, nothing else.
  kRecord,   // On disk first.
  kFinal,    // No restart is left: on disk first.
  kGrant,    // A new incarnation: on disk first, then to a raylet.
  kSetDead,  // On disk first, then the name is free.
};
struct ActorStep {
  proto::ActorInfo::State next;
  ActorAction action;
  bool costs_restart = false;
};

// Pure: the caller stores `next` and performs `action`. nullopt: `event` means nothing in `state`,
// and is dropped.
//
//   PENDING --accepted--> STARTING --started--> ALIVE         started may overtake accepted.
//      ^                     | lost | died        | died, lost
//      +---------------------+      +--> RESTARTING <--+      while restarts are left, else DEAD
//                                          | accepted: STARTING
//                                          | lost: again RESTARTING, free of charge
//   Any state but DEAD goes to DEAD when killed; `leaves` only takes the restarts that are left. A
//   start that was lost with its node costs no restart: it may never have begun, and the new
//   incarnation keeps it from counting if it had.
constexpr std::optional<ActorStep> Next(proto::ActorInfo::State state, ActorEvent event,
                                        bool may_restart) {
  using Info = proto::ActorInfo;
  if (state == Info::DEAD) return std::nullopt;
  switch (event) {
    case ActorEvent::kAccepted:
      if (state == Info::ALIVE) return std::nullopt;
      return ActorStep{Info::STARTING, ActorAction::kTell};
    case ActorEvent::kStarted:
      if (state == Info::ALIVE) return std::nullopt;
      return ActorStep{Info::ALIVE, ActorAction::kRecord};
    case ActorEvent::kLost:
      if (state != Info::ALIVE) {
        return ActorStep{state == Info::RESTARTING ? Info::RESTARTING : Info::PENDING,
                         ActorAction::kGrant};
      }
      [[fallthrough]];
    case ActorEvent::kDied:
      if (may_restart)
        return ActorStep{Info::RESTARTING, ActorAction::kGrant, /*costs_restart=*/true};
      return ActorStep{Info::DEAD, ActorAction::kSetDead};
    case ActorEvent::kKilled:
      return ActorStep{Info::DEAD, ActorAction::kSetDead};
    case ActorEvent::kLeaves:
      return ActorStep{state, ActorAction::kFinal};
  }
  return std::nullopt;
}
static_assert(!Next(proto::ActorInfo::DEAD, ActorEvent::kStarted, true));
static_assert(Next(proto::ActorInfo::ALIVE, ActorEvent::kLost, false)->next ==
              proto::ActorInfo::DEAD);

}  // namespace sheaf
