// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How extents end: what the table knows as granted becomes free in the allocator. Pure; one thread.
#pragma once

#include <cstdint>

#include "absl/container/btree_set.h"
#include "base/ids.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/object_table.h"

namespace sheaf {

class ExtentLedger {
 public:
  // Both outlive this.
  ExtentLedger(ObjectTable& table, ExtentAllocator& allocator)
      : table_(table), allocator_(allocator) {}

  // No object is in `extent`: all of it is free.
  void End(Extent* extent);
  // The store takes over what `holder` has sealed in its extents (or in those at `offsets` alone),
  // each object with the granules that it touches. The rest of them is free.
  void Split(ProcessId holder, const absl::btree_set<uint64_t>* offsets);

 private:
  ObjectTable& table_;
  ExtentAllocator& allocator_;
};

}  // namespace sheaf
