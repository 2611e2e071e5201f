// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/extent_ledger.h"

#include <algorithm>
#include <vector>

#include "absl/container/btree_map.h"

namespace sheaf {

void ExtentLedger::End(Extent* extent) {
  allocator_.Free(extent->range, /*populated=*/true);
  table_.RemoveExtent(extent);
}

void ExtentLedger::Split(ProcessId holder, const absl::btree_set<uint64_t>* offsets) {
  absl::btree_map<uint64_t, std::vector<ObjectRecord*>> kept;  // By offset of their extent.
  table_.ForEachKnown(holder, [&](ObjectRecord& record) {
    if (record.extent != nullptr) kept[record.extent->range.offset].push_back(&record);
  });
  // Whole granules with objects in them; neighbours that share one stay together.
  struct Piece {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::vector<ObjectRecord*> records;
  };
  table_.ForEachExtentOf(holder, [&](Extent& extent) {
    if (offsets != nullptr && !offsets->contains(extent.range.offset)) return;
    const ExtentRange whole = extent.range;
    const uint64_t whole_end = whole.offset + whole.bytes;
    table_.RemoveExtent(&extent);
    auto& records = kept[whole.offset];
    std::sort(records.begin(), records.end(), [](const ObjectRecord* a, const ObjectRecord* b) {
      return a->bytes.offset < b->bytes.offset;
    });
    std::vector<Piece> pieces;
    for (ObjectRecord* record : records) {
      const uint64_t begin = record->bytes.offset / kGranuleBytes * kGranuleBytes;
      const uint64_t end =
          std::min(whole_end, AlignUp(record->bytes.offset + record->bytes.bytes, kGranuleBytes));
      if (pieces.empty() || begin >= pieces.back().end) pieces.push_back({begin, end, {}});
      pieces.back().end = std::max(pieces.back().end, end);
      pieces.back().records.push_back(record);
    }
    uint64_t at = whole.offset;
    for (const Piece& piece : pieces) {
      if (piece.begin > at) allocator_.Free({at, piece.begin - at}, /*populated=*/true);
      Extent* own = table_.AddExtent({piece.begin, piece.end - piece.begin}, ProcessId{}, kNoSlot);
      for (ObjectRecord* record : piece.records) {
        record->extent = own;
        table_.AddObject(*own);
      }
      at = piece.end;
    }
    if (whole_end > at) allocator_.Free({at, whole_end - at}, /*populated=*/true);
  });
}

}  // namespace sheaf
