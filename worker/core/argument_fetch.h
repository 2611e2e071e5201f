// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The arguments of one call that starts, as far as they lie in a store: first it must be allowed to
// hold them (executor/argument_holds.h), then those in the node's arena are pinned, and the others
// are brought there, for as long as that takes. Guarded by the runtime's lock.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/core/gathering.h"
#include "worker/core/process_core.h"

namespace sheaf {

class ArgumentFetch {
 public:
  ArgumentFetch(ProcessCore& core, std::shared_ptr<CallExecution> call);
  // Gathering refers to what is in it.
  ArgumentFetch(const ArgumentFetch&) = delete;
  ArgumentFetch& operator=(const ArgumentFetch&) = delete;

  // Asks whether the call may hold its arguments, and pins them if it may. True: all are there, and
  // nothing is to be waited for; so it is for calls without any. To be called once, at first.
  bool Begin();
  // The next two are to be called when something has changed. True: it may hold them; or it was
  // cancelled.
  bool LookForAdmission();
  // True: nothing is to be waited for any more. Begins with LookForAdmission.
  bool Look();
  // Once Begin or Look has said true, or `waited` says why nobody waits for that any more: gives
  // the call its arguments. kNotFound: one is lost for good; the message names it.
  // kResourceExhausted: together they are more than the store holds. kCancelled: the call is not to
  // run.
  absl::Status End(const absl::Status& waited);

  const std::shared_ptr<CallExecution>& call() const { return call_; }
  bool admitted() const { return admitted_; }

 private:
  void Pin();
  void WantMissing();

  ProcessCore& core_;
  const std::shared_ptr<CallExecution> call_;
  bool admitted_ = false;
  std::vector<const StoreArgument*> missing_;  // Of one that was admitted.
  std::vector<ObjectHandle> handles_;          // Of these; what follows refers to them.
  std::vector<ObjectView> views_;
  std::optional<Gathering> gathering_;
};

}  // namespace sheaf
