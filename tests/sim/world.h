// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What all parts of a simulated cluster share in one run.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/faults.h"
#include "tests/sim/method_faults.h"
#include "tests/sim/oracle.h"
#include "tests/sim/trace.h"
#include "worker/owner/back_pressure.h"

namespace sheaf::sim {

inline constexpr Nanos kSilence = 5 * kSecond;  // After so long a link is down (rpc/links.h).

// The events of a run, spread over the virtual time that it should take: many nodes could do all of
// them within a part of a second, in which no node can be found dead.
struct Pace {
  Nanos begin = 0, span = 0;  // 0: as fast as it goes.
  uint64_t first_event = 0, events = 0;
  bool IsAhead(Nanos now, uint64_t event) const {
    return span != 0 && static_cast<double>(event - first_event) / static_cast<double>(events) >
                            static_cast<double>(now - begin) / static_cast<double>(span);
  }
};

struct World {
  World(uint64_t seed, Plant plant, bool print)
      : seed(seed), plant(plant), random(seed), trace(print), oracle(seed) {}

  Nanos now() const { return queue.now(); }
  void Count(Fault fault) { ++fault_counts[static_cast<size_t>(fault)]; }
  // Uniform in [low, high).
  Nanos Between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(random.Below(static_cast<uint64_t>(high - low)));
  }
  // The planted bug, if it is `of`, and now is one of the times when it acts.
  bool Planted(Plant of, uint64_t one_in = 1) {
    if (plant != of || (one_in > 1 && !random.OneIn(one_in))) return false;
    ++planted;
    return true;
  }

  // How much of one process may wait for another: little, so that much of it does. Drawn apart from
  // all else.
  static BackPressure DrawLimits(uint64_t seed) {
    SeededRandom random(~seed);
    BackPressure limits;
    limits.max_pending = (2 + random.Below(40)) * 1000;
    limits.max_untaken = (1 + random.Below(8)) * 1024;
    limits.taken_step = limits.max_untaken / 8;
    return limits;
  }

  const uint64_t seed;
  const Plant plant;
  const BackPressure limits = DrawLimits(seed);
  const size_t ring_bytes = 4 * limits.max_untaken;  // Of one lane; a longer frame needs all of it.
  // Of one link between two nodes, in one direction: more waits until some is acknowledged.
  const size_t link_bytes = (2 + SeededRandom(~seed + 1).Below(63)) * 1024;
  SeededRandom random;
  EventQueue queue;
  Trace trace;
  Oracle oracle;
  Pace pace;
  Nanos progress_at = 0;  // When a call began or a wait ended last.
  FaultPlan faults;       // Cleared when the run comes to its end and everything must finish.
  FaultCounts fault_counts{};
  bool small_stores = false;        // In this run: what is large gets to disk and back.
  uint64_t planted = 0;             // How often the planted bug acted.
  MethodFaults* methods = nullptr;  // In `sim --methods`.
};

}  // namespace sheaf::sim
