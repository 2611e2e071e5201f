// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The part of a StoreClient that its buffers share: the read-only arena, this process's hazard
// list, and what was dropped since the client looked last. Lives as long as the client or any
// buffer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "object_store/buffer.h"
#include "object_store/layout.h"
#include "shm/segment.h"

namespace sheaf {

class ArenaViews;

// One pinned object: one hazard, any number of Buffers.
class Pin final : public BufferOwner {
 public:
  Pin(std::shared_ptr<ArenaViews> views, uint32_t slot, uint32_t generation, uint64_t hazard)
      : slot(slot), generation(generation), hazard(hazard), views_(std::move(views)) {}
  ~Pin() override = default;

  const uint32_t slot;
  const uint32_t generation;
  const uint64_t hazard;  // Index in the hazard list.

 private:
  void LastReferenceGone() override;
  std::shared_ptr<ArenaViews> views_;
};

class ArenaViews {
 public:
  // kInvalidArgument: not an arena of this layout.
  static absl::StatusOr<std::shared_ptr<ArenaViews>> Map(UniqueFd arena,
                                                         std::shared_ptr<Mapping> segment);
  ~ArenaViews();

  int arena_fd() const { return arena_fd_.get(); }
  const ArenaHeader& header() const { return header_; }
  const std::byte* arena() const { return arena_.data(); }
  const Slot& slot(uint32_t index) const {
    return reinterpret_cast<const Slot*>(arena_.data() + kTableOffset)[index];
  }

  // The next three under the client's lock.
  // Sets a hazard and tells its index; kCapacity when all are in use.
  uint64_t SetHazard(uint32_t slot, uint32_t generation);
  void ClearHazard(uint64_t hazard);  // Set before, and no Pin was made of it.
  // What was dropped since the last call. The hazards of these pins are cleared and free again.
  void TakeReleased(std::vector<std::unique_ptr<Pin>>* pins, std::vector<uint32_t>* unsealed);

  // On any thread.
  void ReleasePin(Pin* pin);
  void ReleaseUnsealed(uint32_t slot);
  // The client is gone: from now on what is released is just forgotten.
  void Close();

 private:
  ArenaViews(UniqueFd arena_fd, Mapping arena, std::shared_ptr<Mapping> segment,
             const ArenaHeader& header);
  bool InForkedChild() const;

  const UniqueFd arena_fd_;
  const Mapping arena_;
  const std::shared_ptr<Mapping> segment_;
  HazardList* const hazards_;
  const ArenaHeader header_;  // A copy: what was checked is what is used.
  const uint32_t forks_;      // Of this process's line when it attached.

  std::vector<uint64_t> free_hazards_;
  uint64_t hazards_used_ = 0;
  uint64_t hazards_held_ = 0;

  std::atomic<bool> any_released_{false};
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Pin>> released_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> unsealed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf
