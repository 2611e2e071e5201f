// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/hazard_scan.h"

#include <algorithm>

namespace sheaf {

void HazardScan::Run() {
  ++number_;
  pinned_bytes_ = 0;
  processes_.ForEachSegment([this](const Mapping& segment) {
    const auto* list = reinterpret_cast<const HazardList*>(segment.data() + kHazardOffset);
    const uint64_t used =
        std::min(list->used.load(std::memory_order_seq_cst), HazardList::kCapacity);
    for (uint64_t i = 0; i < used; ++i) {
      const uint64_t hazard = list->entries[i].load(std::memory_order_seq_cst);
      if (hazard == 0) continue;
      ObjectRecord* viewed =
          table_.MarkViewed(HazardSlot(hazard), HazardGeneration(hazard), number_);
      if (viewed == nullptr) continue;
      pinned_bytes_ += viewed->bytes.bytes;
      table_.Touch(*viewed);
    }
  });
}

}  // namespace sheaf
