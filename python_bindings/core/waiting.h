// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Waiting for references.
//
// sheaf.wait: a program that takes its results as they come waits a thousand times on what is left
// of a thousand references, so nothing counts a reference of each, or builds a list of those that
// stay.
//
// await: objects that are ready wake an event loop by one descriptor, written once however many
// they are, and without the GIL, so that no thread of the runtime waits for Python code.
#pragma once

#include <nanobind/nanobind.h>

#include "python_bindings/core/python.h"

namespace sheaf::python {

// wait_ready(list, num_returns, timeout, fetch_local): (ready, not ready). The list must be the
// caller's alone: its references hold the objects while the GIL is free, and it becomes the list of
// those that are not ready. NotImplemented: not all items are references; the list is as it was.
PyObject* Wait(PyObject* module, PyObject* const* args, Py_ssize_t count);

void BindReadyQueue(nanobind::module_& module);

}  // namespace sheaf::python
