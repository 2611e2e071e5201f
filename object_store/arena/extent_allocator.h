// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The free ranges of the arena. Remembers which of them have memory behind them (a page that was
// never touched costs eight times a warm one) and which were used last. Pure; offsets and sizes are
// whole granules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "object_store/layout.h"
#include "object_store/messages.h"

namespace sheaf {

class ExtentAllocator {
 public:
  struct Want {
    uint64_t bytes = 0;
    bool populated_only = false;  // The machine has no memory for more.
    // Small ones gather at the upper end, so that large ones find long runs below.
    bool from_top = false;
    uint64_t alignment = kGranuleBytes;  // Of the offset; a wish.
  };
  struct Taken {
    ExtentRange range;
    std::vector<ExtentRange> unpopulated;  // Parts of it.
  };

  // [begin, begin + bytes) is free, without memory.
  ExtentAllocator(uint64_t begin, uint64_t bytes);

  // The hottest populated range that is large enough, else the run of free ranges with the most
  // populated bytes. nullopt: no run is long enough.
  std::optional<Taken> Allocate(const Want& want);
  // Joins what it touches.
  void Free(ExtentRange range, bool populated);
  // At most `bytes` of what has no memory; for population ahead of need.
  std::optional<ExtentRange> TakeUnpopulated(uint64_t bytes);
  // At most `bytes` of the coldest populated range; to give its memory back.
  std::optional<ExtentRange> TakeColdest(uint64_t bytes);

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t populated_free_bytes() const { return populated_free_bytes_; }
  // The longest piece that Allocate could give.
  uint64_t LongestRun(bool populated_only) const;

 private:
  struct Range {
    uint64_t bytes = 0;
    bool populated = false;
    uint64_t heat = 0;  // Number of the Free that made it; higher is hotter.
  };
  using Ranges = absl::btree_map<uint64_t, Range>;  // By offset. Neighbours differ in `populated`
                                                    // or do not touch.

  std::optional<uint64_t> HottestStart(const Want& want) const;
  std::optional<uint64_t> BestRunStart(const Want& want) const;
  Taken Carve(ExtentRange range);
  void Insert(ExtentRange range, bool populated, uint64_t heat);

  Ranges ranges_;
  uint64_t free_bytes_ = 0;
  uint64_t populated_free_bytes_ = 0;
  uint64_t heat_ = 0;
};

}  // namespace sheaf
