// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where small copies and restored objects lie side by side, in an extent of the store's own. There
// is one shelf at a time: when it has no room for the next object it is left, and its extent ends
// with the last object in it. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/extent_ledger.h"
#include "object_store/arena/object_table.h"
#include "object_store/messages.h"

namespace sheaf {

class Shelf {
 public:
  struct Place {
    Extent* extent = nullptr;
    ExtentRange range;  // Of one object, in `extent`.
  };

  // All outlive this.
  Shelf(const Clock& clock, ObjectTable& table, ExtentAllocator& allocator, ExtentLedger& extents)
      : clock_(clock), table_(table), allocator_(allocator), extents_(extents) {}

  // Room for one more object; nullopt: the shelf has none.
  std::optional<Place> Take(uint64_t footprint);
  // The same in `room`, which the allocator gave for it: as the new shelf, or for it alone.
  Place TakeFrom(ExtentRange room, uint64_t footprint);
  Place TakeAll(ExtentRange room, uint64_t footprint);
  // One object of `extent` (any extent) is gone. An extent without objects ends, unless
  // `keep_empty`.
  void Drop(Extent* extent, bool keep_empty = false);

 private:
  void Leave();

  const Clock& clock_;
  ObjectTable& table_;
  ExtentAllocator& allocator_;
  ExtentLedger& extents_;
  Extent* shelf_ = nullptr;  // Counts one object more, so that it stays while it is the shelf.
  uint64_t used_bytes_ = 0;  // Of it.
};

}  // namespace sheaf
