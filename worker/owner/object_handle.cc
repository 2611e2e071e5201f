// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/object_handle.h"

#include "worker/owner/object_entry.h"

namespace sheaf {

ObjectId ObjectHandle::id() const { return entry_ == nullptr ? ObjectId{} : entry_->id; }

void ObjectHandle::Retain() {
  if (entry_ == nullptr || entry_->handles.fetch_add(1, std::memory_order_relaxed) != 0) return;
  ++entry_->held_by_handles;
  ++entry_->drops->held;
}

void ObjectHandle::Drop() {
  // What was the last one holds the entry until it is taken from the queue. Of any other one the
  // entry may be gone behind the decrement.
  DropQueue* drops = entry_->drops;
  if (entry_->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) drops->Push(entry_);
}

}  // namespace sheaf
