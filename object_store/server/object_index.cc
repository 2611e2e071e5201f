// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/object_index.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/frame.h"

namespace sheaf {

void ObjectIndex::Learn(uint32_t slot) {
  ObjectTable& table = deps_.table;
  const std::optional<ProcessId> writer = table.HolderOf(slot);
  if (!writer || *writer == ProcessId{}) return;
  if (table.RecordIn(slot) != nullptr) return;
  const SlotWord word = table.Word(slot);
  if (word != SlotWord{table.GenerationOf(slot), SlotState::kSealed}) return;
  const Slot& shared = table.at(slot);
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
  Extent* extent = sized ? table.FindExtent(record->bytes) : nullptr;
  if (extent == nullptr || extent->holder != *writer ||
      (extent->slot != kNoSlot && extent->slot != slot) ||
      record->bytes.offset % kPayloadAlignment != 0) {
    deps_.refusals.Violation(*writer,
                             absl::StrCat("an object of ", record->info.size_bytes, " bytes at ",
                                          record->bytes.offset, ", outside its extents"));
    return;
  }
  const auto* ids = reinterpret_cast<const ObjectId*>(deps_.arena.data() + record->bytes.offset +
                                                      NestedOffset(record->info.size_bytes));
  record->info.nested.assign(ids, ids + nested);
  record->extent = extent;
  table.AddObject(*extent);
  table.Bind(slot, record.get());
  if (const std::shared_ptr<ObjectRecord> known = table.Find(record->info.id)) {
    // A second copy, or one that nobody counts on.
    if (known->info.attempt >= record->info.attempt) return deps_.freed.Add(record);
    Free(known);
  }
  table.Insert(record);
  deps_.observer.OnObjectSealed(record->info);
}

void ObjectIndex::LearnOf(ProcessId writer) {
  std::vector<uint32_t> sealed;
  deps_.table.ForEachUnknown(writer, [&](uint32_t slot) {
    if (deps_.table.Word(slot).state == SlotState::kSealed) sealed.push_back(slot);
  });
  for (const uint32_t slot : sealed) Learn(slot);
}

void ObjectIndex::LearnAll() {
  // Announcements come with the writer's next turn anyway; looking at all slots is for those that
  // come too late.
  const Nanos now = deps_.clock.Now();
  if (learned_ || now < next_learn_) return;
  learned_ = true;
  next_learn_ = now + options_.learn_period;
  LearnOf(ProcessId{});
}

void ObjectIndex::LearnAllNow() {
  learned_ = false;
  next_learn_ = 0;
  LearnAll();
}

std::shared_ptr<ObjectRecord> ObjectIndex::Find(ObjectId id) {
  if (std::shared_ptr<ObjectRecord> record = deps_.table.Find(id)) return record;
  LearnAll();
  return deps_.table.Find(id);
}

std::shared_ptr<ObjectRecord> ObjectIndex::Find(ObjectId id, const ObjectLocation& hint) {
  if (hint.node == options_.node && hint.known()) Learn(hint.slot);
  return Find(id);
}

ObjectLocation ObjectIndex::LocationOf(const ObjectRecord& record) const {
  return {options_.node, record.slot, record.generation, record.info.attempt};
}

bool ObjectIndex::Answer(ProcessId asker, ObjectId id, const std::shared_ptr<ObjectRecord>& record,
                         std::vector<LocatedObject>* answers) {
  LocatedObject answer{.id = id, .location = {}, .outcome = LookupOutcome::kNotFound, .flags = 0};
  if (record != nullptr && record->place != ObjectPlace::kMemory) {
    auto& waiters = record->waiters;
    if (std::find(waiters.begin(), waiters.end(), asker) == waiters.end()) waiters.push_back(asker);
    return record->place == ObjectPlace::kDisk;
  }
  if (record != nullptr) {
    deps_.table.Touch(*record);
    // Who found something else there would ask again for ever.
    if (deps_.table.Mend(*record)) {
      deps_.refusals.Violation(record->info.writer,
                               absl::StrCat("the header of the sealed object ", id.ToHex(),
                                            " was not what it had been"));
    }
    answer.outcome = LookupOutcome::kFound;
    answer.location = LocationOf(*record);
    answer.flags = record->info.flags;
  }
  answers->push_back(answer);
  return false;
}

void ObjectIndex::Settle(ObjectRecord& record, LookupOutcome outcome) {
  LocatedObject answer{
      .id = record.info.id, .location = {}, .outcome = outcome, .flags = record.info.flags};
  if (outcome == LookupOutcome::kFound) answer.location = LocationOf(record);
  for (const ProcessId waiter : std::exchange(record.waiters, {})) {
    if (waiter.node == options_.node && !deps_.processes.IsAlive(waiter)) continue;
    deps_.transport.To(waiter).Send(Lane::kControl, kStoreLocated, AsBytes(answer));
  }
  for (const auto& hook : std::exchange(record.hooks, {})) hook(outcome);
}

void ObjectIndex::Free(const std::shared_ptr<ObjectRecord>& record, bool lost) {
  const ObjectPlace place = record->place;
  deps_.table.Remove(*record);
  record->place = ObjectPlace::kFreeing;
  record->freed = true;
  deps_.observer.OnObjectGone(record->info, lost);
  Settle(*record, lost ? LookupOutcome::kDataLoss : LookupOutcome::kNotFound);
  if (place == ObjectPlace::kMemory) return deps_.freed.Add(record);
  // One that is being restored waits for room, or for the disk thread: who gets it back from there
  // sees `freed`.
  if (place == ObjectPlace::kRestoring) deps_.room.Cancel(record->room.lock());
  deps_.files.Forget(*record);
}

void ObjectIndex::OnFree(ProcessId from, std::span<const ObjectName> names) {
  for (const ObjectName& name : names) {
    if (name.location.node == options_.node && name.location.known()) Learn(name.location.slot);
    const std::shared_ptr<ObjectRecord> record =
        name.location.known() ? deps_.table.Find(name.id) : Find(name.id);
    // An attempt newer than the one that is to be freed stays.
    if (record == nullptr ||
        (name.location.node != 0 && record->info.attempt > name.location.attempt)) {
      continue;
    }
    // Its owner decides; its writer may, too, when the owner never heard of it.
    if (name.id.maker() != from && record->info.writer != from && from != RayletOf(options_.node)) {
      deps_.refusals.Violation(from,
                               absl::StrCat("it frees an object of ", name.id.maker().ToString()));
      continue;
    }
    Free(record);
  }
}

}  // namespace sheaf
