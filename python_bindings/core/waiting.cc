// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/waiting.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"

namespace nb = nanobind;

namespace sheaf::python {
namespace {

constexpr size_t kFewCuts = 8;  // In a list: each moves all that is behind it.

// Takes the items at `indices` (ascending) out of `list`: a list of them. nullptr: an exception is
// set.
PyObject* TakeOut(PyObject* list, const std::vector<size_t>& indices) {
  const size_t size = static_cast<size_t>(PyList_Size(list));
  Owned taken = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(indices.size())));
  if (!taken) return nullptr;
  for (size_t i = 0; i < indices.size(); ++i) {
    PyObject* const item = PyList_GetItem(list, static_cast<Py_ssize_t>(indices[i]));
    PyList_SetItem(taken.get(), static_cast<Py_ssize_t>(i), Owned::Borrow(item).Release());
  }
  // Runs from behind: few are cut out, many lie side by side; where neither is so, each that stays
  // moves once.
  size_t runs = 0;
  for (size_t i = 0; i < indices.size(); ++i) runs += i == 0 || indices[i] != indices[i - 1] + 1;
  if (runs <= kFewCuts) {
    for (size_t end = indices.size(); end > 0;) {
      size_t begin = end - 1;
      while (begin > 0 && indices[begin] == indices[begin - 1] + 1) --begin;
      if (PyList_SetSlice(list, static_cast<Py_ssize_t>(indices[begin]),
                          static_cast<Py_ssize_t>(indices[end - 1] + 1), nullptr) != 0)
        return nullptr;
      end = begin;
    }
    return taken.Release();
  }
  size_t to = indices[0];
  for (size_t from = to, next = 0; from < size; ++from) {
    if (next < indices.size() && indices[next] == from) {
      ++next;
      continue;
    }
    PyObject* const item = PyList_GetItem(list, static_cast<Py_ssize_t>(from));
    PyList_SetItem(list, static_cast<Py_ssize_t>(to++), Owned::Borrow(item).Release());
  }
  if (PyList_SetSlice(list, static_cast<Py_ssize_t>(to), static_cast<Py_ssize_t>(size), nullptr) !=
      0)
    return nullptr;
  return taken.Release();
}

// Finds an object that comes twice in a list. There is one, whose memory is used again and needs no
// emptying: what an earlier list left there has another number. With the GIL.
class SeenObjects {
 public:
  static SeenObjects& ForListOf(size_t count) {
    static SeenObjects& seen = *new SeenObjects;
    const size_t slots = std::bit_ceil(2 * count + 1);
    if (slots > seen.slots_.size() || seen.slots_.size() > std::max(slots, kKeptSlots))
      seen.slots_ = std::vector<Slot>(slots);
    seen.mask_ = slots - 1;
    ++seen.list_;
    return seen;
  }
  // False: it was there.
  bool Insert(const ObjectEntry* entry) {
    size_t at = reinterpret_cast<uintptr_t>(entry) * 0x9e37'79b9'7f4a'7c15 >> 32 & mask_;
    while (slots_[at].list == list_) {
      if (slots_[at].entry == entry) return false;
      at = (at + 1) & mask_;
    }
    slots_[at] = {entry, list_};
    return true;
  }

 private:
  struct Slot {
    const ObjectEntry* entry = nullptr;
    uint64_t list = 0;
  };
  static constexpr size_t kKeptSlots = 4096;  // More go with the list that needed them.
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  uint64_t list_ = 0;
};

// Handles of objects that others hold meanwhile; they count nothing.
static_assert(sizeof(ObjectHandle) == sizeof(ObjectEntry*));
std::span<const ObjectHandle> HandlesOn(const std::vector<ObjectEntry*>& objects) {
  return {reinterpret_cast<const ObjectHandle*>(objects.data()), objects.size()};
}

class ReadyQueue {
 public:
  ReadyQueue() : shared_(std::make_shared<Shared>()) {
    const MutexLock lock(shared_->mutex);
    shared_->event.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (shared_->event.valid()) return;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }

  ~ReadyQueue() {  // Objects that are waited for may come much later.
    const MutexLock lock(shared_->mutex);
    shared_->event.Reset();
  }

  int Descriptor() const {
    const MutexLock lock(shared_->mutex);
    return shared_->event.get();
  }

  void Notify(nb::handle reference, uint64_t token) {
    if (!IsReference(reference.ptr()))
      throw nb::type_error("notify(ref, token) takes an ObjectRef");
    Runtime* const runtime = RequireRuntimeOf(reference.ptr());
    if (runtime == nullptr) throw nb::python_error();
    if (!IsCurrent(reference.ptr())) throw nb::python_error();
    runtime->SignalReady(HandleOf(reference.ptr()), [shared = shared_, token] {
      const MutexLock lock(shared->mutex);
      shared->tokens.push_back(token);
      if (shared->tokens.size() == 1 && shared->event.valid())
        eventfd_write(shared->event.get(), 1);
    });
  }

  nb::list Take() {
    std::vector<uint64_t> tokens;
    {
      const MutexLock lock(shared_->mutex);
      tokens.swap(shared_->tokens);
      eventfd_t count;
      eventfd_read(shared_->event.get(), &count);
    }
    nb::list out;
    for (const uint64_t token : tokens) out.append(token);
    return out;
  }

 private:
  struct Shared {
    Mutex mutex;
    UniqueFd event ABSL_GUARDED_BY(mutex);  // Readable while there are tokens.
    std::vector<uint64_t> tokens ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Shared> shared_;  // With the objects that are waited for, too.
};

}  // namespace

PyObject* Wait(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Runtime* const runtime = count == 4 ? RequireRuntimeOf(args[0]) : RequireRuntime();
  if (runtime == nullptr) return nullptr;
  Nanos deadline = kForever;
  if (count != 4 || !DeadlineFrom(args[2], &deadline)) return nullptr;
  const int bring = PyObject_IsTrue(args[3]);
  if (bring == -1) return nullptr;
  const Py_ssize_t wanted = PyLong_AsSsize_t(args[1]);
  if (wanted == -1 && PyErr_Occurred() != nullptr) return nullptr;
  PyObject* const list = args[0];
  const Py_ssize_t size = PyList_Size(list);
  std::vector<ObjectEntry*> objects(static_cast<size_t>(size));
  SeenObjects& seen = SeenObjects::ForListOf(static_cast<size_t>(size));
  const uint64_t generation = RuntimeGeneration();
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const item = PyList_GetItem(list, i);
    if (!IsReference(item)) Py_RETURN_NOTIMPLEMENTED;
    if (!IsOf(generation, item) && !IsCurrent(item)) return nullptr;
    ObjectEntry* const object = objects[static_cast<size_t>(i)] = HandleOf(item).entry();
    if (!seen.Insert(object)) {
      return PyErr_Format(PyExc_ValueError,
                          "Wait requires a list of unique object refs: %R comes twice", item);
    }
  }
  absl::StatusOr<std::vector<size_t>> ready;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    ready = runtime->Wait(HandlesOn(objects), static_cast<size_t>(wanted), deadline, bring == 1);
  }
  if (!ready.ok()) return RaiseStatus(ready.status(), ErrorKind::kObjectStoreFull);
  const Owned chosen = Owned::Steal(TakeOut(list, *ready));
  return chosen ? PyTuple_Pack(2, chosen.get(), list) : nullptr;
}

void BindReadyQueue(nb::module_& module) {
  nb::class_<ReadyQueue>(module, "ReadyQueue",
                         "The numbers of references that are ready, for an event loop.")
      .def(nb::init<>())
      .def("fileno", &ReadyQueue::Descriptor, "Readable while take() has something to give.")
      .def("notify", &ReadyQueue::Notify, nb::arg("ref"), nb::arg("token"),
           "take() gives `token`, once, when `ref` is ready and its value is on this node.")
      .def("take", &ReadyQueue::Take, "The tokens of what has become ready since the last take.");
}

}  // namespace sheaf::python
