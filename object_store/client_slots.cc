// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/client_slots.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {

absl::Status ClientSlots::AddPages(uint32_t first_page, uint32_t pages) {
  const uint32_t page_count = slot_count_ / kSlotsPerPage;
  if (pages == 0 || first_page >= page_count || pages > page_count - first_page) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot pages ", first_page, "+", pages, " of a table of ", page_count));
  }
  SHEAF_ASSIGN_OR_RETURN(Mapping run,
                         Mapping::Map(arena_fd_, kTableOffset + uint64_t{first_page} * kPageBytes,
                                      uint64_t{pages} * kPageBytes, Access::kReadWrite));
  SHEAF_RETURN_IF_ERROR(run.DontFork());
  for (uint32_t i = 0; i < pages; ++i) {
    auto page = std::make_unique<Page>();
    page->slots = reinterpret_cast<Slot*>(run.data() + uint64_t{i} * kPageBytes);
    pages_[first_page + i] = std::move(page);
    // The lowest slot on top: neighbours in time are neighbours in cache.
    for (uint32_t s = kSlotsPerPage; s-- > 0;)
      free_.push_back((first_page + i) * kSlotsPerPage + s);
  }
  runs_.push_back(std::move(run));
  return absl::OkStatus();
}

uint32_t ClientSlots::Take() {
  if (free_.empty()) return kNoSlot;
  const uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

Slot& ClientSlots::at(uint32_t slot) {
  const auto page = pages_.find(slot / kSlotsPerPage);
  SHEAF_CHECK(page != pages_.end(), "a slot of another process");
  return page->second->slots[slot % kSlotsPerPage];
}

ClientSlots::Own& ClientSlots::own(uint32_t slot) {
  const auto page = pages_.find(slot / kSlotsPerPage);
  SHEAF_CHECK(page != pages_.end(), "a slot of another process");
  return page->second->own[slot % kSlotsPerPage];
}

void ClientSlots::Track(uint32_t slot) {
  own(slot).position = static_cast<uint32_t>(tracked_.size());
  tracked_.push_back(slot);
}

void ClientSlots::Untrack(uint32_t slot) {
  const uint32_t position = own(slot).position;
  tracked_[position] = tracked_.back();
  own(tracked_[position]).position = position;
  tracked_.pop_back();
}

}  // namespace sheaf
