// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/argument_fetch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {

ArgumentFetch::ArgumentFetch(ProcessCore& core, std::shared_ptr<CallExecution> call)
    : core_(core), call_(std::move(call)) {}

bool ArgumentFetch::Begin() {
  admitted_ = !call_->has_store_arguments() || core_.executor.argument_holds().Begin(*call_);
  if (admitted_) Pin();
  return admitted_ && missing_.empty();
}

bool ArgumentFetch::LookForAdmission() {
  if (admitted_ || call_->cancelled()) return true;
  admitted_ = core_.executor.argument_holds().IsAdmitted(*call_);
  if (admitted_) Pin();
  return admitted_;
}

bool ArgumentFetch::Look() {
  if (!LookForAdmission()) return false;
  if (missing_.empty() || call_->cancelled()) return true;
  if (!gathering_) WantMissing();
  return gathering_->Look();
}

// Pins what lies in the arena. The caller holds the arguments until the reply, so those that are
// there need no entry here.
void ArgumentFetch::Pin() {
  for (const StoreArgument* argument : call_->store_arguments()) {
    absl::StatusOr<StoredObject> found = core_.store->Get(argument->id, argument->location);
    if (!found.ok()) {
      missing_.push_back(argument);
      continue;
    }
    ObjectView view;
    for (ObjectId id : found->nested) {
      ObjectEntry* inner = core_.owner.references.Incoming({id, {}});
      core_.owner.references.AddUse(*inner);
      call_->held.push_back(inner);
      view.nested.emplace_back(inner);
    }
    view.bytes = found->bytes.view();
    view.keep = std::move(found->bytes);
    call_->SetArgument(argument, std::move(view));
  }
}

void ArgumentFetch::WantMissing() {
  ReferenceTable& references = core_.owner.references;
  for (const StoreArgument* argument : missing_) {
    ObjectEntry* known = references.Find(argument->id);
    if (known == nullptr) known = references.Incoming({argument->id, argument->location});
    handles_.emplace_back(known);
    core_.owner.resolver.Want(*known);
  }
  views_.resize(missing_.size());
  gathering_.emplace(core_, handles_, &views_);
}

absl::Status ArgumentFetch::End(const absl::Status& waited) {
  if (!admitted_) {
    return waited.ok() ? absl::CancelledError("cancelled while others held their arguments")
                       : waited;
  }
  if (!missing_.empty() && (!waited.ok() || call_->cancelled())) {
    const size_t reached = gathering_ ? gathering_->next() : 0;
    const size_t next = std::min(reached, missing_.size() - 1);
    return absl::NotFoundError(absl::StrCat("the argument ", missing_[next]->id.ToHex(),
                                            " could not be fetched: ", waited.message()));
  }
  if (gathering_ && !gathering_->status().ok()) return gathering_->status();
  for (size_t i = 0; i < missing_.size(); ++i) {
    if (const Error* const error = views_[i].error; error != nullptr)
      return error->kind == ErrorKind::kObjectStoreFull
                 ? absl::ResourceExhaustedError(error->message)
                 : absl::NotFoundError(error->message);
    call_->SetArgument(missing_[i], std::move(views_[i]));
  }
  if (call_->Unpack()) return absl::OkStatus();
  return absl::DataLossError(
      "an argument does not parse; caller and worker may be of different builds");
}

}  // namespace sheaf
