// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/pickled_value.h"

#include <cstring>
#include <new>
#include <string>

#include "object_store/parallel_copy.h"
#include "python_bindings/core/parts.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"

namespace sheaf::python {
namespace {

constexpr size_t Aligned64(size_t bytes) { return (bytes + 63) & ~size_t{63}; }

PythonFunction pickle_value("sheaf._internal.serialization", "pickle_value");
PythonFunction unpickle_value("sheaf._internal.serialization", "unpickle_value");

// The references of the value that this thread unpickles.
thread_local std::span<const ObjectHandle> current_nested;

// Memory of an object, as a read-only buffer.
struct PinnedObject {
  PyObject_HEAD Buffer keep;
  ObjectHandle handle;
  std::string_view bytes;
};
PyTypeObject* pinned_type = nullptr;

void DeallocPinned(PyObject* self) {
  auto* pinned = reinterpret_cast<PinnedObject*>(self);
  // In a forked child the pin is the parent's: both have the same one, in shared memory.
  if (!IsForked()) pinned->keep.~Buffer();
  pinned->handle.~ObjectHandle();
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

int GetBuffer(PyObject* self, Py_buffer* view, int flags) {
  const std::string_view bytes = reinterpret_cast<PinnedObject*>(self)->bytes;
  return PyBuffer_FillInfo(view, self, const_cast<char*>(bytes.data()),
                           static_cast<Py_ssize_t>(bytes.size()),
                           /*readonly=*/1, flags);
}

PyType_Slot pinned_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(DeallocPinned)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)},
    {Py_tp_doc, const_cast<char*>("Memory of an object, held while something views it.")},
    {}};
PyType_Spec pinned_spec = {"sheaf._core.Pinned", sizeof(PinnedObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, pinned_slots};

PyObject* NewPinned(Buffer keep, ObjectHandle handle, std::string_view bytes) {
  PinnedObject* const pinned = PyObject_New(PinnedObject, pinned_type);
  if (pinned == nullptr) return nullptr;
  new (&pinned->keep) Buffer(std::move(keep));
  new (&pinned->handle) ObjectHandle(std::move(handle));
  pinned->bytes = bytes;
  return reinterpret_cast<PyObject*>(pinned);
}

// Where they lie, if that is in the arena: aligned, and for good. Those of small values are copied.
PyObject* Pin(const ObjectView& view, std::string_view bytes) {
  if (view.keep.data() == nullptr) return NewAlignedCopy(bytes);
  return NewPinned(view.keep, view.handle, bytes);
}

PyObject* Malformed() {
  PyErr_SetString(PyExc_ValueError, "these bytes are no value of Sheaf: too short");
  return nullptr;
}

PyObject* DecodePickled(const ObjectView& view) {
  PickleHead head;
  if (view.bytes.size() < sizeof head) return Malformed();
  std::memcpy(&head, view.bytes.data(), sizeof head);
  const size_t room = view.bytes.size() - sizeof head;
  if (head.buffer_count > room / sizeof(BufferEntry)) return Malformed();
  const size_t begin = sizeof head + head.buffer_count * sizeof(BufferEntry);
  if (head.pickle_bytes > view.bytes.size() - begin) return Malformed();
  const Owned buffers = Owned::Steal(PyList_New(head.buffer_count));
  if (!buffers) return nullptr;
  for (uint32_t i = 0; i < head.buffer_count; ++i) {
    BufferEntry entry;
    std::memcpy(&entry, view.bytes.data() + sizeof head + i * sizeof entry, sizeof entry);
    if (entry.offset > view.bytes.size() || entry.bytes > view.bytes.size() - entry.offset)
      return Malformed();
    PyObject* const buffer = Pin(view, view.bytes.substr(entry.offset, entry.bytes));
    if (buffer == nullptr) return nullptr;
    PyList_SetItem(buffers.get(), i, buffer);
  }
  const Owned pickle =
      Owned::Steal(PyMemoryView_FromMemory(const_cast<char*>(view.bytes.data() + begin),
                                           static_cast<Py_ssize_t>(head.pickle_bytes), PyBUF_READ));
  if (!pickle) return nullptr;
  const std::span<const ObjectHandle> outer =
      std::exchange(current_nested, std::span<const ObjectHandle>(view.nested));
  PyObject* const value = unpickle_value(pickle.get(), buffers.get());
  current_nested = outer;
  return value;
}

// What C++ wrote with arrays beside the rest.
PyObject* DecodeArrays(const ObjectView& view) {
  ArraysHead head;
  if (view.bytes.size() < sizeof head) return Malformed();
  std::memcpy(&head, view.bytes.data(), sizeof head);
  const size_t room = view.bytes.size() - sizeof head;
  if (head.buffer_count > room / sizeof(BufferEntry)) return Malformed();
  const size_t entries = head.buffer_count * sizeof(BufferEntry);
  if (head.body_bytes > room - entries) return Malformed();
  const BufferSource buffers = [&](uint32_t index) -> PyObject* {
    if (index >= head.buffer_count) return nullptr;
    BufferEntry entry;
    std::memcpy(&entry, view.bytes.data() + sizeof head + index * sizeof entry, sizeof entry);
    if (entry.offset > view.bytes.size() || entry.bytes > view.bytes.size() - entry.offset)
      return nullptr;
    return Pin(view, view.bytes.substr(entry.offset, entry.bytes));
  };
  return DecodeNative(view.bytes.substr(sizeof head + entries, head.body_bytes), view.nested,
                      &buffers);
}

}  // namespace

Value::~Value() { Clear(); }

void Value::Clear() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
  buffers_.clear();
  nested_.clear();
  plain_.reset();
  native_.Clear();
  pickled_ = false;
  parts_ = {};
}

bool Value::Encode(PyObject* value) {
  if (native_.Encode(value)) [[likely]]
    return true;
  native_.Clear();
  if (IsParts(value)) {
    parts_ = Owned::Borrow(value);
    outside_bytes_ = PartsBytes(value);
    return true;
  }
  return EncodePickled(value);
}

bool Value::EncodePlain(PyObject* value, std::string_view what) {
  plain_ = std::make_unique<PlainEncoder>();
  return plain_->Encode(value, what);
}

bool Value::TakeBuffer(PyObject* object) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_ANY_CONTIGUOUS) != 0) return false;
  buffers_.push_back(buffer);
  return true;
}

bool Value::EncodePickled(PyObject* value) {
  const Owned made = Owned::Steal(pickle_value(value));  // (pickle, buffers, references)
  if (!made) return false;
  PyObject* const outside = PyTuple_GetItem(made.get(), 1);
  PyObject* const references = PyTuple_GetItem(made.get(), 2);
  if (references == nullptr || !TakeBuffer(PyTuple_GetItem(made.get(), 0))) return false;
  const Py_ssize_t count = PyList_Size(outside);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!TakeBuffer(PyList_GetItem(outside, i))) return false;
  }
  for (Py_ssize_t i = 0; i < PyList_Size(references); ++i) {
    if (!IsCurrent(PyList_GetItem(references, i))) return false;
    nested_.push_back(HandleOf(PyList_GetItem(references, i)));
  }
  pickled_ = true;
  size_t size = sizeof(PickleHead) + static_cast<size_t>(count) * sizeof(BufferEntry) +
                static_cast<size_t>(buffers_[0].len);
  for (size_t i = 1; i < buffers_.size(); ++i)
    size = Aligned64(size) + static_cast<size_t>(buffers_[i].len);
  outside_bytes_ = size;
  return true;
}

void Value::CopyTo(char* out, Pages pages) const {
  if (plain_) return plain_->CopyTo(out, pages);
  if (parts_) return CopyParts(parts_.get(), out, pages);
  if (!pickled_) {
    const std::string_view body = native_.body();
    std::memcpy(out, body.data(), body.size());
    ParallelCopy(out + body.size(), native_.tail().data(), native_.tail().size(), pages);
    return;
  }
  PickleHead head;
  head.buffer_count = static_cast<uint32_t>(buffers_.size() - 1);
  head.pickle_bytes = static_cast<uint64_t>(buffers_[0].len);
  std::memcpy(out, &head, sizeof head);
  size_t at = sizeof head + head.buffer_count * sizeof(BufferEntry);
  std::memcpy(out + at, buffers_[0].buf, head.pickle_bytes);
  at += head.pickle_bytes;
  for (size_t i = 1; i < buffers_.size(); ++i) {
    const size_t begin = Aligned64(at);
    std::memset(out + at, 0, begin - at);
    const BufferEntry entry{begin, static_cast<uint64_t>(buffers_[i].len)};
    std::memcpy(out + sizeof head + (i - 1) * sizeof entry, &entry, sizeof entry);
    ParallelCopy(out + begin, buffers_[i].buf, entry.bytes, pages);
    at = begin + entry.bytes;
  }
}

absl::StatusOr<ObjectHandle> PutValue(Runtime& runtime, const Value& value) {
  const size_t size = value.size();
  if (size <= kSmallValueBytes) {
    const std::string_view whole = value.whole();
    if (!whole.empty()) return runtime.Put(whole, value.nested());
    std::string bytes(size, '\0');
    value.CopyTo(bytes.data());
    return runtime.Put(bytes, value.nested());
  }
  const RuntimeInUse in_use;
  const WithoutGil free;
  absl::StatusOr<MutableBuffer> buffer = runtime.Create(size, kForever, value.nested());
  if (!buffer.ok()) return buffer.status();
  value.CopyTo(reinterpret_cast<char*>(buffer->data()), buffer->pages());
  return runtime.Seal(*std::move(buffer), value.nested());
}

PyObject* DecodeValue(const ObjectView& view) {
  if (view.bytes.empty()) [[unlikely]]
    Py_RETURN_NONE;
  if (view.bytes.size() < 2 || static_cast<uint8_t>(view.bytes[0]) != kOutOfBandMark) [[likely]] {
    return DecodeNative(view.bytes, view.nested);
  }
  if (static_cast<uint8_t>(view.bytes[1]) == kVersionPickle) return DecodePickled(view);
  if (static_cast<uint8_t>(view.bytes[1]) == kVersionArrays) return DecodeArrays(view);
  if (static_cast<uint8_t>(view.bytes[1]) == kVersionParts) return DecodeParts(view);
  PyErr_SetString(PyExc_ValueError, "this value was made by another version of Sheaf");
  return nullptr;
}

PyObject* NewAlignedCopy(std::string_view bytes) {
  Buffer copy = Buffer::CopyOf(bytes);
  const std::string_view aligned = copy.view();
  return NewPinned(std::move(copy), {}, aligned);
}

bool AddPinnedType(PyObject* module) {
  pinned_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&pinned_spec));
  return pinned_type != nullptr &&
         PyModule_AddObjectRef(module, "Pinned", reinterpret_cast<PyObject*>(pinned_type)) == 0;
}

PyObject* NestedReferenceOf(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || PyBytes_Check(args[1]) == 0 ||
      PyBytes_Size(args[1]) != static_cast<Py_ssize_t>(sizeof(ObjectId))) {
    PyErr_SetString(PyExc_TypeError, "nested_reference(index, id)");
    return nullptr;
  }
  const long index = PyLong_AsLong(args[0]);
  if (index == -1 && PyErr_Occurred() != nullptr) return nullptr;
  ObjectId id;
  std::memcpy(&id, PyBytes_AsString(args[1]), sizeof id);
  return ReferenceNamed(current_nested, static_cast<uint32_t>(index), id);
}

}  // namespace sheaf::python
