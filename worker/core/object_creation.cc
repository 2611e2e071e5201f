// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/object_creation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {

ObjectCreation::ObjectCreation(ProcessCore& core, const ObjectSpec& spec,
                               std::span<const ObjectHandle> nested)
    : core_(core), spec_(spec) {
  nested_.reserve(nested.size());
  for (const ObjectHandle& inner : nested) {
    core_.owner.references.Outgoing(*inner.entry());
    nested_.push_back(inner.id());
  }
  spec_.nested = nested_;
  if (spec_.size_bytes >= kDedicatedBytes) {
    // What was dropped before this goes first, so that its warm pages can be had again.
    core_.owner.references.CollectDropped(ReferenceTable::kIdleSlice);
    core_.store->Flush();
  }
  made_ = core_.store->Create(spec_);
  if (is_over()) [[likely]]
    return;
  core_.store->Flush();
  seen_ = core_.store->room_version();
}

bool ObjectCreation::Look() {
  if (is_over()) return true;
  if (core_.store->room_version() == seen_) return false;
  seen_ = core_.store->room_version();
  made_ = core_.store->Create(spec_);
  return is_over();
}

absl::StatusOr<MutableBuffer> ObjectCreation::End(const absl::Status& waited) {
  if (waited.ok()) return std::move(made_);
  core_.store->CancelCreate(spec_.id);
  if (!absl::IsDeadlineExceeded(waited)) return waited;
  return absl::ResourceExhaustedError(absl::StrCat("no room for ", spec_.size_bytes,
                                                   " bytes in the object store came free in time"));
}

}  // namespace sheaf
