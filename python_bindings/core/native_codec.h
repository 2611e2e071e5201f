// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The native form of small plain values: None, bool, int (64 bits), float, str, bytes, references,
// short tuples, lists and dicts of them, and tuples and lists of any length that hold references
// alone; no subclasses. It is msgpack as
// api/include/sheaf/internal/encoder.h writes it, so that C++ reads what Python wrote; a tuple is
// an array after a mark of its own (kExtTuple, no bytes), which C++ never sees.
//
// What is not for this codec is pickled (python_bindings/core/pickled_value.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "python_bindings/core/python.h"
#include "worker/owner/object_handle.h"

namespace sheaf::python {

inline constexpr uint8_t kOutOfBandMark =
    0xc1;                                     // With which no msgpack value begins; then a version:
inline constexpr uint8_t kVersionArrays = 1;  // Of C++: arrays beside a msgpack value.
inline constexpr uint8_t kVersionPickle = 2;  // PickleHead (python_bindings/core/pickled_value.h).
inline constexpr uint8_t kVersionParts = 4;   // PartsHead (python_bindings/core/parts.h).
// Then the tuple of the keywords of a call: its last arguments.
inline constexpr uint8_t kVersionNames = 3;

// As api/include/sheaf/internal/encoder.h has them.
enum ExtType : int8_t {
  kExtArray = 1,
  kExtBuffer = 2,
  kExtObject = 3,
  kExtActor = 4,
  kExtTuple = 5
};
struct NestedForm {
  uint32_t index;
  char id[16];
};
struct ArraysHead {
  uint8_t mark = kOutOfBandMark;
  uint8_t version = kVersionArrays;
  uint16_t buffer_count = 0;
  uint32_t body_bytes = 0;
};
static_assert(sizeof(NestedForm) == 20 && sizeof(ArraysHead) == 8);

class NativeEncoder {
 public:
  NativeEncoder() : position_(local_), begin_(local_), end_(local_ + sizeof(local_)) {}
  NativeEncoder(const NativeEncoder&) = delete;
  NativeEncoder& operator=(const NativeEncoder&) = delete;

  // False: not for this codec; no exception is set, and what was written so far means nothing. Runs
  // no Python code.
  bool Encode(PyObject* value);
  // Room for another value.
  void Clear();
  void WriteByte(uint8_t byte) { Write(&byte, 1); }

  // The value is body(), then tail(): the bytes of a large str or bytes, borrowed from it.
  std::string_view body() const { return {begin_, static_cast<size_t>(position_ - begin_)}; }
  std::string_view tail() const { return tail_; }
  size_t size() const { return body().size() + tail_.size(); }
  const std::vector<ObjectHandle>& nested() const { return nested_; }

 private:
  bool EncodeItem(PyObject* value, int depth);
  bool EncodeOther(PyObject* value, int depth);
  bool EncodeInteger(PyObject* value);
  bool EncodeText(PyObject* value, int depth);
  bool EncodeBytes(PyObject* value, int depth);
  bool EncodeReference(PyObject* value);
  template <class Item>
  bool EncodeSequence(Py_ssize_t count, Item item, int depth);
  bool EncodeDict(PyObject* value, int depth);
  bool EnterContainer(PyObject* value);
  bool WriteString(std::string_view bytes, uint8_t tag8, int depth);
  void Write(const void* data, size_t size) {
    if (static_cast<size_t>(end_ - position_) < size) [[unlikely]]
      Grow(size);
    __builtin_memcpy(position_, data, size);
    position_ += size;
  }
  template <class Number>
  void WriteTagged(uint8_t tag, Number number);
  void WriteCount(size_t count, uint8_t fixed, size_t fixed_limit, uint8_t tag16);
  void Grow(size_t size);

  static constexpr int kMaxDepth = 8;
  static constexpr int kMaxItems =
      1024;  // Of all containers together but those of references alone; more are pickled.
  // Lists, dicts and long tuples: one that comes twice must stay one, which pickle does.
  static constexpr int kMaxContainers = 16;

  char* position_;
  char* begin_;
  char* end_;
  std::unique_ptr<char[]> heap_;
  std::string_view tail_;
  std::vector<ObjectHandle> nested_;
  int items_ = 0;
  int containers_ = 0;
  PyObject* seen_[kMaxContainers];
  char local_[512];
};

// The memory of an array that lies outside, by its index; nullptr: there is none.
using BufferSource = std::function<PyObject*(uint32_t index)>;
// `handles`: the references inside the value; `buffers` may be null: it has none. A new reference,
// or nullptr with an exception set.
PyObject* DecodeNative(std::string_view bytes, std::span<const ObjectHandle> handles,
                       const BufferSource* buffers = nullptr);

// The reference that a value names by its place and id. nullptr: an exception is set.
PyObject* ReferenceNamed(std::span<const ObjectHandle> handles, uint32_t index, ObjectId id);

}  // namespace sheaf::python
