// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What processes have and do not use goes back to the store: idle extents, which it takes back
// itself, and shared extents and slot pages, for which it asks. One thread.
#pragma once

#include <cstdint>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/arena/extent_allocator.h"
#include "object_store/arena/extent_ledger.h"
#include "object_store/arena/object_table.h"

namespace sheaf {

class Recalls {
 public:
  struct Deps {  // All outlive this.
    Transport& transport;
    ObjectTable& table;
    const ExtentAllocator& allocator;
    ExtentLedger& extents;
  };

  // `take_back_after`: what is idle for so long goes back in any case.
  Recalls(Nanos take_back_after, Deps deps) : take_back_after_(take_back_after), deps_(deps) {}

  // Takes idle extents until `enough` bytes are free in one piece, or (`populated`) in one piece
  // that has memory.
  void TakeIdle(uint64_t enough, bool populated);
  // Asks for shared extents without objects.
  void AskForEmpty(Nanos now) { AskForEmptySince(now, now); }
  // Asks for all shared extents that nobody writes into.
  void AskForShared(Nanos now);
  // Takes all idle extents, each of which holds a slot and with it a page, and asks those who have
  // pages without objects for them.
  void AskForSlots(Nanos now);
  void Tick(Nanos now);
  void OnProcessDied(ProcessId process) { asked_at_.erase(process); }

 private:
  void TakeIdleSince(Nanos unused_since);
  void AskForEmptySince(Nanos now, Nanos empty_since);

  const Nanos take_back_after_;
  const Deps deps_;
  absl::btree_map<ProcessId, Nanos> asked_at_;  // For empty extents.
  Nanos next_shared_ = 0;
  Nanos next_slots_ = 0;
  Nanos next_tick_ = 0;
};

}  // namespace sheaf
