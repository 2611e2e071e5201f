// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which objects go to disk when memory is short, and when. The copy in memory goes only after the
// one on disk is complete and synced, and only if nobody looks at it then. One thread; the writing
// happens on the disk's executor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "object_store/arena/hazard_scan.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/store_host.h"
#include "object_store/server/freed_objects.h"
#include "object_store/server/object_index.h"
#include "object_store/server/room_queue.h"
#include "object_store/server/spill_files.h"
#include "object_store/server/spill_progress.h"
#include "object_store/server/store_loop.h"

namespace sheaf {

class SpillScheduler {
 public:
  struct Options {
    uint64_t file_bytes = 0;      // Objects of one batch go into one file of about this size.
    Nanos rescan_period = 0;      // How often what can be spilled is looked for again, in vain.
    Nanos disk_retry_period = 0;  // After the disk was full.
    int waits_for_slow_disk = 0;  // SpillProgress::EndOfWait.
  };
  struct Deps {  // All outlive this; `spill` is called on `disk`, but for BytesWritten.
    const Clock& clock;
    ArenaMemory& arena;
    SpillStorage& spill;
    Executor& disk;
    StoreLoop& loop;
    ObjectTable& table;
    HazardScan& hazards;
    FreedObjects& freed;
    SpillFiles& files;
    RoomQueue& room;
    ObjectIndex& index;
  };
  struct Counts {         // Since the start.
    uint64_t spills = 0;  // Objects written.
    uint64_t written_bytes = 0;
    uint64_t failures = 0;  // Files that could not be written.
  };

  SpillScheduler(Options options, Deps deps)
      : options_(options),
        deps_(deps),
        progress_(options.disk_retry_period, options.waits_for_slow_disk) {}

  // Begins to spill what was not used for longest, so that with what is being written `bytes` come
  // free. Nothing happens while the disk is full, or when nothing could be spilled just now.
  void Spill(uint64_t bytes);
  // What is known of the disk at `now`.
  const SpillProgress& Progress(Nanos now);
  bool writing() const { return writing_bytes_ != 0; }
  const Counts& counts() const { return counts_; }

 private:
  using Records = std::vector<std::shared_ptr<ObjectRecord>>;

  void WriteOut(Records records);
  void OnWritten(const Records& records, uint64_t file,
                 const absl::StatusOr<std::vector<SpillRecord>>& written);
  void Evict(std::span<const std::shared_ptr<ObjectRecord>> records);

  const Options options_;
  const Deps deps_;
  SpillProgress progress_;
  uint64_t writing_bytes_ = 0;
  Nanos next_at_ = 0;  // Nothing more could be spilled: not before.
  Counts counts_;
};

}  // namespace sheaf
