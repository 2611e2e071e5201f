// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The nodes that have an object which is being pulled, or a part of it: what each has said of itself,
// which is asked next, and which is not asked any more. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/object.pb.h"
#include "raylet/objects/object_puller_options.h"

namespace sheaf {

struct PullSource {
  NodeNumber node = 0;
  bool partial = false;  // It is receiving the object itself.
  std::string chunks;    // Those that it has, if it is partial; empty: not known.
  uint32_t in_flight = 0;
  uint32_t failures = 0;  // In a row, as the next.
  uint32_t damaged = 0;
  Nanos retry_at = 0;
  // How fast a chunk came from it when that was last seen, in bytes a second; 0: it was not.
  uint64_t speed = 0;
  Nanos slow_until = 0;  // It was too slow: until then others are asked first.

  bool MayHave(size_t chunk) const;
  bool SaidItHas(size_t chunk) const { return !partial || (!chunks.empty() && MayHave(chunk)); }
};

class PullSources {
 public:
  static constexpr size_t kMost = 16;

  // Which outlive it.
  explicit PullSources(const ObjectPullerOptions& options) : options_(options) {}

  // Not this node itself, and none that is known.
  void Add(NodeNumber node, bool partial);
  // This node itself: for a part of what lies here.
  void AddSelf();
  PullSource* Find(NodeNumber node);
  void Drop(NodeNumber node);
  bool empty() const { return sources_.empty(); }
  size_t size() const { return sources_.size(); }

  // How much is left of a chunk that is coming, and how fast it came lately (0: nothing comes yet).
  struct Pace {
    NodeNumber node;
    size_t chunk;
    uint64_t size, arrived;
    uint64_t speed;
  };
  static uint64_t SpeedOf(uint64_t bytes, Nanos time);  // Never 0.
  // A chunk of `bytes` has come from it. Of few bytes the way there and back is most of `time`, so
  // those say nothing of its speed.
  void Came(NodeNumber node, uint64_t bytes, Nanos time);
  // Whether what is left will take too long, and another source is likely to bring all of it sooner:
  // one that is known to be fast enough, or of which nothing is known while less than half is here.
  bool OtherIsFaster(const Pace& pace, Nanos now) const;
  // Too slow: others are asked first for a while.
  void Slow(NodeNumber node, Nanos now);

  // Whom to ask what the object is: who is not slow and failed least. Null: nobody now.
  PullSource* ForFirst(Nanos now);
  struct Choice {
    PullSource* source;
    size_t chunk;
  };
  // Whom to ask for one more chunk: who is not slow and has least under way. `chunk_of` says for which, if there is
  // one that a source may have.
  std::optional<Choice> ForChunk(
      absl::FunctionRef<std::optional<size_t>(const PullSource&)> chunk_of, Nanos now);

  // `node` has answered so: what it says of itself and of others counts. False: it has nothing to
  // give, and is dropped.
  bool Heed(NodeNumber node, const proto::BlockHead& head, Nanos now);
  enum class Verdict : uint8_t { kRetry, kDropped, kDamaged };
  // A fetch from `node` failed: it is asked again after a while, or it is dropped; kDamaged: for
  // what it gave was not the object, again and again.
  Verdict Failed(NodeNumber node, const absl::Status& why, Nanos now);
  // kForever: none waits.
  Nanos NextRetry(Nanos now) const;

 private:
  const ObjectPullerOptions& options_;
  std::vector<PullSource> sources_;
};

}  // namespace sheaf
