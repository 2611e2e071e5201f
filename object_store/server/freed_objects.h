// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects that are out of the index and not yet out of all views: their memory comes free when
// nobody looks at them, sends them or writes them to disk. One thread.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "object_store/arena/hazard_scan.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/shelf.h"
#include "object_store/server/spill_files.h"

namespace sheaf {

class FreedObjects {
 public:
  struct Deps {  // All outlive this.
    const Clock& clock;
    ObjectTable& table;
    HazardScan& hazards;
    Shelf& shelf;
    SpillFiles& files;
  };

  // `rescan_period`: how often those that are still viewed are looked at.
  FreedObjects(Nanos rescan_period, Deps deps) : rescan_period_(rescan_period), deps_(deps) {}

  // `record` is in memory and out of the index; no new view of it begins.
  void Add(const std::shared_ptr<ObjectRecord>& record);
  // Something has ended that kept the memory of one, or memory of other objects came free: a scan
  // at the end of this turn is worth its time.
  void LookAgain() { look_again_ = true; }
  bool look_again() const { return look_again_; }
  // Whether it is time for a scan.
  bool Due(Nanos now) const { return look_again_ || (!empty() && now >= next_scan_); }
  // Frees the memory of all that nobody uses. `keep_extents`: those that are dedicated to one
  // object stay with the processes that have them, warm.
  void Scan(bool keep_extents);
  // The memory of one whose bytes are of no use any more: its slot is free; its extent is its
  // holder's (`keep_extent`, and dedicated) or the store's.
  void Release(ObjectRecord& record, bool keep_extent);

  bool empty() const { return freed_.empty(); }

 private:
  const Nanos rescan_period_;
  const Deps deps_;
  std::vector<std::shared_ptr<ObjectRecord>> freed_;
  bool look_again_ = false;
  Nanos next_scan_ = 0;
};

}  // namespace sheaf
