// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// To disk when memory is short, and back when somebody asks. The copy in memory goes only after the
// one on disk is complete and synced; what the disk returns is believed only with the right
// checksum.
#include <algorithm>
#include <utility>

#include "object_store/store_owner.h"

namespace sheaf {
namespace {

// Objects up to this come back side by side, into a granule that they share.
constexpr uint64_t kSmallRestoreBytes = kGranuleBytes / 4;

}  // namespace

void StoreOwner::SpillSome(uint64_t bytes) {
  const Nanos now = world_.clock.Now();
  if (now < std::max(disk_.retry_at(), next_spill_at_) || spilling_bytes_ >= bytes) return;
  LearnUnannounced();
  ScanHazards();
  uint64_t wanted = bytes - spilling_bytes_;
  std::vector<std::shared_ptr<ObjectRecord>> write;
  std::vector<std::shared_ptr<ObjectRecord>> evict;
  const auto choose = [&](bool yields_at_once) {
    table_.ForEachLeastUsed([&](const std::shared_ptr<ObjectRecord>& record) {
      if (wanted == 0) return false;
      if (record->writing) return true;
      // In an extent that small objects of a live process share, only its lessee can say when it is
      // empty.
      const bool yields = record->extent->slot != kNoSlot || record->extent->lessee == ProcessId{};
      if (yields != yields_at_once || record->pins != 0 || table_.Viewed(record->slot, scan_))
        return true;
      (record->disk.file != 0 ? evict : write).push_back(record);
      wanted -= std::min(wanted, record->bytes.bytes);
      return true;
    });
  };
  choose(true);
  choose(false);
  // Not enough can be spilled: views must end first, which is worth a look now and then only.
  if (wanted != 0) next_spill_at_ = now + options_.rescan_period;
  if (!evict.empty()) Evict(evict);
  std::vector<std::shared_ptr<ObjectRecord>> batch;
  uint64_t batch_bytes = 0;
  for (auto& record : write) {
    batch_bytes += record->bytes.bytes;
    batch.push_back(std::move(record));
    if (batch_bytes < options_.spill_file_bytes) continue;
    WriteOut(std::exchange(batch, {}));
    batch_bytes = 0;
  }
  if (!batch.empty()) WriteOut(std::move(batch));
}

void StoreOwner::WriteOut(std::vector<std::shared_ptr<ObjectRecord>> records) {
  struct Job {
    std::vector<std::span<const std::byte>> pieces;
    absl::StatusOr<std::vector<SpillRecord>> written = absl::UnknownError("not written");
  };
  auto job = std::make_shared<Job>();
  for (const auto& record : records) {
    record->writing = true;  // Its memory stays until this is over, freed or not.
    spilling_bytes_ += record->bytes.bytes;
    job->pieces.push_back({world_.arena.data() + record->bytes.offset, record->bytes.bytes});
  }
  disk_.OnBegin(world_.clock.Now());
  const uint64_t file = next_spill_file_++;
  RunElsewhere(
      world_.disk,
      [&spill = world_.spill, job, file] { job->written = spill.Write(file, job->pieces); },
      [this, job, file, records = std::move(records)] { OnSpilled(records, file, job->written); });
}

void StoreOwner::OnSpilled(const std::vector<std::shared_ptr<ObjectRecord>>& records, uint64_t file,
                           const absl::StatusOr<std::vector<SpillRecord>>& written) {
  const bool complete = written.ok() && written->size() == records.size();
  disk_.OnEnd(world_.clock.Now(), complete);
  if (!complete) ++counts_.disk_failures;
  if (complete) spill_files_[file] = static_cast<uint32_t>(records.size());
  std::vector<std::shared_ptr<ObjectRecord>> evict;
  for (size_t i = 0; i < records.size(); ++i) {
    ObjectRecord& record = *records[i];
    record.writing = false;
    spilling_bytes_ -= record.bytes.bytes;
    if (complete) record.disk = (*written)[i];
    if (record.freed) {
      new_frees_ = true;  // It waited for the disk thread.
    } else if (complete) {
      ++counts_.spills;
      counts_.spill_written_bytes += record.bytes.bytes;
      evict.push_back(records[i]);
    }
  }
  Evict(evict);
  if (new_frees_) ScanFreeing();
  ServeWaiting();
}

void StoreOwner::Evict(std::span<const std::shared_ptr<ObjectRecord>> records) {
  for (const auto& record : records) table_.SetState(record->slot, SlotState::kFreeing);
  ScanHazards();
  for (const auto& record : records) {
    if (record->pins != 0 || table_.Viewed(record->slot, scan_)) {
      // Whoever looked meanwhile was told to ask, and will be told this same place.
      table_.SetState(record->slot, SlotState::kSealed);
      continue;
    }
    table_.SetPlace(*record, ObjectPlace::kDisk);
    ReleaseMemory(*record, /*keep_extent=*/false);
  }
}

void StoreOwner::StartRestore(const std::shared_ptr<ObjectRecord>& record) {
  table_.SetPlace(*record, ObjectPlace::kRestoring);
  if (RestoreOnShelf(record)) return;
  auto waiting = std::make_shared<Waiting>();
  waiting->restore = record;
  waiting->bytes = AlignUp(record->bytes.bytes, kGranuleBytes);
  waiting->since = world_.clock.Now();
  waiting->deadline = Deadline(waiting->since, options_.restore_wait);
  waiting_.push_back(std::move(waiting));
  ServeWaiting();
}

bool StoreOwner::IsSmallRestore(const ObjectRecord& record) {
  return record.bytes.bytes <= kSmallRestoreBytes;
}

bool StoreOwner::RestoreOnShelf(const std::shared_ptr<ObjectRecord>& record) {
  const auto room = IsSmallRestore(*record) ? TakeFromShelf(record->bytes.bytes) : std::nullopt;
  if (room) RestoreInto(record, shelf_, *room);
  return room.has_value();
}

void StoreOwner::RestoreInto(const std::shared_ptr<ObjectRecord>& record, Extent* extent,
                             ExtentRange range) {
  record->extent = extent;
  auto outcome = std::make_shared<absl::Status>();
  std::byte* memory = world_.arena.data() + range.offset;
  RunElsewhere(
      world_.disk,
      [&spill = world_.spill, outcome, disk = record->disk, memory] {
        *outcome = spill.Read(disk, memory);
      },
      [this, record, range, outcome] { OnRestored(record, range, *outcome); });
}

void StoreOwner::OnRestored(const std::shared_ptr<ObjectRecord>& record, ExtentRange range,
                            const absl::Status& outcome) {
  const uint32_t slot = outcome.ok() && !record->freed ? TakeOwnSlot() : kNoSlot;
  if (slot == kNoSlot) {
    DropFrom(std::exchange(record->extent, nullptr));
    if (!record->freed && outcome.ok()) {
      table_.SetPlace(*record, ObjectPlace::kDisk);
      AnswerWaiters(*record, LookupOutcome::kFull);
    } else if (!record->freed) {
      ++counts_.lost;
      ++counts_.disk_failures;
      table_.SetPlace(*record, ObjectPlace::kDisk);
      BeginFree(record, /*lost=*/true);
    }
    return ServeWaiting();
  }
  ++counts_.restores;
  counts_.restored_bytes += record->bytes.bytes;
  record->bytes.offset = range.offset;
  record->slot = slot;
  record->generation = table_.GenerationOf(slot);
  table_.SetPlace(*record, ObjectPlace::kMemory);
  Slot& shared = table_.at(slot);
  shared.id = record->info.id;
  shared.data_offset = range.offset;
  shared.data_bytes = record->info.size_bytes;
  shared.attempt = record->info.attempt;
  shared.nested_count = static_cast<uint32_t>(record->info.nested.size());
  shared.flags = record->info.flags;
  table_.Bind(slot, record.get());
  table_.SetState(slot, SlotState::kSealed);
  table_.Touch(*record);
  AnswerWaiters(*record, LookupOutcome::kFound);
}

void StoreOwner::ForgetOnDisk(ObjectRecord& record) {
  if (record.disk.file == 0) return;
  const auto file = spill_files_.find(std::exchange(record.disk, {}).file);
  if (file == spill_files_.end() || --file->second != 0) return;
  const uint64_t number = file->first;
  spill_files_.erase(file);
  RunElsewhere(world_.disk, [&spill = world_.spill, number] { spill.Remove(number); }, [] {});
}

}  // namespace sheaf
