// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Python values to the bytes of objects and back: the native codec where it applies
// (python_bindings/core/native_codec.h), else pickle 5 with its buffers outside, by sheaf._internal.serialization:
//   PickleHead | BufferEntry[buffer_count] | pickle | zeros | buffer | zeros | buffer ...
// with each buffer at a multiple of 64 from the start, so that arrays are read where they lie.
// Little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "object_store/parallel_copy.h"
#include "python_bindings/core/native_codec.h"
#include "python_bindings/core/portable_codec.h"
#include "python_bindings/core/python.h"
#include "worker/runtime.h"

namespace sheaf::python {

struct PickleHead {
  uint8_t mark = kOutOfBandMark;
  uint8_t version = kVersionPickle;
  uint16_t reserved = 0;
  uint32_t buffer_count = 0;
  uint64_t pickle_bytes = 0;
};
struct BufferEntry {
  uint64_t offset;  // From the start of the value; a multiple of 64.
  uint64_t bytes;
};
static_assert(sizeof(PickleHead) == 16 && sizeof(BufferEntry) == 16);

// A value in the making. Made, filled and destroyed with the GIL held; holds the value's buffers
// meanwhile.
class Value {
 public:
  Value() = default;
  ~Value();
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  // Once. False: an exception is set, which names what cannot be sent.
  bool Encode(PyObject* value);
  // For callers and functions of other languages. `what`: begins the words about what is refused.
  bool EncodePlain(PyObject* value, std::string_view what);
  void Clear();  // Then Encode may be called again.
  size_t size() const {
    return plain_ ? plain_->size() : outside() ? outside_bytes_ : native_.size();
  }
  // Without the GIL, if need be.
  void CopyTo(char* out, Pages pages = Pages::kEntered) const;
  // The whole value, if it lies in one piece.
  std::string_view whole() const {
    if (plain_) return plain_->whole();
    return outside() || !native_.tail().empty() ? std::string_view() : native_.body();
  }
  std::span<const ObjectHandle> nested() const {
    return plain_ ? plain_->nested() : outside() ? nested_ : native_.nested();
  }

 private:
  bool EncodePickled(PyObject* value);
  bool TakeBuffer(PyObject* object);
  bool outside() const { return pickled_ || parts_; }

  NativeEncoder native_;
  std::unique_ptr<PlainEncoder> plain_;
  bool pickled_ = false;
  Owned parts_;  // The value is this (python_bindings/core/parts.h).
  size_t outside_bytes_ = 0;
  std::vector<Py_buffer> buffers_;  // The pickle, then those outside it.
  std::vector<ObjectHandle> nested_;
};

// As an object of this process; a large one is built in the store, without the GIL.
absl::StatusOr<ObjectHandle> PutValue(Runtime& runtime, const Value& value);

// A new reference, or nullptr with an exception set. Arrays in what comes back view the object's
// memory in the store and pin it; those of small values, which lie elsewhere, are copied. No
// bytes are None: the end of a stream.
PyObject* DecodeValue(const ObjectView& view);

// A copy of `bytes` at a multiple of 64, as a read-only buffer; nullptr: an exception is set.
PyObject* NewAlignedCopy(std::string_view bytes);

// The type of what pins memory for those arrays. False: an exception is set.
bool AddPinnedType(PyObject* module);

// For unpickling: nested_reference(index, id), with the references of the value that this thread
// decodes.
PyObject* NestedReferenceOf(PyObject* module, PyObject* const* args, Py_ssize_t count);

}  // namespace sheaf::python
