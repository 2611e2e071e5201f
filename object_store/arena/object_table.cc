// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena/object_table.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace sheaf {
namespace {

constexpr uint32_t kReservedPart = 16;  // Of the table: for the store's own slots.

}  // namespace

ObjectTable::ObjectTable(std::byte* arena, const ArenaShape& shape, NodeNumber node)
    : shape_(shape),
      slots_(reinterpret_cast<Slot*>(arena + kTableOffset)),
      pages_(shape.slot_count / kSlotsPerPage) {
  new (arena) ArenaHeader{.magic = kArenaMagic,
                          .arena_bytes = shape.arena_bytes,
                          .data_offset = shape.data_offset,
                          .slot_count = shape.slot_count,
                          .node = node};
}

std::optional<SlotGrant> ObjectTable::GrantPages(ProcessId holder, uint32_t pages) {
  const auto table = static_cast<uint32_t>(pages_.size());
  const auto left = static_cast<uint32_t>(free_pages_.size()) + table - never_granted_;
  const uint32_t reserved = holder == ProcessId{} ? 0 : table / kReservedPart;
  if (left <= reserved) return std::nullopt;
  pages = std::min(pages, left - reserved);
  SlotGrant grant{.request = 0, .first_page = never_granted_, .pages = 0};
  if (!free_pages_.empty()) grant.first_page = *free_pages_.begin();
  for (; grant.pages < pages; ++grant.pages) {
    const uint32_t next = grant.first_page + grant.pages;
    if (next == never_granted_ && next < table) {
      ++never_granted_;
    } else if (free_pages_.erase(next) == 0) {
      break;
    }
  }
  for (uint32_t number = grant.first_page; number < grant.first_page + grant.pages; ++number) {
    if (pages_[number] == nullptr) pages_[number] = std::make_unique<Page>();
    pages_[number]->granted = true;
    pages_[number]->holder = holder;
    pages_[number]->used = 0;
    pages_of_[holder].insert(number);
    // The first touch of these pages of the arena is here, not in another process.
    for (uint32_t i = 0; i < kSlotsPerPage; ++i)
      SetState(number * kSlotsPerPage + i, SlotState::kFree);
  }
  return grant;
}

void ObjectTable::FreePage(uint32_t number) {
  Page& page = *pages_[number];
  own_free_.erase(own_free_.lower_bound(number * kSlotsPerPage),
                  own_free_.lower_bound((number + 1) * kSlotsPerPage));
  pages_of_[ProcessId{}].erase(number);
  page.granted = false;
  free_pages_.insert(number);
}

bool ObjectTable::ReturnPage(ProcessId holder, uint32_t number) {
  const auto granted = pages_of_.find(holder);
  if (granted == pages_of_.end() || !granted->second.contains(number)) return false;
  Page& page = *pages_[number];
  const uint32_t first = number * kSlotsPerPage;
  for (uint32_t slot = first; slot < first + kSlotsPerPage; ++slot) {
    const SlotWord free{GenerationOf(slot), SlotState::kFree};
    if (RecordIn(slot) != nullptr || Word(slot) != free || dedicated_.contains(slot)) return false;
  }
  for (SlotInfo& info : page.slots) ++info.generation;  // Whatever it had handed out is void.
  for (uint32_t slot = first; slot < first + kSlotsPerPage; ++slot)
    SetState(slot, SlotState::kFree);
  granted->second.erase(number);
  page.granted = false;
  free_pages_.insert(number);
  return true;
}

std::vector<ProcessId> ObjectTable::HoldersOfEmptyPages() const {
  std::vector<ProcessId> holders;
  for (const auto& [process, numbers] : pages_of_) {
    const auto empty = [this](uint32_t number) { return pages_[number]->known == 0; };
    if (process != ProcessId{} && std::any_of(numbers.begin(), numbers.end(), empty))
      holders.push_back(process);
  }
  return holders;
}

void ObjectTable::EndPageGrants(ProcessId holder) {
  const auto granted = pages_of_.find(holder);
  if (granted == pages_of_.end()) return;
  const absl::btree_set<uint32_t> numbers = std::move(granted->second);
  pages_of_.erase(granted);
  for (const uint32_t number : numbers) {
    Page& page = *pages_[number];
    page.holder = ProcessId{};
    page.used = 0;
    pages_of_[ProcessId{}].insert(number);
    for (uint32_t i = 0; i < kSlotsPerPage; ++i) {
      const uint32_t slot = number * kSlotsPerPage + i;
      if (page.slots[i].record != nullptr) {
        ++page.used;
        continue;
      }
      ++page.slots[i].generation;  // Whatever the dead had begun there is void.
      SetState(slot, SlotState::kFree);
      own_free_.insert(slot);
    }
    if (page.used == 0) FreePage(number);
  }
}

uint32_t ObjectTable::TakeOwnSlot() {
  if (own_free_.empty()) {
    const std::optional<SlotGrant> grant = GrantPages(ProcessId{}, 1);
    if (!grant) return kNoSlot;
    for (uint32_t i = 0; i < kSlotsPerPage; ++i)
      own_free_.insert(grant->first_page * kSlotsPerPage + i);
  }
  const uint32_t slot = *own_free_.begin();
  own_free_.erase(own_free_.begin());
  ++pages_[slot / kSlotsPerPage]->used;
  return slot;
}

std::optional<ProcessId> ObjectTable::HolderOf(uint32_t slot) const {
  if (!Known(slot) || !pages_[slot / kSlotsPerPage]->granted) return std::nullopt;
  return pages_[slot / kSlotsPerPage]->holder;
}

void ObjectTable::ForEachUnknown(ProcessId holder, const std::function<void(uint32_t)>& visit) {
  for (const auto& [process, numbers] : pages_of_) {
    if (process == ProcessId{} || (holder != ProcessId{} && process != holder)) continue;
    for (const uint32_t number : numbers) {
      if (pages_[number]->known == kSlotsPerPage) continue;
      for (uint32_t i = 0; i < kSlotsPerPage; ++i) {
        if (pages_[number]->slots[i].record == nullptr) visit(number * kSlotsPerPage + i);
      }
    }
  }
}

void ObjectTable::ForEachKnown(ProcessId holder, const std::function<void(ObjectRecord&)>& visit) {
  const auto granted = pages_of_.find(holder);
  if (granted == pages_of_.end()) return;
  for (const uint32_t number : granted->second) {
    for (SlotInfo& info : pages_[number]->slots) {
      if (info.record != nullptr) visit(*info.record);
    }
  }
}

ObjectRecord* ObjectTable::RecordIn(uint32_t slot) const {
  return Known(slot) ? Info(slot).record : nullptr;
}

void ObjectTable::Bind(uint32_t slot, ObjectRecord* record) {
  Info(slot).record = record;
  ++pages_[slot / kSlotsPerPage]->known;
}

void ObjectTable::WriteFields(const ObjectRecord& record) {
  Slot& slot = slots_[record.slot];
  slot.id = record.info.id;
  slot.data_offset = record.bytes.offset;
  slot.data_bytes = record.info.size_bytes;
  slot.attempt = record.info.attempt;
  slot.nested_count = static_cast<uint32_t>(record.info.nested.size());
  slot.flags = record.info.flags;
}

void ObjectTable::Publish(ObjectRecord& record) {
  record.generation = GenerationOf(record.slot);
  WriteFields(record);
  Bind(record.slot, &record);
  SetState(record.slot, SlotState::kSealed);
}

bool ObjectTable::Mend(const ObjectRecord& record) {
  const Slot& slot = slots_[record.slot];
  const StoreObjectInfo& info = record.info;
  const SlotWord sealed{record.generation, SlotState::kSealed};
  if (Word(record.slot) == sealed && slot.id == info.id &&
      slot.data_offset == record.bytes.offset && slot.data_bytes == info.size_bytes &&
      slot.attempt == info.attempt && slot.nested_count == info.nested.size() &&
      slot.flags == info.flags) {
    return false;
  }
  WriteFields(record);
  SetState(record.slot, SlotState::kSealed);
  return true;
}

void ObjectTable::SetState(uint32_t slot, SlotState state) {
  slots_[slot].word.store(SlotWord{Info(slot).generation, state}.packed(),
                          std::memory_order_seq_cst);
}

bool ObjectTable::TakeBack(uint32_t slot) {
  uint64_t idle = SlotWord{Info(slot).generation, SlotState::kIdle}.packed();
  return slots_[slot].word.compare_exchange_strong(
      idle, SlotWord{Info(slot).generation, SlotState::kFree}.packed(), std::memory_order_seq_cst);
}

void ObjectTable::Release(uint32_t slot, SlotState state) {
  SlotInfo& info = Info(slot);
  Page& page = *pages_[slot / kSlotsPerPage];
  if (std::exchange(info.record, nullptr) != nullptr) --page.known;
  ++info.generation;
  SetState(slot, state);
  if (!IsOwn(page)) return;
  own_free_.insert(slot);
  if (--page.used == 0) FreePage(slot / kSlotsPerPage);
}

ObjectRecord* ObjectTable::MarkViewed(uint32_t slot, uint32_t generation, uint32_t scan) {
  if (!Known(slot)) return nullptr;
  SlotInfo& info = Info(slot);
  if (info.generation != generation || info.viewed == scan) return nullptr;
  info.viewed = scan;
  return info.record;
}

Extent* ObjectTable::AddExtent(ExtentRange range, ProcessId holder, uint32_t slot) {
  auto extent = std::make_unique<Extent>();
  Extent* added = extent.get();
  added->range = range;
  added->holder = holder;
  added->slot = slot;
  if (slot != kNoSlot) dedicated_[slot] = added;
  if (holder != ProcessId{}) {
    granted_bytes_ += range.bytes;
    unused_.insert(range.offset);
  }
  extents_[range.offset] = std::move(extent);
  return added;
}

void ObjectTable::RemoveExtent(Extent* extent) {
  if (extent->slot != kNoSlot) dedicated_.erase(extent->slot);
  if (extent->holder != ProcessId{}) granted_bytes_ -= extent->range.bytes;
  unused_.erase(extent->range.offset);
  extents_.erase(extent->range.offset);
}

void ObjectTable::AddObject(Extent& extent) {
  if (extent.objects++ == 0) unused_.erase(extent.range.offset);
}

void ObjectTable::DropObject(Extent& extent, Nanos now) {
  if (--extent.objects != 0) return;
  extent.unused_since = now;
  if (extent.holder != ProcessId{}) unused_.insert(extent.range.offset);
}

Extent* ObjectTable::FindExtent(ExtentRange range) const {
  auto after = extents_.upper_bound(range.offset);
  if (after == extents_.begin()) return nullptr;
  Extent* extent = std::prev(after)->second.get();
  const uint64_t from = range.offset - extent->range.offset;
  const bool inside = from <= extent->range.bytes && range.bytes <= extent->range.bytes - from;
  return inside ? extent : nullptr;
}

Extent* ObjectTable::DedicatedTo(uint32_t slot) const {
  const auto found = dedicated_.find(slot);
  return found == dedicated_.end() ? nullptr : found->second;
}

void ObjectTable::ForEachExtentOf(ProcessId holder, const std::function<void(Extent&)>& visit) {
  for (auto it = extents_.begin(); it != extents_.end();) {
    const uint64_t offset = it->first;
    if (it->second->holder == holder) visit(*it->second);
    it = extents_.upper_bound(offset);
  }
}

void ObjectTable::ForEachUnused(const std::function<void(Extent&)>& visit) {
  for (auto it = unused_.begin(); it != unused_.end();) {
    const uint64_t offset = *it;
    visit(*extents_.at(offset));
    it = unused_.upper_bound(offset);
  }
}

absl::btree_set<ProcessId> ObjectTable::SharedHolders() const {
  absl::btree_set<ProcessId> holders;
  for (const auto& [offset, extent] : extents_) {
    if (extent->slot == kNoSlot && extent->holder != ProcessId{}) holders.insert(extent->holder);
  }
  return holders;
}

std::shared_ptr<ObjectRecord> ObjectTable::Find(ObjectId id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second;
}

void ObjectTable::Insert(const std::shared_ptr<ObjectRecord>& record) {
  SHEAF_CHECK(objects_.emplace(record->info.id, record).second, "an object is in the index twice");
  record->used = ++use_;
  by_use_[record->used] = record.get();
  memory_payload_bytes_ += record->info.size_bytes;
}

void ObjectTable::SetPlace(ObjectRecord& record, ObjectPlace place) {
  const auto total = [this](ObjectPlace where) -> uint64_t& {
    return where == ObjectPlace::kMemory ? memory_payload_bytes_ : disk_payload_bytes_;
  };
  total(record.place) -= record.info.size_bytes;
  total(place) += record.info.size_bytes;
  if (record.place == ObjectPlace::kMemory) by_use_.erase(record.used);
  record.place = place;
  if (place != ObjectPlace::kMemory) return;
  record.used = ++use_;
  by_use_[record.used] = &record;
}

void ObjectTable::Remove(ObjectRecord& record) {
  SetPlace(record, ObjectPlace::kDisk);
  disk_payload_bytes_ -= record.info.size_bytes;
  objects_.erase(record.info.id);
}

void ObjectTable::Touch(ObjectRecord& record) {
  if (by_use_.erase(record.used) == 0) return;  // Not in memory, or out of the index.
  record.used = ++use_;
  by_use_[record.used] = &record;
}

void ObjectTable::ForEachLeastUsed(
    const std::function<bool(const std::shared_ptr<ObjectRecord>&)>& visit) const {
  for (const auto& [use, record] : by_use_) {
    if (!visit(objects_.at(record->info.id))) return;
  }
}

}  // namespace sheaf
