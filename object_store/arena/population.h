// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Memory behind free ranges: populated ahead of need on another thread, in chunks, so that an
// extent is never granted before its pages exist; given back to the machine when nobody used it for
// long. How much is kept ready follows demand: it doubles when a request had to wait for memory,
// and decays to the idle amount.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/store_host.h"

namespace sheaf {

class Population {
 public:
  struct Options {
    uint64_t idle_bytes = 0;  // Kept ready always.
    uint64_t most_ahead_bytes = 0;
    Nanos idle_after = 0;  // Without demand for so long, memory goes back.
  };
  // Runs the first function on the memory thread and then the second on the loop.
  using Run = std::function<void(std::function<void()>, std::function<void()>)>;

  Population(Options options, const Clock& clock, ArenaMemory& arena, ExtentAllocator& allocator,
             Run run);

  // Populates `ranges`, which the caller took from the allocator. `done` runs on the loop; on an
  // error the caller owns all of them still, some populated.
  void Populate(std::vector<ExtentRange> ranges, std::function<void(absl::Status)> done);
  // Something was allocated: keeps enough ready for the next. `waited`: it had to be populated
  // first.
  void OnDemand(uint64_t bytes, bool waited);
  // Called when a chunk of free memory came back to the allocator.
  void set_on_room(std::function<void()> on_room) { on_room_ = std::move(on_room); }
  // The machine is short of memory: gives back what is free and populated, `bytes` of it; returns
  // how much it began to give.
  uint64_t GiveBack(uint64_t bytes);
  void Tick();

  // Free ranges that are out of the allocator right now, being populated or given back.
  uint64_t in_flight_bytes() const { return in_flight_bytes_; }

 private:
  struct Job;
  void NextChunks(const std::shared_ptr<Job>& job);
  void NextChunk(const std::shared_ptr<Job>& job);
  void PopulateAhead();

  const Options options_;
  const Clock& clock_;
  ArenaMemory& arena_;
  ExtentAllocator& allocator_;
  const Run run_;
  std::function<void()> on_room_;
  uint64_t ahead_bytes_;
  uint64_t in_flight_bytes_ = 0;
  bool populating_ahead_ = false;
  bool giving_back_ = false;
  Nanos last_demand_;
  Nanos retry_at_ = 0;  // Population failed: not before this time again.
};

}  // namespace sheaf
