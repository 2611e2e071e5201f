// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Brings objects back from disk when somebody asks. What the disk returns is believed only with the
// right checksum. One thread; the reading happens on the disk's executor.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/shelf.h"
#include "object_store/arena/store_host.h"
#include "object_store/server/object_index.h"
#include "object_store/server/room_queue.h"
#include "object_store/server/slot_queue.h"
#include "object_store/server/store_loop.h"

namespace sheaf {

class Restorer {
 public:
  struct Deps {  // All outlive this; `spill` is called on `disk`.
    const Clock& clock;
    ArenaMemory& arena;
    SpillStorage& spill;
    Executor& disk;
    StoreLoop& loop;
    ObjectTable& table;
    Shelf& shelf;
    SlotQueue& slots;
    RoomQueue& room;
    ObjectIndex& index;
  };
  struct Counts {  // Since the start.
    uint64_t restores = 0;
    uint64_t restored_bytes = 0;
    uint64_t lost = 0;  // Objects whose copy on disk was damaged.
  };

  // `wait`: a restore fails when there is no room for so long.
  Restorer(Nanos wait, Deps deps) : wait_(wait), deps_(deps) {}

  // `record` is on disk. Those who wait for it are told by ObjectIndex::Settle: kFound; kFull: no
  // room came free; kDataLoss: it is gone.
  void Start(const std::shared_ptr<ObjectRecord>& record);
  const Counts& counts() const { return counts_; }

 private:
  bool TryShelf(const std::shared_ptr<ObjectRecord>& record);  // False: no room there.
  void ReadInto(const std::shared_ptr<ObjectRecord>& record, Shelf::Place place);
  void OnRead(const std::shared_ptr<ObjectRecord>& record, ExtentRange range,
              const absl::Status& outcome);

  const Nanos wait_;
  const Deps deps_;
  Counts counts_;
};

}  // namespace sheaf
