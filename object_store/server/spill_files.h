// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The files of spilled objects, and how many objects have a copy in each: a file goes with the last
// of them. One thread.
#pragma once

#include <cstdint>

#include "absl/container/btree_map.h"
#include "base/executor.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/store_host.h"
#include "object_store/server/store_loop.h"

namespace sheaf {

class SpillFiles {
 public:
  // All outlive this; `spill` is called on `disk`.
  SpillFiles(StoreLoop& loop, Executor& disk, SpillStorage& spill)
      : loop_(loop), disk_(disk), spill_(spill) {}

  // The name of the next file.
  uint64_t TakeNumber() { return next_number_++; }
  // `file` is complete, with copies of `objects` objects (> 0).
  void Add(uint64_t file, uint32_t objects) { objects_in_[file] = objects; }
  // The copy of `record` on disk, if there is one, is of no use any more.
  void Forget(ObjectRecord& record);

  size_t size() const { return objects_in_.size(); }

 private:
  StoreLoop& loop_;
  Executor& disk_;
  SpillStorage& spill_;
  absl::btree_map<uint64_t, uint32_t> objects_in_;
  uint64_t next_number_ = 1;
};

}  // namespace sheaf
