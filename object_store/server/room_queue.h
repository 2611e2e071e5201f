// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who waits for room in the arena, and who of them is served next: processes for extents, the store
// itself for copies and restored objects. One thread; no call blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/population.h"
#include "object_store/messages.h"
#include "object_store/server/slot_queue.h"
#include "object_store/server/spill_progress.h"

namespace sheaf {

// One who waits. Ends with one call of `granted` or `refused`, a true of `elsewhere`, or Cancel.
struct RoomRequest {
  ProcessId process;  // Who asks, by the number that it chose; nil: the store itself.
  uint64_t number = 0;
  uint64_t bytes = 0;        // Whole granules.
  uint64_t least_bytes = 0;  // So many will do when `bytes` cannot be had. 0: they will not.
  bool from_top = false;     // For small objects.
  Nanos since = 0;
  Nanos deadline = 0;
  std::function<bool()> elsewhere;  // May be null. Whether it found room that others have left.
  std::function<void(ExtentRange)> granted;
  std::function<void(StoreRefusalReason)> refused;
  Nanos in_vain_since = 0;  // Since then nothing was found for it, nor on its way. 0: something is.
  bool populating = false;  // Its range is taken and being populated.
  bool cancelled = false;
};

// Where room comes from when none is free.
class RoomSource {
 public:
  virtual ~RoomSource() = default;
  // At once: what nobody uses, until `bytes` are free in one piece (`populated`: that has memory).
  virtual void TakeUnused(uint64_t bytes, bool populated) = 0;
  // What needs time: what others can do without.
  virtual void BeginToMakeRoom(uint64_t bytes) = 0;
  // Whether what was begun will give more.
  virtual bool making_room() const = 0;
};

class RoomQueue {
 public:
  struct Deps {  // All outlive this. `source` may be called from inside any call.
    const Clock& clock;
    ExtentAllocator& allocator;
    Population& population;
    SlotQueue& slots;
    RoomSource& source;
  };

  // `align_to_huge_pages`: the kernel gives huge pages for shared memory.
  RoomQueue(bool align_to_huge_pages, Deps deps)
      : align_to_huge_pages_(align_to_huge_pages), deps_(deps) {}

  void Add(std::shared_ptr<RoomRequest> request);
  // Forgets `request` (null: nobody), which is told nothing.
  void Cancel(const std::shared_ptr<RoomRequest>& request);
  // Of a process; null: it does not wait.
  std::shared_ptr<RoomRequest> Find(ProcessId process, uint64_t number) const;
  void OnProcessDied(ProcessId process);
  // Serves who waits for slots, then who waits for room: each in turn, but that much smaller
  // requests overtake one that nothing can be found for, and after a moment in which nothing came
  // free all do: what is in its way may be viewed by those behind it.
  void Serve();
  // Refuses those who have waited for too long; `disk`: what is known of it now.
  void Expire(Nanos now, const SpillProgress& disk);

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  // Since when the one who waits longest waits in vain; kForever: nobody does.
  Nanos ShortSince() const;

 private:
  bool TryServe(const std::shared_ptr<RoomRequest>& request);
  // Nothing was found for it: whether others have to wait behind it.
  bool HoldsOthers(RoomRequest& request) const;
  void OnPopulated(const std::shared_ptr<RoomRequest>& request, const ExtentAllocator::Taken& taken,
                   const absl::Status& outcome);
  void MakeRoom(uint64_t bytes);
  bool short_of_memory() const { return deps_.clock.Now() < memory_short_until_; }

  const bool align_to_huge_pages_;
  const Deps deps_;
  std::deque<std::shared_ptr<RoomRequest>> waiting_;
  Nanos memory_short_until_ = 0;  // The machine has no memory for unpopulated ranges.
  bool serving_ = false;          // Serve runs;
  bool serve_again_ = false;      // it was called meanwhile.
};

}  // namespace sheaf
