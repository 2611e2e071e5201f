// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// _core.Caller: the base of RemoteFunction and ActorMethod, with the method `remote`. A call takes
// its template from here, encodes the arguments and submits, without a frame of Python.
#pragma once

#include <cstdint>

#include "python_bindings/core/process.h"
#include "python_bindings/core/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

struct CallerObject {
  PyObject_HEAD TemplateHandle call_template;
  uint64_t generation;     // Of *counts when the template was made; 0: none yet.
  const uint64_t* counts;  // What the template depends on (process.h).
  ObjectHandle actor;      // Empty for functions.
  ObjectHandle carrier;    // Of functions that hold references: the first argument, whose value is
                           // the function.
  Py_ssize_t least;  // Positional arguments, between these two without a look at the signature.
  Py_ssize_t most;
  int returns;
  bool streaming;
  bool plain;  // Another language runs it: python_bindings/core/portable_codec.h.
  PyObject* weak_references;
};

extern PyTypeObject* caller_type;

// False: an exception is set.
bool AddCallerType(PyObject* module);

// Encodes the arguments of a call: `carrier` if there is one, `count` positional ones, then those
// of `names` (a tuple, or nullptr); `plain`: as every language reads them. False: an exception is
// set.
bool EncodeArguments(const CallRuntime& runtime, const ObjectHandle& carrier, PyObject* const* args,
                     Py_ssize_t count, PyObject* names, bool plain, ArgumentList* list);

}  // namespace sheaf::python
