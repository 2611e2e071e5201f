// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/client_slots.h"

#include <algorithm>
#include <bit>
#include <utility>

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
  for (uint32_t page = first_page; page < first_page + pages; ++page) {
    if (pages_.contains(page))
      return absl::InvalidArgumentError(absl::StrCat("slot page ", page, " twice"));
  }
  SHEAF_ASSIGN_OR_RETURN(Mapping run,
                         Mapping::Map(arena_fd_, kTableOffset + uint64_t{first_page} * kPageBytes,
                                      uint64_t{pages} * kPageBytes, Access::kReadWrite));
  SHEAF_RETURN_IF_ERROR(run.DontFork());
  const auto shared_run = std::make_shared<Mapping>(std::move(run));
  // The lowest slot on top: neighbours in time are neighbours in cache.
  for (uint32_t i = pages; i-- > 0;) {
    auto page = std::make_unique<Page>();
    page->slots = reinterpret_cast<Slot*>(shared_run->data() + uint64_t{i} * kPageBytes);
    page->number = first_page + i;
    page->run = shared_run;
    Push(wholly_free_, page.get());
    pages_[first_page + i] = std::move(page);
  }
  return absl::OkStatus();
}

void ClientSlots::Push(std::vector<Page*>& list, Page* page) {
  page->position = static_cast<uint32_t>(list.size());
  list.push_back(page);
}

void ClientSlots::Remove(std::vector<Page*>& list, Page* page) {
  list[page->position] = list.back();
  list[page->position]->position = page->position;
  list.pop_back();
}

uint32_t ClientSlots::Take() {
  if (partly_free_.empty()) {
    if (wholly_free_.empty()) return kNoSlot;
    Page* next = wholly_free_.back();
    wholly_free_.pop_back();
    Push(partly_free_, next);
  }
  Page& page = *partly_free_.back();
  const auto slot = static_cast<uint32_t>(std::countr_zero(page.free));
  page.free &= page.free - 1;
  if (page.free == 0) partly_free_.pop_back();
  return page.number * kSlotsPerPage + slot;
}

void ClientSlots::PutBack(uint32_t slot) {
  Page& page = PageOf(slot);
  const bool listed = page.free != 0;
  page.free |= uint64_t{1} << slot % kSlotsPerPage;
  if (!listed) {
    Push(partly_free_, &page);
  } else if (page.free == kAllFree) {
    Remove(partly_free_, &page);
    Push(wholly_free_, &page);
  }
}

std::vector<SlotPages> ClientSlots::TakeFreePages(size_t keep) {
  std::vector<uint32_t> numbers;
  std::vector<Page*> kept;
  while (wholly_free_.size() > keep) {
    Page* page = wholly_free_.back();
    wholly_free_.pop_back();
    const auto at =
        static_cast<size_t>(reinterpret_cast<std::byte*>(page->slots) - page->run->data());
    // The other pages of the run stay. A process may have no room for one more mapping: then the
    // page stays, too.
    if (page->run.use_count() > 1 && !page->run->Protect(at, kPageBytes, Access::kReadOnly).ok()) {
      kept.push_back(page);
      continue;
    }
    numbers.push_back(page->number);
    pages_.erase(page->number);
  }
  for (Page* page : kept) Push(wholly_free_, page);
  std::sort(numbers.begin(), numbers.end());
  std::vector<SlotPages> taken;
  for (const uint32_t number : numbers) {
    if (!taken.empty() && taken.back().first + taken.back().count == number) {
      ++taken.back().count;
    } else {
      taken.push_back({number, 1});
    }
  }
  return taken;
}

ClientSlots::Page& ClientSlots::PageOf(uint32_t slot) {
  const auto page = pages_.find(slot / kSlotsPerPage);
  SHEAF_CHECK(page != pages_.end(), "a slot of another process");
  return *page->second;
}

Slot& ClientSlots::at(uint32_t slot) { return PageOf(slot).slots[slot % kSlotsPerPage]; }

ClientSlots::Own& ClientSlots::own(uint32_t slot) { return PageOf(slot).own[slot % kSlotsPerPage]; }

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
