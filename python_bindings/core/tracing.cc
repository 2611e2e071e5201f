// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/tracing.h"

#include <cstring>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "python_bindings/core/execution.h"
#include "python_bindings/core/process.h"
#include "worker/owner/task_record.h"

namespace sheaf::python {
namespace {

PythonFunction span_of_caller("sheaf._internal.tracing", "span_of_caller");
PythonFunction begin("sheaf._internal.tracing", "begin");
PythonFunction end("sheaf._internal.tracing", "end");

thread_local BelowSpan* here = nullptr;

Owned IsOfActor(const proto::TaskTemplate& spec) {
  return Owned::Steal(PyBool_FromLong(spec.kind() != proto::TaskTemplate::TASK));
}

// Not set: there is none, or an exception is set: that of a signal's handler, which came meanwhile.
TraceContext SpanOfCaller(const TemplateHandle& call) {
  TraceContext trace;
  const proto::TaskTemplate& spec = call->base ? call->base->spec : call->spec;
  const Owned name = Owned::Steal(NewText(call->name.empty() ? spec.name() : call->name));
  const Owned of_actor = IsOfActor(spec);
  const Owned found = name ? Owned::Steal(span_of_caller(name.get(), of_actor.get())) : Owned();
  char* bytes = nullptr;
  Py_ssize_t size = 0;
  if (found && found.get() != Py_None && PyBytes_AsStringAndSize(found.get(), &bytes, &size) == 0 &&
      static_cast<size_t>(size) == sizeof trace)
    std::memcpy(&trace, bytes, sizeof trace);
  return PyErr_Occurred() == nullptr ? trace : TraceContext();
}

}  // namespace

bool& FollowsSpans() {
  static bool follows = false;
  return follows;
}

Submission::Submission(Runtime& runtime, const TemplateHandle& call) : runtime_(runtime) {
  if (HasCoroutines() || FollowsSpans()) [[unlikely]]
    Enter(call);
}

void Submission::Enter(const TemplateHandle& call) {
  in_use_.emplace();
  outer_ = runtime_.current_origin();
  CallOrigin origin = HasCoroutines() ? OriginOfCoroutine() : *outer_;
  if (FollowsSpans()) {
    if (const TraceContext trace = SpanOfCaller(call); trace.is_set()) origin.trace = trace;
    is_interrupted_ = PyErr_Occurred() != nullptr;
  }
  runtime_.SetCurrentOrigin(origin);
}

Owned TraceOf(const Execution& execution) {
  const TraceContext trace = execution.origin().trace;
  if (!trace.is_set()) [[likely]]
    return Owned::Borrow(Py_None);
  const Owned context = Owned::Steal(NewBytes(AsBytes(trace)));
  const Owned name = Owned::Steal(NewText(execution.name()));
  if (!context || !name) return {};
  const Owned of_actor = IsOfActor(execution.spec());
  return Owned::Steal(PyTuple_Pack(3, context.get(), name.get(), of_actor.get()));
}

BelowSpan::BelowSpan(const Execution& execution) {
  const Owned trace = TraceOf(execution);
  if (trace.get() == Py_None) [[likely]]
    return;
  if (trace) begun_ = Owned::Steal(begin(trace.get()));
  if (!begun_) {
    // A cancellation meanwhile comes again in the call.
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
      ExpectInterrupt();
      PyErr_SetInterrupt();
    }
    PyErr_Clear();
  }
  if (begun_.get() == Py_None) begun_ = {};
  if (begun_) here = this;
}

void BelowSpan::Fail() {
  if (here == nullptr) return;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  here->error_ = Owned::Borrow(value);
  PyErr_Restore(type, value, traceback);
}

void BelowSpan::Excuse() { here = nullptr; }

BelowSpan::~BelowSpan() {
  if (!begun_) [[likely]]
    return;
  here = nullptr;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const Owned ended = Owned::Steal(end(begun_.get(), error_ ? error_.get() : Py_None));
  PyErr_Restore(type, value, traceback);
}

}  // namespace sheaf::python
