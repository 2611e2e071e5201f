// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/spill_scheduler.h"

#include <algorithm>
#include <utility>

namespace sheaf {

void SpillScheduler::Spill(uint64_t bytes) {
  const Nanos now = deps_.clock.Now();
  if (now < std::max(progress_.retry_at(), next_at_) || writing_bytes_ >= bytes) return;
  deps_.index.LearnAll();
  deps_.hazards.Run();
  uint64_t wanted = bytes - writing_bytes_;
  Records write;
  Records evict;
  const auto choose = [&](bool yields_at_once) {
    deps_.table.ForEachLeastUsed([&](const std::shared_ptr<ObjectRecord>& record) {
      if (wanted == 0) return false;
      if (record->writing) return true;
      // In an extent that small objects of a live process share, only its holder can say when it is
      // empty.
      const bool yields = record->extent->slot != kNoSlot || record->extent->holder == ProcessId{};
      if (yields != yields_at_once || record->pins != 0 || deps_.hazards.Viewed(record->slot))
        return true;
      (record->disk.file != 0 ? evict : write).push_back(record);
      wanted -= std::min(wanted, record->bytes.bytes);
      return true;
    });
  };
  choose(true);
  choose(false);
  // Not enough can be spilled: views must end first, which is worth a look now and then only.
  if (wanted != 0) next_at_ = now + options_.rescan_period;
  if (!evict.empty()) Evict(evict);
  Records batch;
  uint64_t batch_bytes = 0;
  for (auto& record : write) {
    batch_bytes += record->bytes.bytes;
    batch.push_back(std::move(record));
    if (batch_bytes < options_.file_bytes) continue;
    WriteOut(std::exchange(batch, {}));
    batch_bytes = 0;
  }
  if (!batch.empty()) WriteOut(std::move(batch));
}

void SpillScheduler::WriteOut(Records records) {
  struct Job {
    std::vector<std::span<const std::byte>> pieces;
    absl::StatusOr<std::vector<SpillRecord>> written = absl::UnknownError("not written");
  };
  auto job = std::make_shared<Job>();
  for (const auto& record : records) {
    record->writing = true;  // Its memory stays until this is over, freed or not.
    writing_bytes_ += record->bytes.bytes;
    job->pieces.push_back({deps_.arena.data() + record->bytes.offset, record->bytes.bytes});
  }
  progress_.OnBegin(deps_.clock.Now());
  const uint64_t file = deps_.files.TakeNumber();
  deps_.loop.RunElsewhere(
      deps_.disk,
      [&spill = deps_.spill, job, file] { job->written = spill.Write(file, job->pieces); },
      [this, job, file, records = std::move(records)] { OnWritten(records, file, job->written); });
}

void SpillScheduler::OnWritten(const Records& records, uint64_t file,
                               const absl::StatusOr<std::vector<SpillRecord>>& written) {
  const bool complete = written.ok() && written->size() == records.size();
  progress_.OnEnd(deps_.clock.Now(), complete);
  if (complete) {
    deps_.files.Add(file, static_cast<uint32_t>(records.size()));
  } else {
    ++counts_.failures;
  }
  Records evict;
  for (size_t i = 0; i < records.size(); ++i) {
    ObjectRecord& record = *records[i];
    record.writing = false;
    writing_bytes_ -= record.bytes.bytes;
    if (complete) record.disk = (*written)[i];
    if (record.freed) {
      deps_.freed.LookAgain();  // It waited for the disk thread.
    } else if (complete) {
      ++counts_.spills;
      counts_.written_bytes += record.bytes.bytes;
      evict.push_back(records[i]);
    }
  }
  Evict(evict);
  if (deps_.freed.look_again()) deps_.freed.Scan(deps_.room.empty());
  deps_.room.Serve();
}

void SpillScheduler::Evict(std::span<const std::shared_ptr<ObjectRecord>> records) {
  for (const auto& record : records) deps_.table.SetState(record->slot, SlotState::kFreeing);
  deps_.hazards.Run();
  for (const auto& record : records) {
    if (record->pins != 0 || deps_.hazards.Viewed(record->slot)) {
      // Whoever looked meanwhile was told to ask, and will be told this same place.
      deps_.table.SetState(record->slot, SlotState::kSealed);
      continue;
    }
    deps_.table.SetPlace(*record, ObjectPlace::kDisk);
    deps_.freed.Release(*record, /*keep_extent=*/false);
  }
}

const SpillProgress& SpillScheduler::Progress(Nanos now) {
  progress_.Look(now, deps_.spill.BytesWritten());
  return progress_;
}

}  // namespace sheaf
