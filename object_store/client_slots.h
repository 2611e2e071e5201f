// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The slots granted to one process, and what it knows of each. Pure bookkeeping over mapped pages:
// no messages. Slots are taken from pages in use as long as there are such, so that others become
// wholly free and can be returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "object_store/layout.h"
#include "object_store/messages.h"
#include "shm/segment.h"

namespace sheaf {

struct ClientExtent;

class ClientSlots {
 public:
  // What the process itself remembers of a slot. The word in shared memory says what became of it
  // since.
  struct Own {
    uint32_t generation = 0;         // Of the object in it, while `extent` is set.
    uint32_t position = 0;           // In the list of slots in use.
    ClientExtent* extent = nullptr;  // Where its object lies; null: free, reserved, or in an
                                     // extent that was returned.
  };

  // `arena_fd` stays open longer than this.
  ClientSlots(int arena_fd, uint32_t slot_count) : arena_fd_(arena_fd), slot_count_(slot_count) {}

  // Maps granted pages. kInvalidArgument: not in the table. kResourceExhausted: no address space.
  absl::Status AddPages(uint32_t first_page, uint32_t pages);
  // A slot in state kFree, reserved for the caller; kNoSlot when there is none.
  uint32_t Take();
  // A reserved slot is not needed, or its object is gone; it is kFree.
  void PutBack(uint32_t slot);
  // Takes out wholly free pages but for `keep` of them. They cannot be written here any more.
  std::vector<SlotPages> TakeFreePages(size_t keep);
  bool Owns(uint32_t slot) const { return pages_.contains(slot / kSlotsPerPage); }

  // Of an owned slot.
  Slot& at(uint32_t slot);
  Own& own(uint32_t slot);
  SlotWord Word(uint32_t slot) {
    return SlotWord::Unpack(at(slot).word.load(std::memory_order_acquire));
  }

  // Lists slots whose objects the raylet may free unseen. Shared ones only: a dedicated extent
  // knows its slot.
  void Track(uint32_t slot);
  void Untrack(uint32_t slot);
  const std::vector<uint32_t>& tracked() const { return tracked_; }

  uint32_t count() const { return static_cast<uint32_t>(pages_.size()) * kSlotsPerPage; }
  bool any_free() const { return !partly_free_.empty() || !wholly_free_.empty(); }

 private:
  static constexpr uint64_t kAllFree = ~uint64_t{0};
  static_assert(kSlotsPerPage == 64);
  struct Page {
    uint64_t free = kAllFree;  // A bit for each slot that is kFree and not reserved.
    Slot* slots = nullptr;
    uint32_t number = 0;
    uint32_t position = 0;         // In that of the two lists below which names it.
    std::shared_ptr<Mapping> run;  // Where it is mapped; unmapped with the last of its pages.
    Own own[kSlotsPerPage];
  };
  Page& PageOf(uint32_t slot);
  static void Push(std::vector<Page*>& list, Page* page);
  static void Remove(std::vector<Page*>& list, Page* page);

  const int arena_fd_;
  const uint32_t slot_count_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Page>> pages_;  // By number.
  std::vector<Page*> partly_free_;  // Some of their slots; the next slot is of the last.
  std::vector<Page*> wholly_free_;
  std::vector<uint32_t> tracked_;
};

}  // namespace sheaf
