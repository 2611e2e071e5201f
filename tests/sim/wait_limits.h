// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Until when each wait of a process must be over, once nothing goes wrong any more: by what it
// waits for, the bound that Sheaf states for that. What waits for the work of others has no bound
// of its own; then that work must go on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace sheaf::sim {

class Node;
class Process;
class Until;
struct World;

// What a process waits for.
struct Awaited {
  enum class Kind : uint8_t {
    kNothing = 0,  // It has nothing to do, or user code takes its time.
    kObject,
    kItem,       // Of a stream.
    kAdmission,  // A call that is to run may not hold its arguments yet.
    kArguments,  // Of a call that is to run.
    kRoom,       // In the store.
    kCredits,    // What an actor has taken of earlier calls.
    kGcs,        // An answer of the GCS.
    kJob,
    kGroup,
  };
  Kind kind = Kind::kNothing;
  ObjectId object;  // With kObject.
};

// Why a wait goes on, as far as an onlooker can tell; each reason has its bound.
enum class WaitReason : uint8_t {
  kNone = 0,
  kWork,       // Somebody's work is to be done.
  kDeadOwner,  // Whoever owns the object is dead.
  kDeadActor,  // Whoever looks after the called actor is dead.
  kReady,      // Its owner has the object.
  kRoom,
  kGcs,
};

class WaitLimits {
 public:
  explicit WaitLimits(World& world) : world_(world) {}
  // From time to time while nothing goes wrong: fails the run where a wait is over its bound. The
  // time before the first look counts for none.
  void Look(const std::vector<std::unique_ptr<Node>>& nodes);

 private:
  WaitReason ReasonOf(const std::vector<std::unique_ptr<Node>>& nodes, Process& process,
                      const Until& wait) const;
  void LookAt(const std::vector<std::unique_ptr<Node>>& nodes, Process& process, Until& wait);

  World& world_;
  Nanos first_look_ = 0;
};

}  // namespace sheaf::sim
