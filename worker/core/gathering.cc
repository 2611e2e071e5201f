// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/gathering.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {

Gathering::Gathering(ProcessCore& core, std::span<const ObjectHandle> objects,
                     std::vector<ObjectView>* views)
    : core_(core), objects_(objects), views_(*views) {}

bool Gathering::Take(size_t i) {
  ObjectView& view = views_[i];
  if (view.handle) return true;
  if (!core_.TryView(objects_[i], &view)) return false;
  // What is asked for alone says so by itself; among others it is their bytes that are in its way.
  if (view.error != nullptr && view.error->kind == ErrorKind::kObjectStoreFull &&
      view.handle.entry()->state == ObjectState::kStore && objects_.size() > 1 && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat(view.error->message, " (this get holds all of its ", objects_.size(),
                     " objects at once: get fewer at a time)"));
  }
  return true;
}

void Gathering::Count(size_t i) {
  const ObjectEntry* const entry = objects_[i].entry();
  if (entry->state == ObjectState::kStore && counted_.insert(entry).second)
    counted_bytes_ += entry->size;
}

void Gathering::CheckTotal() {
  const uint64_t capacity = core_.store->capacity_bytes();
  if (counted_bytes_ <= capacity || !status_.ok()) return;
  status_ = absl::ResourceExhaustedError(absl::StrCat(
      "the values of this get have ", counted_bytes_, " bytes together, in ", counted_.size(),
      " objects, and the object store of this node holds ", capacity,
      " bytes: get fewer at a time, or give the node a larger store (--object-store-memory)"));
}

bool Gathering::Look() {
  const size_t size = objects_.size();
  for (; next_ < size; ++next_) {
    if (counting_) Count(next_);
    if (!Take(next_)) break;
  }
  if (next_ == size || !status_.ok()) return true;
  if (size == 1) return false;
  if (!std::exchange(counting_, true)) {
    for (size_t i = 0; i < size; ++i) Count(i);
  }
  CheckTotal();
  const uint64_t arrivals = core_.owner.resolver.arrivals();
  if (arrivals != arrivals_ && next_ + 1 < size && status_.ok()) {
    arrivals_ = arrivals;
    LookAhead();
    CheckTotal();
  }
  return !status_.ok();
}

void Gathering::LookAhead() {
  size_t coming = 0;
  uint64_t bytes = 0;
  const size_t end = std::min(objects_.size(), next_ + kAhead);
  for (size_t i = next_; i < end && coming < kObjects; ++i) {
    const ObjectEntry& entry = *objects_[i].entry();
    if (views_[i].handle || !entry.ready()) continue;
    Count(i);
    const bool fits = coming == 0 || bytes + entry.size <= kBytes;
    if (!fits && !core_.owner.resolver.IsHere(entry)) return;
    if (Take(i)) continue;
    ++coming;
    bytes += entry.size;
  }
}

}  // namespace sheaf
