// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the owner of a streaming call knows of its items.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/container/btree_map.h"
#include "base/ids.h"

namespace sheaf {

struct ObjectEntry;

struct StreamState {
  // Not yet handed out: one use each. items[0] has index `handed_out`.
  std::deque<ObjectEntry*> items;
  uint64_t handed_out = 0;
  uint64_t total = 0;  // Items that the consumer gets, without a last one that says an error.
  bool ended = false;  // `total` is known.

  // By index, those in a store, for as long as anything holds them: the call can make them again.
  absl::btree_map<uint64_t, ObjectEntry*> stored;
  absl::btree_map<uint64_t, ObjectEntry*> lost;  // Pending: a run shall bring them.

  // Of the run that is under way.
  ProcessId producer;
  // It was not asked for all that is lost: it is stopped, and another one, which has its retry
  // already, follows.
  bool again = false;

  uint64_t received() const { return handed_out + items.size(); }
};

}  // namespace sheaf
