// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/extent_allocator.h"

#include <algorithm>

#include "base/check.h"

namespace sheaf {
namespace {

// Where in [begin, end) a piece of want.bytes goes; the range is long enough.
uint64_t Place(uint64_t begin, uint64_t end, const ExtentAllocator::Want& want) {
  if (want.from_top) return end - want.bytes;
  const uint64_t aligned = AlignUp(begin, want.alignment);
  return aligned + want.bytes <= end ? aligned : begin;
}

}  // namespace

ExtentAllocator::ExtentAllocator(uint64_t begin, uint64_t bytes) {
  Insert({begin, bytes}, /*populated=*/false, /*heat=*/0);
}

std::optional<ExtentAllocator::Taken> ExtentAllocator::Allocate(const Want& want) {
  std::optional<uint64_t> start = HottestStart(want);
  if (!start && !want.populated_only) start = BestRunStart(want);
  if (!start) return std::nullopt;
  return Carve({*start, want.bytes});
}

std::optional<uint64_t> ExtentAllocator::HottestStart(const Want& want) const {
  std::optional<uint64_t> start;
  uint64_t heat = 0;
  for (const auto& [offset, range] : ranges_) {
    if (!range.populated || range.bytes < want.bytes || (start && range.heat <= heat)) continue;
    start = Place(offset, offset + range.bytes, want);
    heat = range.heat;
  }
  return start;
}

std::optional<uint64_t> ExtentAllocator::BestRunStart(const Want& want) const {
  std::optional<uint64_t> start;
  uint64_t best_populated = 0;
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    const uint64_t begin = it->first;
    uint64_t end = begin;
    uint64_t populated = 0;
    for (; it != ranges_.end() && it->first == end; ++it) {
      end += it->second.bytes;
      if (it->second.populated) populated += it->second.bytes;
    }
    if (end - begin < want.bytes) continue;
    const bool better =
        !start || populated > best_populated || (populated == best_populated && want.from_top);
    if (!better) continue;
    start = Place(begin, end, want);
    best_populated = populated;
  }
  return start;
}

ExtentAllocator::Taken ExtentAllocator::Carve(ExtentRange wanted) {
  Taken taken{.range = wanted, .unpopulated = {}};
  const uint64_t end = wanted.offset + wanted.bytes;
  auto it = std::prev(ranges_.upper_bound(wanted.offset));
  while (it != ranges_.end() && it->first < end) {
    const auto [offset, range] = *it;
    it = ranges_.erase(it);
    const uint64_t from = std::max(offset, wanted.offset);
    const uint64_t to = std::min(offset + range.bytes, end);
    free_bytes_ -= range.bytes;
    if (range.populated) {
      populated_free_bytes_ -= range.bytes;
    } else {
      taken.unpopulated.push_back({from, to - from});
    }
    if (offset < from) Insert({offset, from - offset}, range.populated, range.heat);
    if (to < offset + range.bytes)
      Insert({to, offset + range.bytes - to}, range.populated, range.heat);
    it = ranges_.lower_bound(to);
  }
  return taken;
}

void ExtentAllocator::Free(ExtentRange range, bool populated) { Insert(range, populated, ++heat_); }

void ExtentAllocator::Insert(ExtentRange range, bool populated, uint64_t heat) {
  if (range.bytes == 0) return;
  free_bytes_ += range.bytes;
  if (populated) populated_free_bytes_ += range.bytes;
  auto next = ranges_.lower_bound(range.offset);
  SHEAF_CHECK(next == ranges_.end() || next->first >= range.offset + range.bytes, "freed twice");
  if (next != ranges_.end() && next->first == range.offset + range.bytes &&
      next->second.populated == populated) {
    range.bytes += next->second.bytes;
    heat = std::max(heat, next->second.heat);
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    const uint64_t before_end = before->first + before->second.bytes;
    SHEAF_CHECK(before_end <= range.offset, "freed twice");
    if (before_end == range.offset && before->second.populated == populated) {
      before->second.bytes += range.bytes;
      before->second.heat = std::max(heat, before->second.heat);
      return;
    }
  }
  ranges_[range.offset] = {range.bytes, populated, heat};
}

std::optional<ExtentRange> ExtentAllocator::TakeUnpopulated(uint64_t bytes) {
  for (const auto& [offset, range] : ranges_) {
    if (range.populated) continue;
    return Carve({offset, std::min(bytes, range.bytes)}).range;
  }
  return std::nullopt;
}

std::optional<ExtentRange> ExtentAllocator::TakeColdest(uint64_t bytes) {
  auto coldest = ranges_.end();
  for (auto it = ranges_.begin(); it != ranges_.end(); ++it) {
    if (!it->second.populated) continue;
    if (coldest == ranges_.end() || it->second.heat < coldest->second.heat) coldest = it;
  }
  if (coldest == ranges_.end()) return std::nullopt;
  // Its upper end: allocations begin at the lower one.
  const uint64_t size = std::min(bytes, coldest->second.bytes);
  return Carve({coldest->first + coldest->second.bytes - size, size}).range;
}

uint64_t ExtentAllocator::LongestRun(bool populated_only) const {
  uint64_t longest = 0;
  uint64_t run = 0;
  uint64_t end = 0;
  for (const auto& [offset, range] : ranges_) {
    if (populated_only && !range.populated) continue;
    run = offset == end ? run + range.bytes : range.bytes;
    end = offset + range.bytes;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace sheaf
