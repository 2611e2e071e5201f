// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Inside a MutableBuffer in the arena: the slot it will be sealed in. Dropped unsealed, on any
// thread, it tells the client, which gives slot and memory back.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "object_store/arena_views.h"
#include "shm/segment.h"

namespace sheaf {

class UnsealedSlot {
 public:
  UnsealedSlot(std::shared_ptr<ArenaViews> views, std::shared_ptr<MovableMapping> memory,
               uint32_t slot)
      : views_(std::move(views)), memory_(std::move(memory)), slot_(slot) {}
  UnsealedSlot(const UnsealedSlot&) = delete;
  UnsealedSlot& operator=(const UnsealedSlot&) = delete;
  ~UnsealedSlot() {
    if (slot_ != kNoSlot) views_->ReleaseUnsealed(slot_);
  }
  uint32_t slot() const { return slot_; }
  const ArenaViews* views() const { return views_.get(); }
  // Sealed: nothing is given back.
  void Disarm() { slot_ = kNoSlot; }

 private:
  const std::shared_ptr<ArenaViews> views_;
  // Writable; stays mapped while somebody may write.
  const std::shared_ptr<MovableMapping> memory_;
  uint32_t slot_;
};

}  // namespace sheaf
