// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Brings objects of other nodes into the store of this one: finds out what an object is, waits for
// room, fetches it in chunks from all who have it, and seals it. Many who want the same object
// share one pull. Pure over its constructor's interfaces; one thread (the raylet's loop), except
// that chunks are written into their place by the thread that brings them.
//
// A pull. The first request goes to one source and returns the first chunk together with what the
// object is. When the store has found room the chunks that are missing are spread over the sources,
// some at a time. Each chunk carries a checksum. What failed is asked for again, of another source
// if there is one; nothing that has arrived is fetched twice. A source that names others makes them
// sources too; one that is still receiving the object says which chunks it has, so that nodes which
// pull an object at the same time serve each other.
//
// A part of an object is pulled under a name of its own (docs/design/parts.md): nobody has it but the
// sources of the whole, and none of them is asked for what it is still receiving. How large it is is
// known, so room is found first: what waits for room holds nothing. Parts take half of the bounds
// below at most, those of one source an eighth, and wait in a line of their own, so that the
// arguments of calls come meanwhile.
//
// A source claims no more of the bounds than it leaves for others, or else one object, which counts
// for half of them at most: what comes slowly keeps nobody waiting but those from the same source.
// Of objects that are larger than half one comes at a time, as it must find room. Who waits for all
// together is not overtaken.
//
// A source over which a chunk comes much more slowly than another is likely to bring it is left: the
// chunk is asked of the other, and what still comes of it counts for nothing. Where there is but one
// source, a chunk may take as long as the links let it.
//
// A question whose source answers others meanwhile is in line behind those, which is progress, too.
//
// Bounds: the bytes of all pulls together (others queue), chunks on their way of each, and the time
// without progress, after which a pull fails.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "object_store/server/loop_gate.h"
#include "object_store/server/store_server.h"
#include "proto/object.pb.h"
#include "raylet/objects/block_source.h"
#include "raylet/objects/object_puller_options.h"
#include "raylet/objects/pull_sources.h"

namespace sheaf {

class ObjectPuller {
 public:
  struct Deps {
    const Clock& clock;
    StoreServer& store;
    BlockSource& blocks;
    Executor& loop;    // Runs on the thread that calls everything here.
    Executor& copier;  // Large copies.
  };
  struct Finished {
    ObjectId id;
    LookupOutcome outcome = LookupOutcome::kNotFound;  // kFound: it is sealed in the store.
    bool stalled = false;  // There are sources, but for a while none has given any of it.
    ObjectId part_of;      // Of PullPart.
  };
  struct Stats {
    uint64_t pulls = 0;  // Begun.
    uint64_t completed = 0;
    uint64_t failed = 0;
    uint64_t bytes = 0;           // Of chunks that arrived whole.
    uint64_t failed_fetches = 0;  // Not answered, refused or damaged.
    uint64_t damaged = 0;         // Of these: answered with bytes that are not those of the object.
    uint64_t active_bytes = 0;    // Of pulls under way now.
    uint64_t queued = 0;          // Pulls that wait for others.
  };

  ObjectPuller(const ObjectPullerOptions& options, Deps deps);
  ~ObjectPuller();
  ObjectPuller(const ObjectPuller&) = delete;
  ObjectPuller& operator=(const ObjectPuller&) = delete;

  // Brings `id`, which lies on `hint.node`, here. `size`: of its payload, 0 if it is not known. One
  // Finished follows for each object, however often it was asked for meanwhile.
  void Pull(ObjectId id, const ObjectLocation& hint, uint64_t size);
  // Brings a part of `part.of` here, as the object `part.id`, which nobody else has or asks for.
  // `places`: nodes that have a copy, this one among them maybe. As Pull; asked again, new places
  // count and nothing else.
  void PullPart(const PartWanted& part, std::span<const NodeNumber> places);
  // `node`, which is pulling `id` itself, may have chunks of it.
  void AddPeer(ObjectId id, NodeNumber node);
  // It is dead: no source any more.
  void NodeGone(NodeNumber node);
  // Nobody wants `id` any more.
  void Cancel(ObjectId id);

  // For the serving side: what has come of an object that is being pulled.
  struct Part {
    proto::BlockHead head;  // NOT_YET, or FOUND with `bytes`; no checksum yet.
    std::span<const char> bytes;
    std::shared_ptr<const void> hold;  // As StoreServer::Pinned::hold.
  };
  // nullopt: nothing is known of it yet.
  std::optional<Part> FindPart(const proto::BlockRequest& request, ObjectId id);

  struct PullState;  // object_puller.cc

  std::vector<Finished> TakeFinished() { return std::exchange(finished_, {}); }
  void Tick();
  Nanos NextTick() const;  // kForever: nothing is timed.
  Stats stats() const;

 private:
  using PullPtr = std::shared_ptr<PullState>;
  // Pulls that are not admitted yet, by hint.node and in the order in which they came.
  using Line = absl::btree_map<std::pair<NodeNumber, uint64_t>, PullPtr>;
  struct Claims {
    uint64_t bytes = 0;
    size_t pulls = 0;
  };

  void Start(const PullPtr& pull);
  void Admit();
  static PullPtr OldestOf(const Line& line, absl::FunctionRef<bool(const PullState&)> may);
  PullPtr NextAdmitted() const;
  void Begin(const PullPtr& pull);
  void ClaimInstead(PullState& pull, uint64_t bytes);
  void Leave(const PullPtr& pull);
  Line& LineOf(const PullState& pull);
  Claims& ClaimsOf(const PullState& pull);
  void WaitForRoom(const PullPtr& pull);
  void Ask(const PullPtr& pull);
  void OnFirst(const PullPtr& pull, uint64_t ask,
               absl::StatusOr<std::unique_ptr<ReceivedBlock>> answer);
  void OnRoom(const PullPtr& pull, absl::StatusOr<std::span<char>> room);
  void Pump(const PullPtr& pull);
  bool AskForOne(const PullPtr& pull);
  std::optional<size_t> ChunkFor(const PullState& pull, const PullSource& source) const;
  void FetchChunk(const PullPtr& pull, NodeNumber node, size_t chunk);
  void OnChunk(const PullPtr& pull, uint64_t ask, const absl::Status& outcome,
               const proto::BlockHead& head);
  void HeedLine(PullState& pull, NodeNumber node, Nanos asked_at) const;
  void LeaveSlow(PullState& pull);
  bool IsTooSlow(PullState& pull, uint64_t ask) const;
  Nanos NextLook(const PullState& pull) const;
  void Complete(const PullPtr& pull);
  // What an answer says about its source. False: it cannot be used.
  bool Heed(PullState& pull, NodeNumber node, const proto::BlockHead& head);
  void SourceFailed(PullState& pull, NodeNumber node, Nanos asked_at, const absl::Status& why);
  void FailIfHopeless(const PullPtr& pull);
  void Fail(const PullPtr& pull, LookupOutcome outcome);
  void EndIfIdle(const PullPtr& pull);
  void Finish(const PullPtr& pull);
  proto::BlockRequest RequestFor(const PullState& pull, NodeNumber node, uint64_t offset,
                                 uint64_t length) const;
  uint64_t ChunkLength(const PullState& pull, size_t chunk) const;

  const ObjectPullerOptions options_;
  Deps deps_;
  absl::btree_map<ObjectId, PullPtr> pulls_;
  Line queue_, part_queue_;  // Whole objects, and parts.
  std::vector<PullPtr> running_;
  absl::btree_map<NodeNumber, Claims> claims_, part_claims_;  // Of running_, by hint.node.
  uint64_t active_bytes_ = 0;
  std::vector<Finished> finished_;
  Stats counts_;
  std::shared_ptr<LoopGate> gate_;  // For fetches that end later.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sheaf
