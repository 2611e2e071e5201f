// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/arena_views.h"

#include <pthread.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

std::atomic<uint32_t> g_forks{0};  // How many forks lie between the first process and this one.

uint32_t ForksSoFar() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace

void Pin::LastReferenceGone() {
  // `views_` may be the last to keep the views alive, and this pin may be deleted inside.
  const std::shared_ptr<ArenaViews> views = std::move(views_);
  views->ReleasePin(this);
}

absl::StatusOr<std::shared_ptr<ArenaViews>> ArenaViews::Map(UniqueFd arena,
                                                            std::shared_ptr<Mapping> segment) {
  if (segment == nullptr || segment->size() < kProcessSegmentBytes) {
    return absl::InvalidArgumentError("the process segment has no hazard list");
  }
  SHEAF_RETURN_IF_ERROR(CheckSegment(arena.get(), sizeof(ArenaHeader)));
  struct stat file;
  if (fstat(arena.get(), &file) != 0) return absl::ErrnoToStatus(errno, "fstat of the arena");
  const uint64_t file_bytes = static_cast<uint64_t>(file.st_size);
  SHEAF_ASSIGN_OR_RETURN(Mapping mapping,
                         Mapping::Map(arena.get(), 0, file_bytes, Access::kReadOnly));
  const ArenaHeader header = *reinterpret_cast<const ArenaHeader*>(mapping.data());
  if (header.magic != kArenaMagic || header.arena_bytes > file_bytes ||
      header.data_offset > header.arena_bytes || header.slot_count % kSlotsPerPage != 0 ||
      kTableOffset + uint64_t{header.slot_count} * sizeof(Slot) > header.data_offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("not an arena of this version of Sheaf: magic ", absl::Hex(header.magic)));
  }
  return std::shared_ptr<ArenaViews>(
      new ArenaViews(std::move(arena), std::move(mapping), std::move(segment), header));
}

ArenaViews::ArenaViews(UniqueFd arena_fd, Mapping arena, std::shared_ptr<Mapping> segment,
                       const ArenaHeader& header)
    : arena_fd_(std::move(arena_fd)),
      arena_(std::move(arena)),
      segment_(std::move(segment)),
      hazards_(reinterpret_cast<HazardList*>(segment_->data() + kHazardOffset)),
      header_(header),
      forks_(ForksSoFar()) {}

ArenaViews::~ArenaViews() = default;

bool ArenaViews::InForkedChild() const { return g_forks.load(std::memory_order_relaxed) != forks_; }

uint64_t ArenaViews::SetHazard(uint32_t slot, uint32_t generation) {
  uint64_t index = hazards_used_;
  if (!free_hazards_.empty()) {
    index = free_hazards_.back();
    free_hazards_.pop_back();
  } else if (index == HazardList::kCapacity) {
    return index;
  } else {
    hazards_->used.store(++hazards_used_, std::memory_order_seq_cst);
  }
  ++hazards_held_;
  hazards_->entries[index].store(EncodeHazard(slot, generation), std::memory_order_seq_cst);
  return index;
}

void ArenaViews::ClearHazard(uint64_t hazard) {
  hazards_->entries[hazard].store(0, std::memory_order_release);
  free_hazards_.push_back(hazard);
  --hazards_held_;
}

void ArenaViews::TakeReleased(std::vector<std::unique_ptr<Pin>>* pins,
                              std::vector<uint32_t>* unsealed) {
  if (!any_released_.load(std::memory_order_acquire)) return;
  {
    const MutexLock lock(mutex_);
    any_released_.store(false, std::memory_order_relaxed);
    pins->swap(released_);
    unsealed->swap(unsealed_);
  }
  for (const auto& pin : *pins) free_hazards_.push_back(pin->hazard);
  hazards_held_ -= pins->size();
  if (hazards_held_ == 0 && hazards_used_ != 0) {  // Scans of this list are free again.
    hazards_used_ = 0;
    free_hazards_.clear();
    hazards_->used.store(0, std::memory_order_release);
  }
}

void ArenaViews::ReleasePin(Pin* pin) {
  // The list of a forked child's parent is not the child's to write.
  if (InForkedChild()) return;
  hazards_->entries[pin->hazard].store(0, std::memory_order_release);
  std::unique_ptr<Pin> owned(pin);
  const MutexLock lock(mutex_);
  if (closed_) return;
  released_.push_back(std::move(owned));
  any_released_.store(true, std::memory_order_release);
}

void ArenaViews::ReleaseUnsealed(uint32_t slot) {
  if (InForkedChild()) return;
  const MutexLock lock(mutex_);
  if (closed_) return;
  unsealed_.push_back(slot);
  any_released_.store(true, std::memory_order_release);
}

void ArenaViews::Close() {
  std::vector<std::unique_ptr<Pin>> released;  // Deleted without the lock.
  const MutexLock lock(mutex_);
  closed_ = true;
  released.swap(released_);
}

}  // namespace sheaf
