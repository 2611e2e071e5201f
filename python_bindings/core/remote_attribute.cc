// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/remote_attribute.h"

#include <cstddef>

// In the stable ABI under these numbers since 3.12; CPython has them since 3.8.
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#ifndef Py_TPFLAGS_METHOD_DESCRIPTOR
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#endif
#if Py_LIMITED_API + 0 != 0 && Py_LIMITED_API + 0 < 0x030C0000
extern "C" PyAPI_FUNC(PyObject*)
    PyVectorcall_Call(PyObject* callable, PyObject* tuple, PyObject* dict);
#endif

namespace sheaf::python {
namespace {

using Vectorcall = PyObject* (*)(PyObject* callable, PyObject* const* args, size_t flagged_count,
                                 PyObject* names);

constexpr char kDoc[] =
    "Calls it in another process; gives an ObjectRef of the result at once.\n\n"
    "ObjectRefs among the arguments stand for their values. Errors of the function are raised by "
    "sheaf.get.\nTypeError: the arguments do not fit the signature, or one cannot be sent.";

// The descriptor, and what it gives for an instance.
struct Attribute {
  PyObject_HEAD Vectorcall vectorcall;
  PyObject* caller;  // nullptr in the descriptor.
};

RemoteCall remote_call = nullptr;
PyTypeObject* owner_type = nullptr;
PyTypeObject* bound_type = nullptr;

Attribute& In(PyObject* self) { return *reinterpret_cast<Attribute*>(self); }

Py_ssize_t CountOf(size_t flagged_count) {
  return static_cast<Py_ssize_t>(flagged_count & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
}
PyObject* OrNone(PyObject* names) {
  return names != nullptr && PyTuple_Size(names) == 0 ? nullptr : names;
}

PyObject* CallUnbound(PyObject*, PyObject* const* args, size_t flagged_count, PyObject* names) {
  const Py_ssize_t count = CountOf(flagged_count);
  if (count < 1 || PyObject_TypeCheck(args[0], owner_type) == 0) [[unlikely]] {
    PyErr_SetString(PyExc_TypeError, "remote is called on a remote function or method");
    return nullptr;
  }
  return remote_call(args[0], args + 1, count - 1, OrNone(names));
}

PyObject* CallBound(PyObject* self, PyObject* const* args, size_t flagged_count, PyObject* names) {
  return remote_call(In(self).caller, args, CountOf(flagged_count), OrNone(names));
}

PyObject* New(PyTypeObject* type, Vectorcall call, PyObject* caller) {
  Attribute* const made = PyObject_New(Attribute, type);
  if (made == nullptr) return nullptr;
  made->vectorcall = call;
  Py_XINCREF(caller);
  made->caller = caller;
  return reinterpret_cast<PyObject*>(made);
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_XDECREF(In(self).caller);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* Get(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Owned::Borrow(self).Release();
  return New(bound_type, CallBound, instance);
}

PyObject* Doc(PyObject* self, void*) {
  if (In(self).caller != nullptr) {
    Owned doc = Owned::Steal(PyObject_GetAttrString(In(self).caller, "__doc__"));
    if (doc && doc.get() != Py_None) return doc.Release();
    PyErr_Clear();
  }
  return NewText(kDoc);
}

// An attribute of what is called.
PyObject* OfCaller(PyObject* self, void* name) {
  return PyObject_GetAttrString(In(self).caller, static_cast<const char*>(name));
}
PyObject* Self(PyObject* self, void*) { return Owned::Borrow(In(self).caller).Release(); }

PyObject* Repr(PyObject* self) { return PyUnicode_FromFormat("<remote of %R>", In(self).caller); }

PyObject* Reduce(PyObject* self, PyObject*) {
  const Owned builtins = Owned::Steal(PyImport_ImportModule("builtins"));
  const Owned getattr =
      builtins ? Owned::Steal(PyObject_GetAttrString(builtins.get(), "getattr")) : Owned();
  if (!getattr) return nullptr;
  return Py_BuildValue("O(Os)", getattr.get(), In(self).caller, "remote");
}

char wrapped[] = "__wrapped__", signature[] = "_signature_of_call", name[] = "__name__",
     qualified[] = "__qualname__", module_name[] = "__module__";

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Attribute, vectorcall), READONLY, nullptr}, {}};
PyGetSetDef descriptor_attributes[] = {{"__doc__", Doc, nullptr, nullptr, nullptr}, {}};
PyGetSetDef bound_attributes[] = {{"__doc__", Doc, nullptr, nullptr, nullptr},
                                  {wrapped, OfCaller, nullptr, nullptr, wrapped},
                                  {"__signature__", OfCaller, nullptr, nullptr, signature},
                                  {name, OfCaller, nullptr, nullptr, name},
                                  {qualified, OfCaller, nullptr, nullptr, qualified},
                                  {module_name, OfCaller, nullptr, nullptr, module_name},
                                  {"__self__", Self, nullptr, nullptr, nullptr},
                                  {}};
PyMethodDef bound_methods[] = {{"__reduce__", Reduce, METH_NOARGS, nullptr}, {}};

PyType_Slot descriptor_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                                  {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                  {Py_tp_descr_get, reinterpret_cast<void*>(Get)},
                                  {Py_tp_members, members},
                                  {Py_tp_getset, descriptor_attributes},
                                  {}};
PyType_Slot bound_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                             {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                             {Py_tp_repr, reinterpret_cast<void*>(Repr)},
                             {Py_tp_members, members},
                             {Py_tp_getset, bound_attributes},
                             {Py_tp_methods, bound_methods},
                             {}};
PyType_Spec descriptor_spec = {"sheaf._core.RemoteAttribute", sizeof(Attribute), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                                   Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                               descriptor_slots};
PyType_Spec bound_spec = {
    "sheaf._core.Remote", sizeof(Attribute), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    bound_slots};

}  // namespace

bool AddRemoteAttribute(PyTypeObject* type, RemoteCall call) {
  remote_call = call;
  owner_type = type;
  bound_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&bound_spec));
  const Owned descriptor_type = Owned::Steal(PyType_FromSpec(&descriptor_spec));
  if (bound_type == nullptr || !descriptor_type) return false;
  const Owned descriptor = Owned::Steal(
      New(reinterpret_cast<PyTypeObject*>(descriptor_type.get()), CallUnbound, nullptr));
  return descriptor &&
         PyObject_SetAttrString(reinterpret_cast<PyObject*>(type), "remote", descriptor.get()) == 0;
}

}  // namespace sheaf::python
