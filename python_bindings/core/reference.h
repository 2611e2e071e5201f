// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf.ObjectRef: a Python object that counts one reference of an object. Written by hand, since
// making and dropping one is part of every call.
#pragma once

#include <cstdint>

#include "python_bindings/core/python.h"
#include "worker/owner/object_handle.h"

namespace sheaf::python {

struct ReferenceObject {
  PyObject_HEAD ObjectHandle handle;
  uint64_t generation;  // Of the runtime that it belongs to: another one must not see it.
  PyObject* weak_references;
};

extern PyTypeObject* reference_type;

inline bool IsReference(PyObject* object) {
  return Py_TYPE(object) == reference_type ||
         PyType_IsSubtype(Py_TYPE(object), reference_type) != 0;
}
inline ObjectHandle& HandleOf(PyObject* reference) {
  return reinterpret_cast<ReferenceObject*>(reference)->handle;
}
// Whether it belongs to the runtime of that number.
inline bool IsOf(uint64_t generation, PyObject* reference) {
  return reinterpret_cast<ReferenceObject*>(reference)->generation == generation;
}
// False: the reference is of a session that has ended, and ValueError is set.
bool IsCurrent(PyObject* reference);
// A new reference, or nullptr with an exception set.
PyObject* NewReference(ObjectHandle handle);
// Makes the type and adds it to `module`. False: an exception is set.
bool AddReferenceType(PyObject* module);

}  // namespace sheaf::python
