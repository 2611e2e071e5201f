// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/reference.h"

#include <cstddef>
#include <new>
#include <string>

#include "python_bindings/core/process.h"

namespace sheaf::python {

PyTypeObject* reference_type = nullptr;

namespace {

PythonFunction await_reference("sheaf.object_ref", "await_reference");
PythonFunction future_of("sheaf.object_ref", "future_of");
PythonFunction reduce_reference("sheaf.lent_references", "reduce_reference");
PythonFunction in_html("sheaf._internal.notebook", "reference");

PyObject* NewByUser(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError,
                  "an ObjectRef is not made by hand: sheaf.put(value) and f.remote() give them");
  return nullptr;
}

void Dealloc(PyObject* self) {
  auto* reference = reinterpret_cast<ReferenceObject*>(self);
  if (reference->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  reference->handle.~ObjectHandle();
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

Py_hash_t Hash(PyObject* self) {
  const ObjectId id = HandleOf(self).id();
  const auto hash = static_cast<Py_hash_t>((id.maker_bits * 0x9e37'79b9'7f4a'7c15) ^
                                           id.sequence_bits ^ id.sequence_bits >> 16);
  return hash == -1 ? -2 : hash;
}

PyObject* Compare(PyObject* self, PyObject* other, int operation) {
  if (!IsReference(other) || (operation != Py_EQ && operation != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  // Ids begin anew in each session.
  const bool equal = HandleOf(self).id() == HandleOf(other).id() &&
                     reinterpret_cast<ReferenceObject*>(self)->generation ==
                         reinterpret_cast<ReferenceObject*>(other)->generation;
  return PyBool_FromLong(equal == (operation == Py_EQ));
}

PyObject* Hex(PyObject* self, PyObject*) { return NewText(HandleOf(self).id().ToHex()); }
PyObject* InMemory(PyObject* self, PyObject*) { return NewBytes(HandleOf(self).id().Binary()); }
PyObject* Repr(PyObject* self) { return NewText("ObjectRef(" + HandleOf(self).id().ToHex() + ")"); }
PyObject* IsNil(PyObject* self, PyObject*) { return PyBool_FromLong(!HandleOf(self)); }
PyObject* TaskIdOf(PyObject* self, PyObject*) {
  return NewText(TaskOf(HandleOf(self).id()).ToHex());
}
PyObject* Await(PyObject* self) { return await_reference(self); }
PyObject* Future(PyObject* self, PyObject*) { return future_of(self); }
PyObject* InHtml(PyObject* self, PyObject*) { return in_html(self); }
PyObject* ClassItem(PyObject* type, PyObject*) { return Owned::Borrow(type).Release(); }
// Outside of arguments, results and put values, whose pickler takes references itself.
PyObject* Reduce(PyObject* self, PyObject*) { return reduce_reference(self); }
PyObject* Same(PyObject* self, PyObject*) { return Owned::Borrow(self).Release(); }

PyMethodDef methods[] = {
    {"hex", Hex, METH_NOARGS, "Returns the object's id as 32 hexadecimal digits."},
    {"_in_memory", InMemory, METH_NOARGS, "Returns the id's bytes as they lie in memory."},
    {"is_nil", IsNil, METH_NOARGS, "Returns whether it names no object."},
    {"_task_hex", TaskIdOf, METH_NOARGS,
     "Returns the id of the task that makes the object, as 32 hexadecimal digits."},
    {"future", Future, METH_NOARGS,
     "Returns a concurrent.futures.Future that ends with the object's value, or its error."},
    {"_repr_html_", InHtml, METH_NOARGS, "How it looks in a notebook."},
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {"__copy__", Same, METH_NOARGS, nullptr},
    {"__deepcopy__", Same, METH_O, nullptr},
    {"__class_getitem__", ClassItem, METH_O | METH_CLASS,
     "ObjectRef[int] is ObjectRef, for annotations."},
    {}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET,
                          offsetof(ReferenceObject, weak_references), READONLY, nullptr},
                         {}};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(NewByUser)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_hash, reinterpret_cast<void*>(Hash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(Compare)},
    {Py_tp_repr, reinterpret_cast<void*>(Repr)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_am_await, reinterpret_cast<void*>(Await)},
    {Py_tp_doc,
     const_cast<char*>(
         "A reference to an object: the future result of a call, or a value that was put.\n\n"
         "It may be awaited. The object lives as long as somebody holds a reference. "
         "Thread-safe.")},
    {}};
PyType_Spec spec = {"sheaf.ObjectRef", sizeof(ReferenceObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool IsCurrent(PyObject* reference) {
  const uint64_t generation = RuntimeGeneration();  // 0: there is none, and none of its references.
  if (generation != 0 && IsOf(generation, reference)) [[likely]]
    return true;
  PyErr_Format(PyExc_ValueError,
               "%R is of a session that has ended: sheaf.shutdown() was called since", reference);
  return false;
}

PyObject* NewReference(ObjectHandle handle) {
  ReferenceObject* const made = PyObject_New(ReferenceObject, reference_type);
  if (made == nullptr) return nullptr;
  new (&made->handle) ObjectHandle(std::move(handle));
  made->generation = RuntimeGeneration();
  made->weak_references = nullptr;
  return reinterpret_cast<PyObject*>(made);
}

bool AddReferenceType(PyObject* module) {
  reference_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return reference_type != nullptr &&
         PyModule_AddObjectRef(module, "ObjectRef", reinterpret_cast<PyObject*>(reference_type)) ==
             0;
}

}  // namespace sheaf::python
