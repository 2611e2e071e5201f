// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One pull: what the parts of ObjectPuller know of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "raylet/objects/object_puller.h"
#include "raylet/objects/pull_target.h"

namespace sheaf {

struct ObjectPuller::PullState {
  explicit PullState(const ObjectPullerOptions& options) : sources(options) {}

  static constexpr uint64_t kCopiedAtOnce = 256 * 1024;  // On the loop: 0.05 ms.
  enum class Stage : uint8_t { kQueued, kAsking, kWaitingForRoom, kReceiving, kEnding, kOver };
  enum class Chunk : uint8_t { kMissing, kComing, kHere };

  ObjectId id;
  // What is asked for: `id` itself, or `part_bytes` from `base` on of another object.
  ObjectId of;
  uint64_t base = 0;
  uint64_t part_bytes = 0;
  ObjectLocation hint;
  Stage stage = Stage::kQueued;
  PullSources sources;
  LookupOutcome why = LookupOutcome::kNotFound;  // If it fails.
  bool stalled = false;                          // Then `why` says nothing of the object.
  uint64_t claimed = 0;                          // Of most_bytes.
  StoreServer::Arrival arrival;                  // From kWaitingForRoom on, as the next.
  std::optional<uint32_t> source_attempt;        // Of `of`. Nothing: the first answer says.
  std::unique_ptr<ReceivedBlock> first;          // Until there is room.
  NodeNumber first_from = 0;
  std::shared_ptr<PullTarget> target = std::make_shared<PullTarget>();
  char* data = nullptr;
  std::vector<Chunk> chunks;
  size_t missing = 0;  // Not here.
  size_t cursor = 0;   // Where the search for a chunk begins.
  uint32_t in_flight = 0;
  Nanos progress_at = 0;
  std::optional<FetchWanted> instead;  // A later attempt, to be pulled when this is over.

  bool is_part() const { return part_bytes != 0; }
  uint32_t attempt() const { return source_attempt.value_or(hint.attempt); }
};

}  // namespace sheaf
