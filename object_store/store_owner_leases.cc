// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Extents and slot pages: who asks, who gets, and where room comes from when there is none. In this
// order: freed objects without views, idle extents of processes, shared extents of processes,
// spilling, less than was asked for where that will do; at last a refusal.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/store_owner.h"

namespace sheaf {
namespace {

constexpr uint32_t kMostSlotPages = 64;  // In one lease.
constexpr uint64_t kOvertakingPart = 8;  // Requests so much smaller than a stuck one overtake it.
constexpr Nanos kMemoryRetryPeriod = 500 * kMillisecond;
constexpr Nanos kRecallPeriod = 100 * kMillisecond;
constexpr size_t kMostRequests = 4096;  // Of all processes, waiting.

}  // namespace

void StoreOwner::OnExtentRequest(ProcessId from, ExtentRequest request) {
  const uint64_t capacity = shape_.arena_bytes - shape_.data_offset;
  if (request.bytes > capacity) {
    return RefuseRequest(from, request.request, StoreRefusalReason::kTooLarge);
  }
  const bool dedicated = request.slot != kNoSlot;
  if (request.bytes == 0 || waiting_.size() >= kMostRequests ||
      (dedicated &&
       (table_.LesseeOf(request.slot) != from || table_.DedicatedTo(request.slot) != nullptr ||
        table_.RecordIn(request.slot) != nullptr))) {
    return RefuseRequest(from, request.request, StoreRefusalReason::kInvalid);
  }
  if (new_frees_) ScanFreeing();
  if (dedicated && HasFittingIdle(from, request.bytes)) {
    const ExtentCancel answer{request.request};
    world_.transport.To(from).Send(Lane::kControl, kStoreAlreadyYours, AsBytes(answer));
    return;
  }
  const Nanos wait = std::clamp<Nanos>(request.wait_ns, 0, options_.longest_wait);
  auto waiting = std::make_shared<Waiting>();
  waiting->process = from;
  waiting->request = request;
  waiting->bytes = AlignUp(request.bytes, kGranuleBytes);
  waiting->since = world_.clock.Now();
  waiting->deadline = Deadline(waiting->since, wait);
  waiting_.push_back(std::move(waiting));
  ServeWaiting();
}

bool StoreOwner::HasFittingIdle(ProcessId process, uint64_t bytes) {
  bool found = false;
  table_.ForEachUnused([&](Extent& extent) {
    found = found || (extent.lessee == process && extent.slot != kNoSlot &&
                      FitsIdleExtent(extent.range.bytes, bytes) &&
                      table_.Word(extent.slot).state == SlotState::kIdle);
  });
  return found;
}

void StoreOwner::OnExtentCancel(ProcessId from, uint64_t request) {
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const std::shared_ptr<Waiting> waiting = *it;
    if (waiting->restore != nullptr || waiting->receive != nullptr || waiting->process != from ||
        waiting->gone || waiting->request.request != request) {
      continue;
    }
    waiting->gone = true;
    if (!waiting->populating) waiting_.erase(it);
    Refuse(*waiting, StoreRefusalReason::kCancelled);
    return ServeWaiting();
  }
}

void StoreOwner::OnExtentReturn(ProcessId from, std::span<const ExtentRange> ranges) {
  // What was sealed there and not announced must be known first: others may view it.
  std::vector<uint32_t> sealed;
  table_.ForEachUnknown(from, [&](uint32_t slot) {
    if (table_.Word(slot).state == SlotState::kSealed) sealed.push_back(slot);
  });
  for (const uint32_t slot : sealed) LearnSealed(slot);
  absl::btree_set<uint64_t> with_objects;
  for (const ExtentRange& range : ranges) {
    Extent* extent = table_.FindExtent(range);
    if (extent == nullptr || extent->lessee != from || extent->range.offset != range.offset ||
        extent->range.bytes != range.bytes) {
      Violation(from, absl::StrCat("it returns ", range.bytes, " bytes at ", range.offset,
                                   ", which it does not hold"));
    } else if (extent->objects == 0) {
      EndLease(extent);
    } else if (extent->slot == kNoSlot) {
      with_objects.insert(range.offset);
    } else {
      Violation(from, "it returns the extent of an object that exists");
    }
  }
  if (!with_objects.empty()) SplitExtents(from, &with_objects);
}

void StoreOwner::OnSlotRequest(ProcessId from, const SlotRequest& request) {
  if (request.pages == 0) {
    return RefuseRequest(from, request.request, StoreRefusalReason::kInvalid);
  }
  if (waiting_for_slots_.size() >= kMostRequests) {
    return RefuseRequest(from, request.request, StoreRefusalReason::kTableFull);
  }
  const Nanos wait = std::clamp<Nanos>(request.wait_ns, 0, options_.longest_wait);
  waiting_for_slots_.push_back({from, request, Deadline(world_.clock.Now(), wait)});
  ServeSlots();
}

void StoreOwner::OnSlotReturn(ProcessId from, std::span<const SlotPages> ranges) {
  for (const SlotPages& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      if (table_.ReturnPage(from, range.first + i)) continue;
      Violation(from, absl::StrCat("it returns slot page ", range.first + i,
                                   ", which it does not hold or which is not free"));
      break;
    }
  }
}

void StoreOwner::ServeSlots() {
  const Nanos now = world_.clock.Now();
  while (!waiting_for_slots_.empty()) {
    const WaitingForSlots& first = waiting_for_slots_.front();
    // Where pages are scarce all get some of them.
    const uint32_t pages = waiting_for_slots_.size() > 1 ? 1 : first.request.pages;
    std::optional<SlotGrant> grant =
        table_.LeasePages(first.process, std::min(pages, kMostSlotPages));
    if (!grant) break;
    grant->request = first.request.request;
    world_.transport.To(first.process).Send(Lane::kControl, kStoreSlotGrant, AsBytes(*grant));
    waiting_for_slots_.pop_front();
  }
  std::erase_if(waiting_for_slots_, [&](const WaitingForSlots& waiting) {
    if (now < waiting.deadline) return false;
    RefuseRequest(waiting.process, waiting.request.request, StoreRefusalReason::kTableFull);
    return true;
  });
  if (!waiting_for_slots_.empty()) RecallSlots(now);
}

uint32_t StoreOwner::TakeOwnSlot() {
  const uint32_t slot = table_.TakeOwnSlot();
  if (slot == kNoSlot) RecallSlots(world_.clock.Now());
  return slot;
}

void StoreOwner::RecallSlots(Nanos now) {
  if (now < next_recall_slots_) return;
  next_recall_slots_ = now + kRecallPeriod;
  TakeBackIdle(now, UINT64_MAX);  // Each holds a slot, and with it a page.
  for (const ProcessId lessee : table_.LesseesOfEmptyPages()) {
    world_.transport.To(lessee).Send(Lane::kControl, kStoreRecall,
                                     AsBytes(StoreRecall{.with_objects = 0, .keep_pages = 0}));
  }
}

void StoreOwner::ServeWaiting() {
  if (serving_) {
    serve_again_ = true;
    return;
  }
  serving_ = true;
  if (!waiting_for_slots_.empty()) ServeSlots();
  do {
    serve_again_ = false;
    uint64_t stuck_bytes = 0;  // Of the smallest request that nothing could be found for.
    for (size_t i = 0; i < waiting_.size();) {
      const std::shared_ptr<Waiting> waiting = waiting_[i];
      if (waiting->populating ||
          (stuck_bytes != 0 && waiting->bytes > stuck_bytes / kOvertakingPart)) {
        ++i;
      } else if (TryServe(waiting)) {
        if (!waiting->populating) std::erase(waiting_, waiting);
      } else {
        stuck_bytes = stuck_bytes == 0 ? waiting->bytes : std::min(stuck_bytes, waiting->bytes);
        ++i;
      }
    }
  } while (serve_again_);
  serving_ = false;
}

bool StoreOwner::TryServe(const std::shared_ptr<Waiting>& waiting) {
  const bool shared = waiting->restore == nullptr && waiting->receive == nullptr &&
                      waiting->request.slot == kNoSlot;
  if (waiting->restore != nullptr && RestoreOnShelf(waiting->restore)) return true;
  const bool short_of_memory = world_.clock.Now() < memory_short_until_;
  ExtentAllocator::Want want{
      .bytes = waiting->bytes,
      .populated_only = short_of_memory,
      .from_top = shared,
      .alignment = options_.align_to_huge_pages && waiting->bytes >= kHugePageBytes
                       ? kHugePageBytes
                       : kGranuleBytes};
  auto taken = allocator_.Allocate(want);
  if (!taken) {
    MakeRoom(waiting->bytes);
    taken = allocator_.Allocate(want);
    const uint64_t least = waiting->request.least_granules * kGranuleBytes;
    if (!taken && shared && least != 0 && least < want.bytes && spilling_bytes_ == 0) {
      want.bytes = least;
      want.alignment = kGranuleBytes;
      taken = allocator_.Allocate(want);
    }
    if (!taken) return false;
  }
  if (taken->unpopulated.empty()) {
    Grant(*waiting, taken->range);
    population_.OnDemand(waiting->bytes, /*waited=*/false);
    return true;
  }
  waiting->populating = true;
  population_.Populate(taken->unpopulated, [this, waiting, taken = *taken](absl::Status outcome) {
    OnPopulated(waiting, taken, outcome);
  });
  return true;
}

void StoreOwner::OnPopulated(const std::shared_ptr<Waiting>& waiting,
                             const ExtentAllocator::Taken& taken, const absl::Status& outcome) {
  waiting->populating = false;
  if (outcome.ok() && !waiting->gone) {
    std::erase(waiting_, waiting);
    Grant(*waiting, taken.range);
    population_.OnDemand(waiting->bytes, /*waited=*/true);
    return ServeWaiting();
  }
  if (waiting->gone) std::erase(waiting_, waiting);
  uint64_t at = taken.range.offset;
  for (const ExtentRange& part : taken.unpopulated) {
    if (part.offset > at) allocator_.Free({at, part.offset - at}, /*populated=*/true);
    allocator_.Free(part, outcome.ok());
    at = part.offset + part.bytes;
  }
  const uint64_t end = taken.range.offset + taken.range.bytes;
  if (end > at) allocator_.Free({at, end - at}, /*populated=*/true);
  if (!outcome.ok()) {
    // From now on for a while only what has memory already, made free by spilling if need be.
    memory_short_until_ = world_.clock.Now() + kMemoryRetryPeriod;
  }
  ServeWaiting();
}

void StoreOwner::Grant(const Waiting& waiting, ExtentRange range) {
  if (waiting.restore != nullptr) {
    const auto [extent, place] =
        TakeFrom(range, waiting.restore->bytes.bytes, IsSmallRestore(*waiting.restore));
    return RestoreInto(waiting.restore, extent, place);
  }
  if (waiting.receive != nullptr) return ReceiveInto(waiting.receive, range);
  const uint32_t slot = waiting.request.slot;
  if (slot != kNoSlot && (table_.DedicatedTo(slot) != nullptr ||        // Asked for twice at once,
                          table_.LesseeOf(slot) != waiting.process)) {  // or returned meanwhile.
    allocator_.Free(range, /*populated=*/true);
    return RefuseRequest(waiting.process, waiting.request.request, StoreRefusalReason::kInvalid);
  }
  table_.AddExtent(range, waiting.process, waiting.request.slot)->unused_since = world_.clock.Now();
  const ExtentGrant grant{.request = waiting.request.request,
                          .offset = range.offset,
                          .bytes = range.bytes,
                          .slot = waiting.request.slot};
  world_.transport.To(waiting.process).Send(Lane::kControl, kStoreExtentGrant, AsBytes(grant));
}

void StoreOwner::Refuse(const Waiting& waiting, StoreRefusalReason reason) {
  if (waiting.restore != nullptr) {
    table_.SetPlace(*waiting.restore, ObjectPlace::kDisk);
    return AnswerWaiters(*waiting.restore, LookupOutcome::kFull);
  }
  if (waiting.receive != nullptr) return RefuseArrival(waiting.receive);
  RefuseRequest(waiting.process, waiting.request.request, reason);
}

void StoreOwner::RefuseRequest(ProcessId to, uint64_t request, StoreRefusalReason reason) {
  if (reason != StoreRefusalReason::kCancelled) ++counts_.refusals;
  const uint64_t capacity = shape_.arena_bytes - shape_.data_offset;
  const StoreRefusal refusal{.request = request,
                             .reason = reason,
                             .capacity_bytes = capacity,
                             .used_bytes = capacity - allocator_.free_bytes(),
                             .pinned_bytes = pinned_bytes_};
  world_.transport.To(to).Send(Lane::kControl, kStoreRefused, AsBytes(refusal));
}

void StoreOwner::ExpireWaiting(Nanos now) {
  disk_.Look(now, world_.spill.BytesWritten());
  std::vector<std::shared_ptr<Waiting>> expired;
  for (const auto& waiting : waiting_) {
    if (!waiting->populating && now >= disk_.EndOfWait(waiting->since, waiting->deadline))
      expired.push_back(waiting);
  }
  if (expired.empty()) return;
  ServeWaiting();  // A last attempt.
  for (const auto& waiting : expired) {
    if (waiting->populating || std::erase(waiting_, waiting) == 0) continue;
    Refuse(*waiting, disk_.failing() ? StoreRefusalReason::kOutOfDisk : StoreRefusalReason::kFull);
  }
}

void StoreOwner::MakeRoom(uint64_t bytes) {
  const Nanos now = world_.clock.Now();
  const bool short_of_memory = now < memory_short_until_;
  if (new_frees_) ScanFreeing();
  TakeBackIdle(now, bytes);
  if (allocator_.LongestRun(short_of_memory) >= bytes) return;
  if (short_of_memory && allocator_.LongestRun(false) >= bytes) {
    // Room, but no memory for it: what is populated elsewhere in pieces is given up for it.
    if (population_.GiveBack(bytes) > 0) {
      memory_short_until_ = 0;
      return;
    }
  }
  Recall(now, now);
  RecallAll(now);
  SpillSome(bytes);
}

void StoreOwner::TakeBackIdle(Nanos unused_since, uint64_t enough) {
  const bool short_of_memory = world_.clock.Now() < memory_short_until_;
  table_.ForEachUnused([&](Extent& extent) {
    if (extent.slot == kNoSlot || extent.unused_since > unused_since) return;
    if (enough != UINT64_MAX && allocator_.LongestRun(short_of_memory) >= enough) return;
    if (table_.TakeBack(extent.slot)) EndLease(&extent);
  });
}

void StoreOwner::Recall(Nanos now, Nanos empty_since) {
  table_.ForEachUnused([&](Extent& extent) {
    if (extent.slot != kNoSlot || extent.unused_since > empty_since) return;
    const auto lessee = processes_.find(extent.lessee);
    if (lessee == processes_.end() || now - lessee->second.recalled_at < kRecallPeriod) return;
    lessee->second.recalled_at = now;
    world_.transport.To(extent.lessee)
        .Send(Lane::kControl, kStoreRecall,
              AsBytes(StoreRecall{.with_objects = 0, .keep_pages = 1}));
  });
}

void StoreOwner::RecallAll(Nanos now) {
  if (now < next_recall_all_) return;
  next_recall_all_ = now + kRecallPeriod;
  for (const ProcessId lessee : table_.SharedLessees()) {
    world_.transport.To(lessee).Send(Lane::kControl, kStoreRecall,
                                     AsBytes(StoreRecall{.with_objects = 1, .keep_pages = 1}));
  }
}

void StoreOwner::EndLease(Extent* extent) {
  allocator_.Free(extent->range, /*populated=*/true);
  table_.RemoveExtent(extent);
}

void StoreOwner::SplitExtents(ProcessId lessee, const absl::btree_set<uint64_t>* offsets) {
  absl::btree_map<uint64_t, std::vector<ObjectRecord*>> kept;  // By offset of their extent.
  table_.ForEachKnown(lessee, [&](ObjectRecord& record) {
    if (record.extent != nullptr) kept[record.extent->range.offset].push_back(&record);
  });
  // Whole granules with objects in them; neighbours that share one stay together.
  struct Piece {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::vector<ObjectRecord*> records;
  };
  table_.ForEachExtentOf(lessee, [&](Extent& extent) {
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
