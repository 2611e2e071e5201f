// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One call inside a worker, on Python's side: its arguments as objects, its result or exception on
// the way out. With the GIL.
#pragma once

#include <memory>
#include <vector>

#include "python_bindings/core/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

// Arguments of a call, positional ones first; `names` are those of the last ones, or nothing.
struct CallArguments {
  std::vector<Owned> values;
  Owned names;
};
// False: an exception is set.
bool DecodeArguments(const Execution& execution, CallArguments* out);

// Ends the call with what the function gave: one value, several for num_returns above 1, or the
// items of a generator. Whatever goes wrong becomes the call's failure.
void ReturnResult(Execution& execution, PyObject* result);
// Ends the call, or its results from `first` on, with the exception that is set, and clears it.
void FailWithException(Execution& execution, size_t first = 0);

// One item of a streaming call. False: an exception is set. *wanted: somebody takes more.
bool YieldItem(Execution& execution, PyObject* item, bool* wanted);

// The call that this thread executes, or nullptr.
Execution*& CurrentExecution();

// The constructor of an async actor, which runs on its loop's thread while the one that executes the
// call waits for it; or nullptr. With the GIL.
Execution*& ConstructorElsewhere();
// The actor that this process is, or nil. With the GIL.
ActorId& ActorOfProcess();

// Where the actor of this process, or the task that it began last, was placed.
const proto::Strategy& ProcessStrategy();
// A task, or the constructor of an actor, begins in this process.
void SetProcessStrategy(const proto::Strategy& strategy);

// Whether this process is an actor whose calls are coroutines. With the GIL.
bool& HasCoroutines();
// Of the call whose coroutine runs on this thread; its task is nil: none does.
CallOrigin OriginOfCoroutine();

// The call that runs here, on this thread or as a coroutine of its event loop: a dict of task,
// actor, name, attempt and function, and whether somebody asked for its end. Outside of calls: a
// dict of the process's actor, or an empty one, and false.
PyObject* DescribeCurrentExecution();
bool IsCurrentExecutionCancelled();

// _core.Execution: a call that runs on as a coroutine. Methods: begin(function, actor, arguments),
// finish(result), fail(exception), item(value), end(), task(), cancelled().
PyObject* NewExecutionObject(std::shared_ptr<Execution> execution);
bool AddExecutionType(PyObject* module);

}  // namespace sheaf::python
