// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/part_gathering.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

constexpr int kMostLostCopies = 10;  // Parts that had come, and were lost before they were read.

}  // namespace

PartGathering::PartGathering(ProcessCore& core, std::span<const ObjectPart> parts,
                             std::vector<ObjectView>* views)
    : core_(core), parts_(parts), views_(*views), fetched_(parts.size()) {
  views_.clear();
  views_.resize(parts.size());
}

bool PartGathering::Look() {
  TakeArrived();
  FetchMore();
  if (!status_.ok()) return true;
  return coming_.empty() && looked_at_ == parts_.size() && ViewInPlace();
}

void PartGathering::TakeArrived() {
  std::erase_if(coming_, [&](Coming& coming) {
    ObjectView& view = views_[coming.index];
    if (!core_.TryView(coming.copy, &view)) return false;
    const ObjectPart& part = parts_[coming.index];
    // The copy is lost, which the object need not be.
    const bool again = view.error != nullptr && view.error->kind == ErrorKind::kObjectLost &&
                       part.object.entry()->state != ObjectState::kError &&
                       ++lost_copies_ <= kMostLostCopies;
    if (again) {
      view = {};
      coming.copy = core_.parts.Fetch(*part.object.entry(), part.offset, part.bytes);
      return false;
    }
    fetched_[coming.index] = true;
    coming_bytes_ -= part.bytes;
    return true;
  });
}

bool PartGathering::IsHere(const ObjectPart& part) {
  const ObjectEntry& entry = *part.object.entry();
  return entry.state == ObjectState::kValue ||
         (entry.state == ObjectState::kStore && core_.store->Has(entry.location));
}

void PartGathering::FetchMore() {
  const uint64_t capacity = core_.store->capacity_bytes();
  for (; looked_at_ < parts_.size(); ++looked_at_) {
    const ObjectPart& part = parts_[looked_at_];
    if (fetched_[looked_at_]) continue;
    if (IsHere(part)) {
      in_place_.push_back(looked_at_);
      continue;
    }
    const bool room = coming_.size() < kParts && coming_bytes_ + part.bytes <= kBytes;
    if (!room && !coming_.empty()) return;
    if (part.bytes > capacity || fetched_bytes_ > capacity - part.bytes) {
      status_ = absl::ResourceExhaustedError(absl::StrCat(
          "the ", parts_.size(), " parts that are read together have more than ", fetched_bytes_,
          " bytes that lie elsewhere, and the object store of this node holds ", capacity,
          " bytes: read fewer at a time"));
      return;
    }
    fetched_bytes_ += part.bytes;
    coming_.push_back(
        {looked_at_, core_.parts.Fetch(*part.object.entry(), part.offset, part.bytes)});
    coming_bytes_ += part.bytes;
  }
}

// False: some are not here any more. Then none is held, and those are fetched.
bool PartGathering::ViewInPlace() {
  size_t missing = parts_.size();
  for (const size_t i : in_place_) {
    if (core_.TryViewPart(parts_[i], &views_[i])) continue;
    missing = i;
    break;
  }
  if (missing == parts_.size()) return true;
  for (const size_t i : in_place_) views_[i] = {};
  in_place_.clear();
  // What is here, but has no such part, is refused where parts are fetched.
  if (IsHere(parts_[missing])) {
    const ObjectPart& part = parts_[missing];
    coming_.push_back({missing, core_.parts.Fetch(*part.object.entry(), part.offset, part.bytes)});
    coming_bytes_ += part.bytes;
    fetched_[missing] = true;
  }
  looked_at_ = 0;
  return false;
}

const ObjectPart& PartGathering::next() const {
  return parts_[coming_.empty() ? std::min(looked_at_, parts_.size() - 1) : coming_.front().index];
}

}  // namespace sheaf
