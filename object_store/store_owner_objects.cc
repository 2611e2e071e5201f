// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects from the moment they are sealed: learned from the slots of their writers, found, freed
// when no view of them is left.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/store_owner.h"

namespace sheaf {

std::shared_ptr<ObjectRecord> StoreOwner::LearnSealed(uint32_t slot) {
  const std::optional<ProcessId> writer = table_.LesseeOf(slot);
  if (!writer || *writer == ProcessId{}) return nullptr;
  if (table_.RecordIn(slot) != nullptr) return nullptr;
  const SlotWord word = table_.Word(slot);
  if (word != SlotWord{table_.GenerationOf(slot), SlotState::kSealed}) return nullptr;
  const Slot& shared = table_.at(slot);
  auto record = std::make_shared<ObjectRecord>();
  record->slot = slot;
  record->generation = word.generation;
  record->info = {.id = shared.id,
                  .attempt = shared.attempt,
                  .size_bytes = shared.data_bytes,
                  .flags = shared.flags,
                  .writer = *writer,
                  .nested = {}};
  const uint64_t nested = shared.nested_count;
  record->bytes.offset = shared.data_offset;
  // From here on only the copies are looked at.
  const bool sized = record->info.size_bytes <= kMaxPayloadBytes;
  record->bytes.bytes =
      sized ? std::max(FootprintBytes(record->info.size_bytes, nested), kPayloadAlignment) : 0;
  Extent* extent = sized ? table_.FindExtent(record->bytes) : nullptr;
  if (extent == nullptr || extent->lessee != *writer ||
      (extent->slot != kNoSlot && extent->slot != slot) ||
      record->bytes.offset % kPayloadAlignment != 0) {
    Violation(*writer, absl::StrCat("an object of ", record->info.size_bytes, " bytes at ",
                                    record->bytes.offset, ", outside its extents"));
    return nullptr;
  }
  const auto* ids = reinterpret_cast<const ObjectId*>(world_.arena.data() + record->bytes.offset +
                                                      NestedOffset(record->info.size_bytes));
  record->info.nested.assign(ids, ids + nested);
  record->extent = extent;
  table_.AddObject(*extent);
  table_.Bind(slot, record.get());
  if (const std::shared_ptr<ObjectRecord> known = table_.Find(record->info.id)) {
    // A second copy, or one that nobody counts on.
    if (known->info.attempt >= record->info.attempt) {
      table_.SetState(slot, SlotState::kFreeing);
      record->place = ObjectPlace::kFreeing;
      freeing_.push_back(record);
      new_frees_ = true;
      return record;
    }
    BeginFree(known);
  }
  table_.Insert(record);
  world_.observer.OnObjectSealed(record->info);
  return record;
}

void StoreOwner::LearnUnannounced() {
  // Announcements come with the writer's next turn anyway; looking at all slots is for those that
  // come too late.
  const Nanos now = world_.clock.Now();
  if (learned_ || now < next_learn_) return;
  learned_ = true;
  next_learn_ = now + options_.learn_period;
  std::vector<uint32_t> sealed;
  table_.ForEachUnknown(ProcessId{}, [&](uint32_t slot) {
    if (table_.Word(slot).state == SlotState::kSealed) sealed.push_back(slot);
  });
  for (const uint32_t slot : sealed) LearnSealed(slot);
}

void StoreOwner::OnSealed(std::span<const SealedSlot> slots) {
  for (const SealedSlot& sealed : slots) LearnSealed(sealed.slot);
}

void StoreOwner::OnFree(ProcessId from, std::span<const ObjectName> names) {
  for (const ObjectName& name : names) {
    if (name.location.node == options_.node && name.location.known())
      LearnSealed(name.location.slot);
    std::shared_ptr<ObjectRecord> record = table_.Find(name.id);
    if (record == nullptr && !name.location.known()) {
      LearnUnannounced();
      record = table_.Find(name.id);
    }
    // An attempt newer than the one that is to be freed stays.
    if (record == nullptr ||
        (name.location.node != 0 && record->info.attempt > name.location.attempt)) {
      continue;
    }
    // Its owner decides; its writer may, too, when the owner never heard of it.
    if (name.id.maker() != from && record->info.writer != from && from != RayletOf(options_.node)) {
      Violation(from, absl::StrCat("it frees an object of ", name.id.maker().ToString()));
      continue;
    }
    BeginFree(record);
  }
}

void StoreOwner::OnLookup(ProcessId from, std::span<const ObjectId> ids) {
  std::vector<LocatedObject> answers;
  for (const ObjectId& id : ids) {
    std::shared_ptr<ObjectRecord> record = table_.Find(id);
    if (record == nullptr) {
      LearnUnannounced();
      record = table_.Find(id);
    }
    AnswerLookup(from, record, id, &answers);
  }
  for (size_t at = 0; at < answers.size(); at += kMaxStoreItems) {
    const size_t count = std::min(kMaxStoreItems, answers.size() - at);
    world_.transport.To(from).Send(
        Lane::kControl, kStoreLocated,
        ItemsAsBytes(std::span<const LocatedObject>(answers.data() + at, count)));
  }
}

void StoreOwner::AnswerLookup(ProcessId asker, const std::shared_ptr<ObjectRecord>& record,
                              ObjectId id, std::vector<LocatedObject>* answers) {
  LocatedObject answer{.id = id, .location = {}, .outcome = LookupOutcome::kNotFound, .flags = 0};
  if (record != nullptr && record->place == ObjectPlace::kMemory) {
    table_.Touch(*record);
    // Who found something else there would ask again for ever.
    if (table_.Mend(*record)) {
      Violation(record->info.writer, absl::StrCat("the header of the sealed object ", id.ToHex(),
                                                  " was not what it had been"));
    }
    answer.outcome = LookupOutcome::kFound;
    answer.location = LocationOf(*record);
    answer.flags = record->info.flags;
  } else if (record != nullptr) {
    auto& waiters = record->waiters;
    if (std::find(waiters.begin(), waiters.end(), asker) == waiters.end()) waiters.push_back(asker);
    if (record->place == ObjectPlace::kDisk) StartRestore(record);
    return;
  }
  answers->push_back(answer);
}

void StoreOwner::AnswerWaiters(ObjectRecord& record, LookupOutcome outcome) {
  LocatedObject answer{
      .id = record.info.id, .location = {}, .outcome = outcome, .flags = record.info.flags};
  if (outcome == LookupOutcome::kFound) answer.location = LocationOf(record);
  for (const ProcessId waiter : std::exchange(record.waiters, {})) {
    const auto process = processes_.find(waiter);
    const bool here = waiter.node == options_.node;
    if (here && (process == processes_.end() || !process->second.alive)) continue;
    world_.transport.To(waiter).Send(Lane::kControl, kStoreLocated, AsBytes(answer));
  }
  for (const auto& hook : std::exchange(record.hooks, {})) hook(outcome);
}

void StoreOwner::BeginFree(const std::shared_ptr<ObjectRecord>& record, bool lost) {
  const ObjectPlace place = record->place;
  table_.Remove(*record);
  record->place = ObjectPlace::kFreeing;
  record->freed = true;
  world_.observer.OnObjectGone(record->info, lost);
  AnswerWaiters(*record, lost ? LookupOutcome::kDataLoss : LookupOutcome::kNotFound);
  if (place == ObjectPlace::kMemory) {
    table_.SetState(record->slot, SlotState::kFreeing);
    freeing_.push_back(record);
    new_frees_ = true;
    return;
  }
  if (place == ObjectPlace::kRestoring) {  // Waits for room, or for the disk thread: OnRestored
                                           // sees `freed`.
    std::erase_if(waiting_, [&](const auto& w) {
      if (w->restore != record) return false;
      w->gone = true;
      return !w->populating;
    });
  }
  ForgetOnDisk(*record);
}

void StoreOwner::ScanHazards() {
  ++scan_;
  pinned_bytes_ = 0;
  for (const auto& [id, process] : processes_) {
    const auto* list = reinterpret_cast<const HazardList*>(process.segment->data() + kHazardOffset);
    const uint64_t used =
        std::min(list->used.load(std::memory_order_seq_cst), HazardList::kCapacity);
    for (uint64_t i = 0; i < used; ++i) {
      const uint64_t hazard = list->entries[i].load(std::memory_order_seq_cst);
      if (hazard == 0) continue;
      ObjectRecord* viewed = table_.MarkViewed(HazardSlot(hazard), HazardGeneration(hazard), scan_);
      if (viewed == nullptr) continue;
      pinned_bytes_ += viewed->bytes.bytes;
      table_.Touch(*viewed);
    }
  }
}

void StoreOwner::ScanFreeing() {
  new_frees_ = false;
  next_rescan_ = world_.clock.Now() + options_.rescan_period;
  if (freeing_.empty()) return;
  ScanHazards();
  const bool keep = waiting_.empty();
  std::vector<std::shared_ptr<ObjectRecord>> free;
  std::erase_if(freeing_, [&](const std::shared_ptr<ObjectRecord>& record) {
    if (record->writing || record->pins != 0 || table_.Viewed(record->slot, scan_)) return false;
    free.push_back(record);
    return true;
  });
  for (const auto& record : free) {
    ForgetOnDisk(*record);
    ReleaseMemory(*record, keep);
  }
}

void StoreOwner::ReleaseMemory(ObjectRecord& record, bool keep_extent) {
  Extent* extent = std::exchange(record.extent, nullptr);
  const uint32_t slot = std::exchange(record.slot, kNoSlot);
  const bool own = extent->lessee == ProcessId{};
  const bool dedicated = extent->slot != kNoSlot;
  table_.DropObject(*extent, world_.clock.Now());
  const bool stays = dedicated && !own && keep_extent;
  if (extent == shelf_) {
    if (extent->objects == 1) LeaveShelf();
  } else if (extent->objects == 0 && (own || (dedicated && !stays))) {
    EndLease(extent);
  }
  table_.Release(slot, stays ? SlotState::kIdle : SlotState::kFree);
}

}  // namespace sheaf
