// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/objects.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "python_bindings/core/caller.h"
#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"
#include "python_bindings/core/template.h"
#include "python_bindings/core/tracing.h"
#include "python_bindings/core/waiting.h"
#include "worker/get_briefly.h"
#include "worker/wire.h"

namespace sheaf::python {
namespace {

PythonFunction get_other("sheaf.object_ref", "get_other");

// The value of a view, or nullptr with the exception that it stands for.
PyObject* ValueOf(const ObjectView& view) {
  if (view.error != nullptr) return RaiseError(*view.error);
  return DecodeValue(view);
}

PyObject* GetOne(Runtime& runtime, PyObject* reference, Nanos deadline) {
  if (!IsCurrent(reference)) return nullptr;
  const ObjectHandle handle = HandleOf(reference);
  ObjectView soon;
  bool here = false;
  {
    const RuntimeInUse in_use;  // With the GIL.
    here = GetBriefly(runtime, handle, &soon);
  }
  if (here) return ValueOf(soon);
  std::vector<ObjectView> views;
  absl::Status status;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    status = runtime.Get({&handle, 1}, deadline, &views);
  }
  if (!status.ok()) [[unlikely]]
    return RaiseStatus(status, ErrorKind::kObjectStoreFull);
  return ValueOf(views[0]);
}

PyObject* GetAll(Runtime& runtime, PyObject* list, Nanos deadline) {
  const Py_ssize_t count = PyList_Size(list);
  std::vector<ObjectHandle> handles;
  handles.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyList_GetItem(list, i);
    if (!IsReference(item)) {
      return PyErr_Format(PyExc_TypeError,
                          "sheaf.get takes an ObjectRef or a list of them; item %zd is %R", i,
                          item);
    }
    if (!IsCurrent(item)) return nullptr;
    handles.push_back(HandleOf(item));
  }
  std::vector<ObjectView> views;
  absl::Status status;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    status = runtime.Get(handles, deadline, &views);
  }
  if (!status.ok()) return RaiseStatus(status, ErrorKind::kObjectStoreFull);
  Owned values = Owned::Steal(PyList_New(count));
  for (Py_ssize_t i = 0; values && i < count; ++i) {
    PyObject* const value = ValueOf(views[static_cast<size_t>(i)]);
    if (value == nullptr) return nullptr;
    PyList_SetItem(values.get(), i, value);
    views[static_cast<size_t>(i)] = {};
  }
  return values.Release();
}

// The first argument by position or as `first`, and that named `second`, where it is not nullptr;
// nullptr: it was not given. False: an exception is set.
bool TakeArguments(PyObject* const* args, Py_ssize_t count, PyObject* names, const char* first,
                   const char* second, PyObject** first_out, PyObject** second_out) {
  if (count > 0) *first_out = args[0];
  const Py_ssize_t given = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < given; ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    if (second != nullptr && PyUnicode_CompareWithASCIIString(name, second) == 0) {
      *second_out = args[count + i];
    } else if (count == 0 && PyUnicode_CompareWithASCIIString(name, first) == 0) {
      *first_out = args[i];
    } else {
      PyErr_Format(PyExc_TypeError, "there is no argument '%U': want %s", name,
                   second == nullptr ? first : second);
      return false;
    }
  }
  return true;
}

PyObject* Get(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* refs = count > 0 ? args[0] : nullptr;
  PyObject* timeout = nullptr;
  if (names != nullptr &&
      !TakeArguments(args, count, names, "object_refs", "timeout", &refs, &timeout))
    return nullptr;
  if (refs == nullptr || count > 1) {
    PyErr_SetString(PyExc_TypeError,
                    "get(object_refs, *, timeout=None) takes one positional argument: an ObjectRef "
                    "or a list of them");
    return nullptr;
  }
  Nanos deadline = kForever;
  if (timeout != nullptr && !DeadlineFrom(timeout, &deadline)) return nullptr;
  Runtime* const runtime = RequireRuntimeOf(refs);
  if (runtime == nullptr) return nullptr;
  if (Py_TYPE(refs) == reference_type) [[likely]]
    return GetOne(*runtime, refs, deadline);
  if (PyList_Check(refs) != 0) return GetAll(*runtime, refs, deadline);
  return get_other(refs, timeout == nullptr ? Py_None : timeout);
}

PyObject* Put(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* value = count == 1 ? args[0] : nullptr;
  if (names != nullptr) [[unlikely]] {
    if (!TakeArguments(args, count, names, "value", nullptr, &value, nullptr)) return nullptr;
  }
  if (value == nullptr || count > 1) {
    PyErr_Format(PyExc_TypeError, "put(value) takes one value, got %zd", count);
    return nullptr;
  }
  const CallRuntime runtime;
  if (runtime.get() == nullptr) return nullptr;
  if (Py_TYPE(value) == reference_type) [[unlikely]] {
    PyErr_SetString(PyExc_TypeError,
                    "Calling 'put' on an ray.ObjectRef is not allowed: put takes a value, got an "
                    "ObjectRef; pass it on as it is, or put [ref]");
    return nullptr;
  }
  Value encoded;
  if (!encoded.Encode(value) || runtime.get() == nullptr) return nullptr;
  absl::StatusOr<ObjectHandle> handle = PutValue(*runtime.get(), encoded);
  if (!handle.ok()) return RaiseStatus(handle.status(), ErrorKind::kObjectStoreFull);
  return NewReference(*std::move(handle));
}

// next_item(stream, timeout): the reference of the next item, or None at the end.
PyObject* NextItem(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) return nullptr;
  Nanos deadline = kForever;
  if (count != 2 || !IsReference(args[0]) || !IsCurrent(args[0]) ||
      !DeadlineFrom(args[1], &deadline))
    return nullptr;
  const ObjectHandle stream = HandleOf(args[0]);
  absl::StatusOr<std::optional<ObjectHandle>> item;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    item = runtime->NextItem(stream, deadline);
  }
  if (!item.ok()) return RaiseStatus(item.status(), ErrorKind::kObjectStoreFull);
  if (!item->has_value()) Py_RETURN_NONE;
  return NewReference(**std::move(item));
}

// False: an item is no reference of this session.
bool HandlesOf(PyObject* list, std::vector<ObjectHandle>* handles) {
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    PyObject* const item = PyList_GetItem(list, i);
    if (!IsReference(item)) {
      PyErr_Format(PyExc_TypeError, "item %zd is %R: want an ObjectRef", i, item);
      return false;
    }
    if (!IsCurrent(item)) return false;
    handles->push_back(HandleOf(item));
  }
  return true;
}

// give_up([reference], though_used): for each None, or why its bytes stay: (whether they may go
// later, words).
PyObject* GiveUp(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) return nullptr;
  std::vector<ObjectHandle> handles;
  if (count != 2 || !HandlesOf(args[0], &handles)) return nullptr;
  const int though_used = PyObject_IsTrue(args[1]);
  if (though_used < 0) return nullptr;
  std::vector<absl::Status> refusals;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    refusals = sheaf::GiveUp(*runtime, handles, though_used != 0);
  }
  Owned out = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(refusals.size())));
  for (size_t i = 0; out && i < refusals.size(); ++i) {
    const absl::Status& refusal = refusals[i];
    const absl::string_view words = refusal.message();
    PyObject* const row =
        refusal.ok() ? Py_BuildValue("")
                     : Py_BuildValue("(Ns#)", PyBool_FromLong(absl::IsUnavailable(refusal)),
                                     words.data(), static_cast<Py_ssize_t>(words.size()));
    if (row == nullptr) return nullptr;
    PyList_SetItem(out.get(), static_cast<Py_ssize_t>(i), row);
  }
  return out.Release();
}

// object_places([reference]): for each (ready, [numbers of nodes], bytes, in reach).
PyObject* ObjectPlacesOf(PyObject*, PyObject* list) {
  Runtime* const runtime = RequireRuntime();
  std::vector<ObjectHandle> handles;
  if (runtime == nullptr || !HandlesOf(list, &handles)) return nullptr;
  std::vector<ObjectPlaces> places;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    places = runtime->PlacesOf(handles);
  }
  Owned out = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(places.size())));
  for (size_t i = 0; out && i < places.size(); ++i) {
    const ObjectPlaces& place = places[i];
    const Owned nodes = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(place.nodes.size())));
    for (size_t n = 0; nodes && n < place.nodes.size(); ++n)
      PyList_SetItem(nodes.get(), static_cast<Py_ssize_t>(n), PyLong_FromLong(place.nodes[n]));
    PyObject* const row = nodes ? Py_BuildValue("(NOKN)", PyBool_FromLong(place.ready), nodes.get(),
                                                static_cast<unsigned long long>(place.size),
                                                PyBool_FromLong(place.in_reach))
                                : nullptr;
    if (row == nullptr) return nullptr;
    PyList_SetItem(out.get(), static_cast<Py_ssize_t>(i), row);
  }
  return out.Release();
}

// lend(reference): its id, which may travel outside of calls and values (borrow). Whoever sends it
// keeps the reference.
PyObject* Lend(PyObject*, PyObject* reference) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr || !IsCurrent(reference)) return nullptr;
  const ObjectHandle handle = HandleOf(reference);
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    (void)runtime->Outgoing({&handle, 1});
  }
  return NewBytes(handle.id().Binary());
}

// borrow(id): the reference that somebody has lent.
PyObject* Borrow(PyObject*, PyObject* bytes) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) return nullptr;
  if (PyBytes_Check(bytes) == 0 ||
      PyBytes_Size(bytes) != static_cast<Py_ssize_t>(sizeof(ObjectId))) {
    return PyErr_Format(PyExc_TypeError, "borrow(id): want %zu bytes, got %R", sizeof(ObjectId),
                        bytes);
  }
  const absl::StatusOr<ObjectId> id =
      ObjectId::FromBinary({PyBytes_AsString(bytes), static_cast<size_t>(PyBytes_Size(bytes))});
  if (!id.ok()) return RaiseStatus(id.status(), ErrorKind::kSystem);
  absl::StatusOr<ObjectHandle> handle = runtime->HandleFor(*id, true);
  if (!handle.ok()) return RaiseStatus(handle.status(), ErrorKind::kObjectLost);
  return NewReference(*std::move(handle));
}

PyObject* IsReady(PyObject*, PyObject* reference) {
  Runtime* const runtime = RequireRuntimeOf(reference);
  if (runtime == nullptr) return nullptr;
  return IsCurrent(reference) ? PyBool_FromLong(runtime->IsReady(HandleOf(reference))) : nullptr;
}

// on_ready(reference, callback): calls it once, when the value is here, on a thread for callbacks,
// or at once if it is. An exception of it is printed.
PyObject* OnReady(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !IsReference(args[0])) {
    PyErr_SetString(PyExc_TypeError, "on_ready(reference, callback)");
    return nullptr;
  }
  Runtime* const runtime = RequireRuntimeOf(args[0]);
  if (runtime == nullptr) return nullptr;
  if (!IsCurrent(args[0])) return nullptr;
  PyObject* const callback = Owned::Borrow(args[1]).Release();
  runtime->OnReady(HandleOf(args[0]), [callback] {
    const CallbackScope scope;
    const Owned once = Owned::Steal(callback);
    const Owned done =
        Owned::Steal(UnlessPythonEnds([&] { return PyObject_CallNoArgs(callback); }));
    if (!done && !CallbackScope::Interrupted()) PyErr_WriteUnraisable(callback);
  });
  Py_RETURN_NONE;
}

PyObject* Cancel(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 3 || !IsReference(args[0])) {
    PyErr_SetString(PyExc_TypeError, "cancel(reference, force, recursive)");
    return nullptr;
  }
  Runtime* const runtime = RequireRuntimeOf(args[0]);
  if (runtime == nullptr) return nullptr;
  if (!IsCurrent(args[0])) return nullptr;
  const absl::Status status = runtime->Cancel(HandleOf(args[0]), PyObject_IsTrue(args[1]) == 1,
                                              PyObject_IsTrue(args[2]) == 1);
  if (!status.ok()) return RaiseStatus(status, ErrorKind::kSystem);
  Py_RETURN_NONE;
}

// create_actor(template, args, names | None, carrier | None, plain = False): the reference that is
// the actor's handle.
PyObject* CreateActor(PyObject*, PyObject* const* args, Py_ssize_t count) {
  const CallRuntime runtime;
  if (runtime.get() == nullptr) return nullptr;
  TemplateHandle creation;
  if (count < 4 || count > 5 || !TemplateFrom(args[0], &creation)) return nullptr;
  const ObjectHandle carrier = args[3] == Py_None ? ObjectHandle() : HandleOf(args[3]);
  PyObject* const names = args[2] == Py_None ? nullptr : args[2];
  const bool plain = count == 5 && args[4] == Py_True;
  std::vector<PyObject*> all;
  for (Py_ssize_t i = 0; i < PyTuple_Size(args[1]); ++i) all.push_back(PyTuple_GetItem(args[1], i));
  const Py_ssize_t positional =
      static_cast<Py_ssize_t>(all.size()) - (names == nullptr ? 0 : PyTuple_Size(names));
  ArgumentList list;
  if (!EncodeArguments(runtime, carrier, all.data(), positional, names, plain, &list) ||
      runtime.get() == nullptr)
    return nullptr;
  absl::StatusOr<ObjectHandle> handle;
  {
    Runtime& here = *runtime.get();
    const RuntimeInUse in_use;
    const Submission submission(here, creation);
    if (!submission.ok()) [[unlikely]]
      return nullptr;
    const WithoutGil free;
    handle = here.CreateActor(creation, std::move(list));
  }
  if (!handle.ok()) return RaiseStatus(handle.status(), ErrorKind::kGcsStorageFull);
  return NewReference(*std::move(handle));
}

PyObject* Kill(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) return nullptr;
  if (count != 2 || !IsReference(args[0])) {
    PyErr_SetString(PyExc_TypeError, "kill(actor, no_restart)");
    return nullptr;
  }
  if (!IsCurrent(args[0])) return nullptr;
  const ObjectHandle actor = HandleOf(args[0]);
  const bool no_restart = PyObject_IsTrue(args[1]) == 1;
  absl::Status status;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    status = runtime->Kill(actor, no_restart);
  }
  if (!status.ok()) return RaiseStatus(status, ErrorKind::kSystem);
  Py_RETURN_NONE;
}

PyCFunction Fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}
PyCFunction Fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

constexpr char kGetHelp[] = R"(get($module, refs, /, *, timeout=None)
--

Waits for the values of references.

Arrays in them are read-only views of shared memory, which stays as long as they do. Thread-safe.

Args:
    refs: an ObjectRef, or a list of them.
    timeout: seconds; 0 only looks; None waits for ever.

Returns:
    The value; of a list the list of values.

Raises:
    RayTaskError: the task raised; it is an instance of what was raised, too.
    GetTimeoutError: the time was up.
    ObjectLostError: the value is gone, and its task cannot be run again.
    RayError: the worker, the actor or the node failed; see sheaf.exceptions.
    ValueError: one is no reference, comes from a session that has ended, or the timeout is
        negative.)";

constexpr char kPutHelp[] = R"(put($module, value, /)
--

Stores a value, so that it can be passed to many calls. Thread-safe.

Args:
    value: what can be pickled; arrays of NumPy are copied once. Not an ObjectRef.

Returns:
    Its ObjectRef. The value is freed when the last reference to it is gone.

Raises:
    TypeError: it cannot be pickled, and the text says which part; or it is an ObjectRef.
    ObjectStoreFullError: there is no room for it.
    OutOfDiskError: there is none, and the disk that objects are moved to is full.)";

}  // namespace

PyMethodDef object_functions[] = {
    {"get", Fast(Get), METH_FASTCALL | METH_KEYWORDS, kGetHelp},
    {"put", Fast(Put), METH_FASTCALL | METH_KEYWORDS, kPutHelp},
    {"wait_ready", Fast(Wait), METH_FASTCALL, nullptr},
    {"next_item", Fast(NextItem), METH_FASTCALL, nullptr},
    {"object_places", ObjectPlacesOf, METH_O, nullptr},
    {"give_up", Fast(GiveUp), METH_FASTCALL, nullptr},
    {"lend", Lend, METH_O, nullptr},
    {"borrow", Borrow, METH_O, nullptr},
    {"is_ready", IsReady, METH_O, nullptr},
    {"on_ready", Fast(OnReady), METH_FASTCALL, nullptr},
    {"cancel", Fast(Cancel), METH_FASTCALL, nullptr},
    {"create_actor", Fast(CreateActor), METH_FASTCALL, nullptr},
    {"kill", Fast(Kill), METH_FASTCALL, nullptr},
    {"nested_reference", Fast(NestedReferenceOf), METH_FASTCALL, nullptr},
    {"encode_plain", EncodePlain, METH_O, nullptr},
    {"decode_plain", DecodePlain, METH_O, nullptr},
    {}};

}  // namespace sheaf::python
