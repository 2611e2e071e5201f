// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/parts.h"

#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"

namespace sheaf::python {
namespace {

constexpr size_t Aligned64(size_t bytes) { return (bytes + 63) & ~size_t{63}; }

struct EncodedParts {
  std::vector<std::unique_ptr<Value>> values;
  std::vector<BufferEntry> places;
  uint64_t digest = 0;  // Of the places.
  size_t bytes = 0;
};
struct PartsObject {
  PyObject_HEAD EncodedParts* encoded;
};
PyTypeObject* parts_type = nullptr;

EncodedParts& EncodedOf(PyObject* parts) { return *reinterpret_cast<PartsObject*>(parts)->encoded; }

// FNV-1a.
uint64_t DigestOf(const std::vector<BufferEntry>& places) {
  uint64_t digest = 0xcbf2'9ce4'8422'2325;
  const auto* bytes = reinterpret_cast<const unsigned char*>(places.data());
  for (size_t i = 0; i < places.size() * sizeof(BufferEntry); ++i)
    digest = (digest ^ bytes[i]) * 0x100'0000'01b3;
  return digest;
}

bool Encode(PyObject* values, EncodedParts* out) {
  const Py_ssize_t count = PyTuple_Size(values);
  size_t at = sizeof(PartsHead) + static_cast<size_t>(count) * sizeof(BufferEntry);
  for (Py_ssize_t i = 0; i < count; ++i) {
    auto value = std::make_unique<Value>();
    PyObject* const item = PyTuple_GetItem(values, i);
    if (IsParts(item)) {
      PyErr_Format(PyExc_TypeError, "part %zd is itself of type Parts: a part has no parts", i);
      return false;
    }
    if (!value->Encode(item)) return false;
    if (!value->nested().empty()) {
      PyErr_Format(PyExc_TypeError,
                   "part %zd has an ObjectRef inside: parts hold none, as a part is copied without "
                   "what keeps its object alive",
                   i);
      return false;
    }
    at = Aligned64(at);
    out->places.push_back({at, sizeof(PartMark) + value->size()});
    at += sizeof(PartMark) + value->size();
    out->values.push_back(std::move(value));
  }
  out->digest = DigestOf(out->places);
  out->bytes = at;
  return true;
}

PyObject* NewParts(PyTypeObject* type, PyObject* args, PyObject* names) {
  PyObject* values = nullptr;
  if (names != nullptr && PyDict_Size(names) != 0) {
    PyErr_SetString(PyExc_TypeError, "Parts(values) takes one positional argument");
    return nullptr;
  }
  if (!PyArg_ParseTuple(args, "O:Parts", &values)) return nullptr;
  const Owned all = Owned::Steal(PySequence_Tuple(values));
  if (!all) return nullptr;
  if (PyTuple_Size(all.get()) == 0) {
    PyErr_SetString(PyExc_ValueError, "Parts([]): want one value at least");
    return nullptr;
  }
  auto encoded = std::make_unique<EncodedParts>();
  if (!Encode(all.get(), encoded.get())) return nullptr;
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self != nullptr) reinterpret_cast<PartsObject*>(self)->encoded = encoded.release();
  return self;
}

void DeallocParts(PyObject* self) {
  delete reinterpret_cast<PartsObject*>(self)->encoded;
  PyTypeObject* const type = Py_TYPE(self);
  const auto release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

Py_ssize_t CountOf(PyObject* self) {
  return static_cast<Py_ssize_t>(EncodedOf(self).places.size());
}

PyObject* PlacesOf(PyObject* self, void*) {
  const EncodedParts& encoded = EncodedOf(self);
  const std::vector<BufferEntry>& places = encoded.places;
  Owned out = Owned::Steal(PyTuple_New(static_cast<Py_ssize_t>(places.size())));
  for (size_t i = 0; out && i < places.size(); ++i) {
    PyObject* const place =
        Py_BuildValue("(KKK)", static_cast<unsigned long long>(places[i].offset),
                      static_cast<unsigned long long>(places[i].bytes),
                      static_cast<unsigned long long>(encoded.digest));
    if (place == nullptr) return nullptr;
    PyTuple_SetItem(out.get(), static_cast<Py_ssize_t>(i), place);
  }
  return out.Release();
}

PyObject* BytesOfAll(PyObject* self, void*) { return PyLong_FromSize_t(EncodedOf(self).bytes); }

PyObject* RefuseToReduce(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError,
                  "Parts are a value of their own: put them, or return or yield them alone, not "
                  "inside another value");
  return nullptr;
}

PyGetSetDef parts_attributes[] = {
    {"places", PlacesOf, nullptr, "(offset, bytes, digest) of each part within the value.",
     nullptr},
    {"nbytes", BytesOfAll, nullptr, "Bytes of the whole value.", nullptr},
    {}};
PyMethodDef parts_methods[] = {{"__reduce__", RefuseToReduce, METH_NOARGS, nullptr}, {}};
constexpr char kPartsHelp[] = R"(A value whose parts can be read one by one (sheaf.util.parts).

Args:
    values: the values of the parts, one at least; each is encoded now. They hold no ObjectRef.

Raises:
    TypeError: a value cannot be pickled, holds an ObjectRef, or consists of parts itself.
    ValueError: there is none.)";
PyType_Slot parts_slots[] = {{Py_tp_new, reinterpret_cast<void*>(NewParts)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(DeallocParts)},
                             {Py_sq_length, reinterpret_cast<void*>(CountOf)},
                             {Py_tp_getset, parts_attributes},
                             {Py_tp_methods, parts_methods},
                             {Py_tp_doc, const_cast<char*>(kPartsHelp)},
                             {}};
PyType_Spec parts_spec = {"sheaf._core.Parts", sizeof(PartsObject), 0, Py_TPFLAGS_DEFAULT,
                          parts_slots};

PyObject* Malformed() {
  PyErr_SetString(PyExc_ValueError, "these bytes are no value of Sheaf: its parts do not fit in");
  return nullptr;
}

// One (reference, offset, bytes, digest) of what get_parts is given. False: an exception is set.
bool TakePart(PyObject* item, Py_ssize_t index, ObjectPart* out, uint64_t* digest) {
  if (PyTuple_Check(item) == 0 || PyTuple_Size(item) != 4 ||
      !IsReference(PyTuple_GetItem(item, 0))) {
    PyErr_Format(PyExc_TypeError, "part %zd is %R: want (ObjectRef, offset, bytes, digest)", index,
                 item);
    return false;
  }
  if (!IsCurrent(PyTuple_GetItem(item, 0))) return false;
  out->object = HandleOf(PyTuple_GetItem(item, 0));
  out->offset = PyLong_AsUnsignedLongLong(PyTuple_GetItem(item, 1));
  if (PyErr_Occurred() != nullptr) return false;
  out->bytes = PyLong_AsUnsignedLongLong(PyTuple_GetItem(item, 2));
  if (PyErr_Occurred() != nullptr) return false;
  *digest = PyLong_AsUnsignedLongLong(PyTuple_GetItem(item, 3));
  return PyErr_Occurred() == nullptr;
}

// The value of a part; a new reference, or nullptr with an exception set.
PyObject* DecodePart(const ObjectView& part, uint64_t digest) {
  PartMark mark;
  if (part.bytes.size() <= sizeof mark) return Malformed();
  std::memcpy(&mark, part.bytes.data(), sizeof mark);
  if (mark.magic != PartMark::kMagic || mark.digest != digest) {
    return RaiseError(
        {ErrorKind::kReconstructionFailed,
         "the value that was made as Parts has other parts now: it was lost and made anew, and the "
         "function that makes it did not return the same. Ask for its places again",
         {}});
  }
  ObjectView value = part;
  value.bytes.remove_prefix(sizeof mark);
  const bool nested = value.bytes.size() >= 2 &&
                      static_cast<uint8_t>(value.bytes[0]) == kOutOfBandMark &&
                      static_cast<uint8_t>(value.bytes[1]) == kVersionParts;
  return nested ? Malformed() : DecodeValue(value);  // No recursion without end.
}

// get_parts([(reference, offset, bytes, digest), ...], timeout): their values.
PyObject* GetParts(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) return nullptr;
  Nanos deadline = kForever;
  if (count != 2 || PyList_Check(args[0]) == 0) {
    PyErr_SetString(PyExc_TypeError, "get_parts(list, timeout)");
    return nullptr;
  }
  if (!DeadlineFrom(args[1], &deadline)) return nullptr;
  std::vector<ObjectPart> parts(static_cast<size_t>(PyList_Size(args[0])));
  std::vector<uint64_t> digests(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto index = static_cast<Py_ssize_t>(i);
    if (!TakePart(PyList_GetItem(args[0], index), index, &parts[i], &digests[i])) return nullptr;
  }
  std::vector<ObjectView> views;
  absl::Status status;
  {
    const RuntimeInUse in_use;
    const WithoutGil free;
    status = runtime->GetParts(parts, deadline, &views);
  }
  if (!status.ok()) return RaiseStatus(status, ErrorKind::kObjectStoreFull);
  Owned values = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(views.size())));
  for (size_t i = 0; values && i < views.size(); ++i) {
    if (views[i].error != nullptr) return RaiseError(*views[i].error);
    PyObject* const value = DecodePart(views[i], digests[i]);
    if (value == nullptr) return nullptr;
    PyList_SetItem(values.get(), static_cast<Py_ssize_t>(i), value);
    views[i] = {};
  }
  return values.Release();
}

}  // namespace

bool AddPartsType(PyObject* module) {
  parts_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&parts_spec));
  return parts_type != nullptr &&
         PyModule_AddObjectRef(module, "Parts", reinterpret_cast<PyObject*>(parts_type)) == 0;
}

bool IsParts(PyObject* object) { return Py_TYPE(object) == parts_type; }

size_t PartsBytes(PyObject* parts) { return EncodedOf(parts).bytes; }

void CopyParts(PyObject* parts, char* out, Pages pages) {
  const EncodedParts& encoded = EncodedOf(parts);
  PartsHead head;
  head.part_count = static_cast<uint32_t>(encoded.places.size());
  std::memcpy(out, &head, sizeof head);
  size_t at = sizeof head + encoded.places.size() * sizeof(BufferEntry);
  std::memcpy(out + sizeof head, encoded.places.data(), at - sizeof head);
  for (size_t i = 0; i < encoded.places.size(); ++i) {
    const BufferEntry& place = encoded.places[i];
    std::memset(out + at, 0, place.offset - at);
    const PartMark mark{.index = static_cast<uint32_t>(i), .digest = encoded.digest};
    std::memcpy(out + place.offset, &mark, sizeof mark);
    encoded.values[i]->CopyTo(out + place.offset + sizeof mark, pages);
    at = place.offset + place.bytes;
  }
}

PyObject* DecodeParts(const ObjectView& view) {
  PartsHead head;
  if (view.bytes.size() < sizeof head) return Malformed();
  std::memcpy(&head, view.bytes.data(), sizeof head);
  if (head.part_count > (view.bytes.size() - sizeof head) / sizeof(BufferEntry)) return Malformed();
  std::vector<BufferEntry> places(head.part_count);
  std::memcpy(places.data(), view.bytes.data() + sizeof head,
              head.part_count * sizeof(BufferEntry));
  const uint64_t digest = DigestOf(places);
  Owned values = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(head.part_count)));
  ObjectView part = view;
  for (uint32_t i = 0; values && i < head.part_count; ++i) {
    const BufferEntry& place = places[i];
    if (place.offset > view.bytes.size() || place.bytes > view.bytes.size() - place.offset)
      return Malformed();
    part.bytes = view.bytes.substr(place.offset, place.bytes);
    PyObject* const value = DecodePart(part, digest);
    if (value == nullptr) return nullptr;
    PyList_SetItem(values.get(), static_cast<Py_ssize_t>(i), value);
  }
  return values.Release();
}

PyMethodDef part_functions[] = {
    {"get_parts", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(GetParts)),
     METH_FASTCALL, nullptr},
    {}};

}  // namespace sheaf::python
