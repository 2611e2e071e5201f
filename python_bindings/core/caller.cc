// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/caller.h"

#include <cstddef>
#include <new>
#include <optional>
#include <string>

#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"
#include "python_bindings/core/remote_attribute.h"
#include "python_bindings/core/template.h"
#include "python_bindings/core/tracing.h"
#include "worker/limits.h"

namespace sheaf::python {

PyTypeObject* caller_type = nullptr;

namespace {

constexpr size_t kLeastStored = 4 * 1024;
constexpr size_t kManyBytes = 1024 * 1024;

PythonFunction wrap_stream("sheaf.object_ref", "wrap_stream");

CallerObject& In(PyObject* self) { return *reinterpret_cast<CallerObject*>(self); }

PyObject* New(PyTypeObject* type, PyObject*, PyObject*) {
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self == nullptr) return nullptr;
  new (&In(self).call_template) TemplateHandle;
  new (&In(self).actor) ObjectHandle;
  new (&In(self).carrier) ObjectHandle;
  In(self).most = -1;  // Each call is prepared.
  In(self).counts = &RuntimeGenerationCell();
  return self;
}

void Dealloc(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  if (In(self).weak_references != nullptr) PyObject_ClearWeakRefs(self);
  In(self).call_template.~TemplateHandle();
  In(self).actor.~ObjectHandle();
  In(self).carrier.~ObjectHandle();
  const auto release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

// Puts words that programs look for in front of the TypeError that is set.
void SayItIsTheArgument() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (type != PyExc_TypeError) return PyErr_Restore(type, value, trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const Owned said = Owned::Steal(PyObject_Str(value));
  const Owned args = Owned::Steal(
      said ? Py_BuildValue("(N)",
                           PyUnicode_FromFormat("Could not serialize the argument: %U", said.get()))
           : nullptr);
  if (!args || PyObject_SetAttrString(value, "args", args.get()) != 0) PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

// `plain`: of which it is the argument of that number; 0: in Python's own form.
bool EncodeArgument(const CallRuntime& runtime, PyObject* argument, Py_ssize_t plain, Value* value,
                    ArgumentList* list) {
  if (Py_TYPE(argument) == reference_type) {
    if (!IsCurrent(argument)) return false;
    list->AddReference(HandleOf(argument));
    return true;
  }
  value->Clear();
  if (plain > 0 ? !value->EncodePlain(argument, "argument " + std::to_string(plain))
                : !value->Encode(argument)) [[unlikely]] {
    SayItIsTheArgument();
    return false;
  }
  if (runtime.get() == nullptr) [[unlikely]]
    return false;
  const size_t size = value->size();
  // Of very many, those that are not small go to the store at once: the list has a bound.
  if (size > kSmallValueBytes || (size > kLeastStored && list->bytes() > kManyBytes)) {
    absl::StatusOr<ObjectHandle> put = PutValue(*runtime.get(), *value);
    if (!put.ok()) return RaiseStatus(put.status(), ErrorKind::kObjectStoreFull), false;
    list->AddReference(*put);
  } else if (value->nested().empty()) {
    value->CopyTo(list->AddValueInPlace(size));
  } else {
    std::string bytes(size, '\0');
    value->CopyTo(bytes.data());
    list->AddValue(bytes, value->nested());
  }
  return true;
}

absl::StatusOr<ObjectHandle> SubmitOne(Runtime& runtime, const TemplateHandle& spec,
                                       const ObjectHandle& actor, ArgumentList&& list) {
  return actor ? runtime.SubmitOneToActor(actor, spec, std::move(list))
               : runtime.SubmitOne(spec, std::move(list));
}
absl::StatusOr<std::vector<ObjectHandle>> SubmitAny(Runtime& runtime, const TemplateHandle& spec,
                                                    const ObjectHandle& actor,
                                                    ArgumentList&& list) {
  return actor ? runtime.SubmitToActor(actor, spec, std::move(list))
               : runtime.Submit(spec, std::move(list));
}

// `submit` with the GIL, which is cheaper, unless it may have to wait.
template <class Function>
auto SubmitWith(Function submit, const CallerObject& caller, Runtime& runtime, ArgumentList list) {
  if (list.bytes() <= kSmallValueBytes) [[likely]] {
    const WithoutWaiting now;
    auto result = submit(runtime, caller.call_template, caller.actor, std::move(list));
    if (!absl::IsUnavailable(result.status())) [[likely]]
      return result;
  }
  const TemplateHandle spec = caller.call_template;
  const ObjectHandle actor = caller.actor;
  std::optional<WithBoundedWaits> bounded;
  const RuntimeInUse in_use;
  if (actor && RunsEventLoop()) bounded.emplace();
  const WithoutGil free;
  return submit(runtime, spec, actor, std::move(list));
}

PyObject* Submit(PyObject* self, Runtime& runtime, ArgumentList list) {
  const CallerObject& caller = In(self);
  const Submission submission(runtime, caller.call_template);
  if (!submission.ok()) [[unlikely]]
    return nullptr;
  if (caller.returns == 1) [[likely]] {
    absl::StatusOr<ObjectHandle> result = SubmitWith(SubmitOne, caller, runtime, std::move(list));
    if (!result.ok()) return RaiseStatus(result.status(), ErrorKind::kPendingCallsLimit);
    return NewReference(*std::move(result));
  }
  absl::StatusOr<std::vector<ObjectHandle>> results =
      SubmitWith(SubmitAny, caller, runtime, std::move(list));
  if (!results.ok()) return RaiseStatus(results.status(), ErrorKind::kPendingCallsLimit);
  if (caller.streaming) {
    const Owned stream = Owned::Steal(NewReference(std::move(results->front())));
    return stream ? wrap_stream(stream.get()) : nullptr;
  }
  if (caller.returns == 0) return Owned::Borrow(Py_None).Release();
  Owned all = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(results->size())));
  for (size_t i = 0; all && i < results->size(); ++i) {
    PyObject* const reference = NewReference(std::move((*results)[i]));
    if (reference == nullptr) return nullptr;
    PyList_SetItem(all.get(), static_cast<Py_ssize_t>(i), reference);
  }
  return all.Release();
}

// self._prepare(count, names): makes the template and compares the arguments with the signature.
bool Prepare(PyObject* self, Py_ssize_t count, PyObject* names) {
  static PyObject* const name = PyUnicode_InternFromString("_prepare");
  const Owned number = Owned::Steal(PyLong_FromSsize_t(count));
  PyObject* const list[] = {self, number.get(), names == nullptr ? Py_None : names};
  return static_cast<bool>(Owned::Steal(
      UnlessPythonEnds([&] { return PyObject_VectorcallMethod(name, list, 3, nullptr); })));
}

PyObject* Remote(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const CallRuntime runtime;
  if (runtime.get() == nullptr) return nullptr;
  const CallerObject& caller = In(self);
  if (caller.generation != *caller.counts || names != nullptr || count < caller.least ||
      count > caller.most) [[unlikely]] {
    if (!Prepare(self, count, names)) return nullptr;
    if (caller.generation != *caller.counts) {
      PyErr_SetString(PyExc_RuntimeError, "sheaf was shut down during this call");
      return nullptr;
    }
  }
  ArgumentList list;
  if (!EncodeArguments(runtime, caller.carrier, args, count, names, caller.plain, &list) ||
      runtime.get() == nullptr)
    return nullptr;
  return Submit(self, *runtime.get(), std::move(list));
}

// _bind(template | None, actor | None, returns, streaming, least, most, carrier | None, plain,
// inherits)
PyObject* Bind(PyObject* self, PyObject* args) {
  PyObject* made = nullptr;
  PyObject* actor = nullptr;
  int returns = 1;
  int streaming = 0;
  Py_ssize_t least = 0;
  Py_ssize_t most = 0;
  PyObject* carrier = Py_None;
  int plain = 0;
  int inherits = 0;
  if (PyArg_ParseTuple(args, "OOipnnO|pp:_bind", &made, &actor, &returns, &streaming, &least, &most,
                       &carrier, &plain, &inherits) == 0)
    return nullptr;
  TemplateHandle handle;
  if (made != Py_None && !TemplateFrom(made, &handle)) return nullptr;
  for (PyObject* const reference : {actor, carrier}) {
    if (reference == Py_None) continue;
    if (IsReference(reference)) {
      if (!IsCurrent(reference)) return nullptr;
      continue;
    }
    PyErr_SetString(PyExc_TypeError, "_bind: the actor and the carrier are an ObjectRef or None");
    return nullptr;
  }
  CallerObject& caller = In(self);
  caller.counts = inherits != 0 ? &CallGenerationCell() : &RuntimeGenerationCell();
  caller.generation = handle ? *caller.counts : 0;
  caller.call_template = std::move(handle);
  caller.actor = actor == Py_None ? ObjectHandle() : HandleOf(actor);
  caller.carrier = carrier == Py_None ? ObjectHandle() : HandleOf(carrier);
  caller.returns = streaming != 0 ? -1 : returns;
  caller.streaming = streaming != 0;
  caller.plain = plain != 0;
  caller.least = least;
  caller.most = most;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"_bind", Bind, METH_VARARGS, nullptr}, {}};
PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CallerObject, weak_references), READONLY, nullptr},
    {}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(New)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_doc, const_cast<char*>("What can be called in another process.")},
                       {}};
PyType_Spec spec = {"sheaf._core.Caller", sizeof(CallerObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

bool EncodeArguments(const CallRuntime& runtime, const ObjectHandle& carrier, PyObject* const* args,
                     Py_ssize_t count, PyObject* names, bool plain, ArgumentList* list) {
  Value value;
  Py_ssize_t total = count + (names != nullptr ? PyTuple_Size(names) : 0);
  if (static_cast<size_t>(total) > kMaxArguments) {
    PyErr_Format(PyExc_ValueError, "%zd arguments, at most %zu: pass them as one list", total,
                 kMaxArguments);
    return false;
  }
  if (names != nullptr && PyTuple_Size(names) > 0) {
    if (!value.Encode(names)) return false;
    std::string head = {static_cast<char>(kOutOfBandMark), static_cast<char>(kVersionNames)};
    const size_t begin = head.size();
    head.resize(begin + value.size());
    value.CopyTo(head.data() + begin);
    list->AddValue(head);
  }
  if (carrier) list->AddReference(carrier);
  for (Py_ssize_t i = 0; i < total; ++i) {
    if (!EncodeArgument(runtime, args[i], plain ? i + 1 : 0, &value, list)) return false;
  }
  return true;
}

bool AddCallerType(PyObject* module) {
  caller_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return caller_type != nullptr && AddRemoteAttribute(caller_type, Remote) &&
         PyModule_AddObjectRef(module, "Caller", reinterpret_cast<PyObject*>(caller_type)) == 0;
}

}  // namespace sheaf::python
