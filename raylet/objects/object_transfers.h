// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects between nodes: what processes of this one want from others, what others fetch from here,
// and what becomes of a copy.
//
// A copy belongs to the object's owner, who is told of it, frees it with the object, and is told
// again now and then: an owner that does not know the object any more answers with a free. When the
// owner is dead a copy is kept as an adopted object is: as long as somebody on this node holds the
// reference.
//
// Pure; one thread. A malformed frame is kInvalidArgument, and changes nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/messages.h"
#include "object_store/server/store_server.h"
#include "raylet/death_register.h"
#include "raylet/objects/adoption.h"
#include "raylet/objects/block_source.h"
#include "raylet/objects/object_puller.h"
#include "raylet/objects/object_server.h"
#include "raylet/objects/reference_ledger.h"

namespace sheaf {

class ObjectTransfers {
 public:
  // All outlive it.
  struct Deps {
    NodeNumber node;
    Clock& clock;
    Transport& transport;
    StoreServer& store;
    BlockSource& blocks;
    Executor& loop;    // Runs on the thread that calls everything here.
    Executor& copier;  // Large copies and checksums.
    const DeathRegister& deaths;
    const ReferenceLedger& references;
    Adoption& adoption;
  };
  explicit ObjectTransfers(const Deps& deps);
  ObjectTransfers(const ObjectTransfers&) = delete;
  ObjectTransfers& operator=(const ObjectTransfers&) = delete;

  // kStoreFetch: a process, of this node or of another, asks where objects are; for one of this node
  // those that are elsewhere are brought here. Each is answered, or asked for again by who still
  // wants it.
  absl::Status OnFetch(ProcessId from, const Frame& frame);
  // kStorePart: a process of this node wants parts of objects (docs/design/parts.md).
  absl::Status OnPart(ProcessId from, const Frame& frame);
  // The raylet `reader` asks for a block of an object (ObjectServer::OnFetch).
  void OnBlockRequest(NodeNumber reader, std::string_view request, ObjectServer::Respond respond);
  // The store has dropped `id`.
  void OnGone(ObjectId id);
  // It waits for nothing any more.
  void OnProcessGone(ProcessId process);
  void OnNodeDead(NodeNumber node) { puller_.NodeGone(node); }
  // Answers who asked for what has come, or will not.
  void Settle();
  void Tick();
  Nanos NextTick() const { return puller_.NextTick(); }

  ObjectPuller::Stats pulled() const { return puller_.stats(); }
  ObjectServer::Stats served() const { return server_.stats(); }

 private:
  Nanos Now() const { return deps_.clock.Now(); }
  void Answer(ProcessId asker, ObjectId id, LookupOutcome outcome);
  void TellComing(ProcessId asker, std::span<const ObjectId> ids);
  void WantPart(ProcessId from, const PartWanted& wanted, std::vector<ObjectId>* coming);
  void OnPartFinished(const ObjectPuller::Finished& pull);
  void OnFinished(const ObjectPuller::Finished& pull);
  void TellOwnerOf(ObjectId copy);
  void TellOwnersAgain();

  // Blocks of other nodes over its links, and those of this one from its own server.
  class AnyBlocks final : public BlockSource {
   public:
    explicit AnyBlocks(ObjectTransfers& transfers) : transfers_(transfers) {}
    void Fetch(NodeNumber node, std::string request, Nanos timeout, Done done) override;
    Nanos LastAnswer(NodeNumber node) const override {
      return transfers_.deps_.blocks.LastAnswer(node);
    }

   private:
    ObjectTransfers& transfers_;
  };

  const Deps deps_;
  AnyBlocks blocks_;
  ObjectPuller puller_;
  ObjectServer server_;
  absl::btree_map<ObjectId, absl::btree_set<ProcessId>> fetchers_;  // Who waits for each pull.
  absl::btree_set<ObjectId> copies_;  // Of other nodes' objects, in the store.
  ObjectId told_up_to_;               // Their owners were told again, in this round.
  Nanos next_tell_copies_ = 0;
};

}  // namespace sheaf
