// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The extents granted to one process, mapped writable: shared ones, in which small objects follow
// each other, and dedicated ones with one object each, bound to a slot. Keeps mappings of idle
// extents, with their populated page tables, so that the next object of that size is written at the
// speed of warm memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "object_store/layout.h"
#include "object_store/messages.h"
#include "shm/segment.h"

namespace sheaf {

struct ClientExtent {
  uint64_t offset = 0;  // In the arena.
  uint64_t bytes = 0;
  uint32_t slot = kNoSlot;  // Dedicated: the slot it is bound to.
  std::shared_ptr<MovableMapping> mapping;
  uint32_t position = 0;  // Dedicated, in use: in the list of those.
  uint64_t written = 0;   // Up to here objects have lain there: these pages are entered.
  // Shared extents only.
  uint64_t next = 0;      // Where the next object goes, from `offset`.
  uint32_t live = 0;      // Objects created and not known to be freed.
  uint32_t unsealed = 0;  // Of these, still being written.
  bool IsSealed() const { return slot == kNoSlot && live != 0 && unsealed == 0; }
};

class ClientExtents {
 public:
  ClientExtents(int arena_fd, uint64_t data_offset, uint64_t arena_bytes)
      : arena_fd_(arena_fd), data_offset_(data_offset), arena_bytes_(arena_bytes) {}

  // Maps a granted range. kInvalidArgument: not in the arena. kResourceExhausted: no address space.
  absl::StatusOr<ClientExtent*> Add(const ExtentGrant& grant);
  // Unmaps it, once nobody writes there any more.
  void Drop(ClientExtent* extent);

  // Room for `footprint` bytes in a shared extent; its live and unsealed counts are raised. Null:
  // ask for more.
  ClientExtent* Allocate(uint64_t footprint, uint64_t* offset);
  void Sealed(ClientExtent* extent);   // One of its objects.
  void Freed(ClientExtent* extent);    // One of its sealed objects.
  void Aborted(ClientExtent* extent);  // One of its unsealed objects.
  // Takes out shared extents without objects, but for `keep` of them.
  std::vector<ExtentRange> TakeEmpty(size_t keep);
  // Takes out the shared extents with sealed objects and no unsealed one. The caller forgets first
  // where its objects in them lie.
  std::vector<ExtentRange> TakeSealed();
  // What to ask for next: more as more is in use.
  uint64_t NextSharedBytes() const;

  // Of a dedicated extent: whether its slot is in kIdle, as far as this process knows.
  void PushIdle(ClientExtent* extent) { idle_.push_back(extent); }
  // The idle extent used last that fits; taken off the list. Null: none.
  ClientExtent* PopIdle(uint64_t footprint);
  std::vector<ClientExtent*> idle() const { return idle_; }  // A copy: they may be dropped.
  void DropIdle(ClientExtent* extent);
  // Dedicated extents whose objects live, as far as this process knows.
  const std::vector<ClientExtent*>& in_use() const { return in_use_; }
  void PushInUse(ClientExtent* extent);
  void TakeInUse(ClientExtent* extent);

  // All that was written there is sealed: pointers to it must not work any more.
  void RevokePointers(ClientExtent* extent);

  uint64_t held_bytes() const { return held_bytes_; }
  uint64_t idle_bytes() const;

 private:
  void CloseOpen();
  void RevokeWhenDone(ClientExtent* extent);

  const int arena_fd_;
  const uint64_t data_offset_;
  const uint64_t arena_bytes_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<ClientExtent>> extents_;  // By offset.
  ClientExtent* open_ = nullptr;      // The shared one that is being filled.
  std::vector<ClientExtent*> empty_;  // Shared, not open, without objects; the hottest last.
  std::vector<ClientExtent*> idle_;   // Dedicated; the hottest last.
  std::vector<ClientExtent*> in_use_;
  uint64_t held_bytes_ = 0;
  uint64_t shared_bytes_ = 0;
};

}  // namespace sheaf
