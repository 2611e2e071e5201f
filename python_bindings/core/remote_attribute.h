// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The attribute `remote` of a Caller. `f.remote(x)` calls it as a method, without an object in
// between; `f.remote` alone gives a callable that has the docstring, the name and the signature of
// what it calls: for help(), notebooks and editors.
#pragma once

#include "python_bindings/core/python.h"

namespace sheaf::python {

// What runs the call: as METH_FASTCALL | METH_KEYWORDS has it.
using RemoteCall = PyObject* (*)(PyObject* caller, PyObject* const* args, Py_ssize_t count,
                                 PyObject* names);

// Gives `type` the attribute; once per process. False: an exception is set.
bool AddRemoteAttribute(PyTypeObject* type, RemoteCall call);

}  // namespace sheaf::python
