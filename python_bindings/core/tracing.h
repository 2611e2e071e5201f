// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The user's spans (OpenTelemetry): a call that is made below one is in its trace, and so is what
// user code does in that call, on any node. All with the GIL. sheaf/_internal/tracing.py speaks with
// the package opentelemetry.
#pragma once

#include <optional>

#include "python_bindings/core/process.h"
#include "python_bindings/core/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

// Whether calls look for a span of the user's: the package is imported, or a hook has run.
bool& FollowsSpans();

// While one lives, what this thread submits is of the call whose coroutine runs here, if one does,
// and below the user's span, if there is one.
class Submission {
 public:
  // `call`: the template of what is submitted.
  Submission(Runtime& runtime, const TemplateHandle& call);
  ~Submission() {
    if (outer_) [[unlikely]]
      runtime_.SetCurrentOrigin(*outer_);
  }
  // False: an exception is set, of a signal's handler; nothing is to be submitted.
  bool ok() const { return !is_interrupted_; }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

 private:
  void Enter(const TemplateHandle& call);
  Runtime& runtime_;
  bool is_interrupted_ = false;
  std::optional<RuntimeInUse> in_use_;  // While the user's code says what its span is, and after.
  std::optional<CallOrigin> outer_;     // nullopt: nothing was changed.
};

// The span that all that the call does is below, as tracing.begin takes it: (its context, the call's
// name, whether it is an actor's); None where the call is in no trace.
Owned TraceOf(const Execution& execution);

// While one lives, this thread is below that span. One at a time on a thread.
class BelowSpan {
 public:
  explicit BelowSpan(const Execution& execution);
  // The one of this thread, if there is one, ends with the exception that is set, which stays.
  static void Fail();
  // It ends without one, whatever comes: an actor that wants to end has not failed.
  void Excuse();
  ~BelowSpan();
  BelowSpan(const BelowSpan&) = delete;
  BelowSpan& operator=(const BelowSpan&) = delete;

 private:
  Owned begun_, error_;
};

}  // namespace sheaf::python
