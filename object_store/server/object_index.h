// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The sealed objects of this node: learned from the slots of their writers, found, freed. Whoever
// asks for one, or waits until it is back from disk, is answered here. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/store_host.h"
#include "object_store/arena/store_processes.h"
#include "object_store/messages.h"
#include "object_store/server/freed_objects.h"
#include "object_store/server/refusals.h"
#include "object_store/server/room_queue.h"
#include "object_store/server/spill_files.h"

namespace sheaf {

class ObjectIndex {
 public:
  struct Options {
    NodeNumber node = 0;
    Nanos learn_period = 0;  // All slots are looked at no more often than this.
  };
  struct Deps {  // All outlive this.
    const Clock& clock;
    Transport& transport;
    StoreObserver& observer;
    ArenaMemory& arena;
    const StoreProcesses& processes;
    ObjectTable& table;
    FreedObjects& freed;
    SpillFiles& files;
    RoomQueue& room;
    Refusals& refusals;
  };

  ObjectIndex(Options options, Deps deps) : options_(options), deps_(deps) {}

  // --- Learning. What a slot says is believed only when it lies in an extent of its writer. ---
  // The object that is sealed in `slot` is in the index, if it was not.
  void Learn(uint32_t slot);
  // All that `writer` has sealed.
  void LearnOf(ProcessId writer);
  // All that anybody has sealed, if nobody asked for that in this turn or just before.
  void LearnAll();
  // The same, whenever that was.
  void LearnAllNow();
  void EndTurn() { learned_ = false; }

  // --- Finding. ---
  // Null: there is none. LearnAll is called before that is said.
  std::shared_ptr<ObjectRecord> Find(ObjectId id);
  // `hint` helps to find what its writer has not announced.
  std::shared_ptr<ObjectRecord> Find(ObjectId id, const ObjectLocation& hint);
  ObjectLocation LocationOf(const ObjectRecord& record) const;
  // Answers `asker` about `id`, which is `record` (null: not here), by adding to `answers`. One
  // that is on disk or on its way from there is answered by Settle; true: somebody must restore it.
  bool Answer(ProcessId asker, ObjectId id, const std::shared_ptr<ObjectRecord>& record,
              std::vector<LocatedObject>* answers);
  // Tells all who wait for `record` what became of it.
  void Settle(ObjectRecord& record, LookupOutcome outcome);

  // --- Freeing. ---
  // Views keep their bytes. `lost`: the disk lost it.
  void Free(const std::shared_ptr<ObjectRecord>& record, bool lost = false);
  // `from`, their owner or writer, says that nobody needs these any more.
  void OnFree(ProcessId from, std::span<const ObjectName> names);

 private:
  const Options options_;
  const Deps deps_;
  bool learned_ = false;  // All slots were looked at in this turn.
  Nanos next_learn_ = 0;
};

}  // namespace sheaf
