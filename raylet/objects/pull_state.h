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
  // A question that is under way, and what was seen of its answer.
  struct Coming {
    uint64_t ask = 0;  // Its number; an answer to one that is not here any more counts for nothing.
    NodeNumber node = 0;
    size_t chunk = 0;
    Nanos asked_at = 0;
    bool is_here = false;  // All of it: it is only put into its place.
    Nanos looked_at = 0;
    bool begun = false;    // When it was looked at, as the next.
    uint64_t arrived = 0;  // So many bytes.
  };

  ObjectId id;
  uint64_t number = 0;  // In the order in which they came.
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
  std::vector<Coming> coming;
  uint64_t asks = 0;
  Nanos progress_at = 0;
  std::optional<FetchWanted> instead;  // A later attempt, to be pulled when this is over.

  bool is_part() const { return part_bytes != 0; }
  uint32_t attempt() const { return source_attempt.value_or(hint.attempt); }
  // The number of a question to `node` that is under way from now on.
  uint64_t Asks(NodeNumber node, size_t chunk, Nanos now);
  // That it is over. Nothing: it was given up before.
  std::optional<Coming> Ends(uint64_t ask);
};

}  // namespace sheaf
