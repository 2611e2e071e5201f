// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/native_codec.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>

#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"
#include "worker/limits.h"

namespace sheaf::python {
namespace {

constexpr size_t kLargeString = 4096;  // Not copied into the encoder when it is the whole value.

PythonFunction array_of("sheaf._internal.serialization", "array_of");

template <class Number>
Number BigEndian(Number number) {
  if constexpr (sizeof(Number) == 2)
    return static_cast<Number>(__builtin_bswap16(static_cast<uint16_t>(number)));
  if constexpr (sizeof(Number) == 4)
    return static_cast<Number>(__builtin_bswap32(static_cast<uint32_t>(number)));
  if constexpr (sizeof(Number) == 8)
    return static_cast<Number>(__builtin_bswap64(static_cast<uint64_t>(number)));
  return number;
}

// Types by address; in the stable ABI the macros for subclasses are calls.
bool Is(PyObject* value, PyTypeObject& type) { return Py_TYPE(value) == &type; }

}  // namespace

void NativeEncoder::Clear() {
  position_ = begin_;
  tail_ = {};
  nested_.clear();
  items_ = 0;
  containers_ = 0;
}

void NativeEncoder::Grow(size_t size) {
  const size_t used = body().size();
  const size_t capacity = std::max(2 * static_cast<size_t>(end_ - begin_), used + size);
  std::unique_ptr<char[]> larger(new char[capacity]);
  std::memcpy(larger.get(), begin_, used);
  heap_ = std::move(larger);
  begin_ = heap_.get();
  position_ = begin_ + used;
  end_ = begin_ + capacity;
}

template <class Number>
void NativeEncoder::WriteTagged(uint8_t tag, Number number) {
  char bytes[1 + sizeof(Number)];
  bytes[0] = static_cast<char>(tag);
  const Number swapped = BigEndian(number);
  std::memcpy(bytes + 1, &swapped, sizeof(Number));
  Write(bytes, sizeof bytes);
}

// The head of an array, map or string: `fixed` | count below `fixed_limit`, else `tag16` or the
// next with 16 or 32 bits.
void NativeEncoder::WriteCount(size_t count, uint8_t fixed, size_t fixed_limit, uint8_t tag16) {
  if (count < fixed_limit) {
    WriteByte(static_cast<uint8_t>(fixed | count));
  } else if (count <= 0xffff) {
    WriteTagged(tag16, static_cast<uint16_t>(count));
  } else {
    WriteTagged(static_cast<uint8_t>(tag16 + 1), static_cast<uint32_t>(count));
  }
}

bool NativeEncoder::Encode(PyObject* value) { return EncodeItem(value, 0); }

bool NativeEncoder::EncodeItem(PyObject* value, int depth) {
  if (Is(value, PyLong_Type)) return EncodeInteger(value);
  if (value == Py_None) return WriteByte(0xc0), true;
  if (value == Py_True) return WriteByte(0xc3), true;
  if (value == Py_False) return WriteByte(0xc2), true;
  if (Is(value, PyFloat_Type)) {
    WriteTagged(0xcb, std::bit_cast<uint64_t>(PyFloat_AsDouble(value)));
    return true;
  }
  if (Is(value, PyUnicode_Type)) return EncodeText(value, depth);
  return EncodeOther(value, depth);
}

bool NativeEncoder::EncodeOther(PyObject* value, int depth) {
  if (Is(value, PyBytes_Type)) return EncodeBytes(value, depth);
  if (Py_TYPE(value) == reference_type) return EncodeReference(value);
  if (depth == kMaxDepth) return false;
  if (Is(value, PyTuple_Type)) {
    const Py_ssize_t count = PyTuple_Size(value);
    // A short one is written each time that it comes. A long one may come a thousand times.
    if (count > kMaxItems - items_ && !EnterContainer(value)) return false;
    constexpr uint8_t mark[] = {0xc7, 0, kExtTuple};
    Write(mark, sizeof mark);
    return EncodeSequence(
        count, [value](Py_ssize_t i) { return PyTuple_GetItem(value, i); }, depth);
  }
  if (Is(value, PyList_Type)) {
    const Py_ssize_t count = PyList_Size(value);
    if (!EnterContainer(value)) return false;
    return EncodeSequence(count, [value](Py_ssize_t i) { return PyList_GetItem(value, i); }, depth);
  }
  if (Is(value, PyDict_Type)) return EncodeDict(value, depth);
  return false;
}

bool NativeEncoder::EnterContainer(PyObject* value) {
  if (containers_ == kMaxContainers) return false;
  if (std::find(seen_, seen_ + containers_, value) != seen_ + containers_) return false;
  seen_[containers_++] = value;
  return true;
}

template <class Item>
bool NativeEncoder::EncodeSequence(Py_ssize_t count, Item item, int depth) {
  if (count > kMaxItems - items_) {
    // References have no parts that could come twice, and pickling calls Python for each.
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (Py_TYPE(item(i)) != reference_type) return false;
    }
    // Pickling writes a reference that comes often once.
    if (nested_.size() + static_cast<size_t>(count) > kMaxNested) return false;
    nested_.reserve(nested_.size() + static_cast<size_t>(count));
  } else {
    items_ += static_cast<int>(count);
  }
  WriteCount(static_cast<size_t>(count), 0x90, 16, 0xdc);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!EncodeItem(item(i), depth + 1)) return false;
  }
  return true;
}

bool NativeEncoder::EncodeDict(PyObject* value, int depth) {
  const Py_ssize_t count = PyDict_Size(value);
  if (2 * count > kMaxItems - items_ || !EnterContainer(value)) return false;
  items_ += static_cast<int>(2 * count);
  WriteCount(static_cast<size_t>(count), 0x80, 16, 0xde);
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  while (PyDict_Next(value, &at, &key, &item) != 0) {
    if (!EncodeItem(key, depth + 1) || !EncodeItem(item, depth + 1)) return false;
  }
  return true;
}

bool NativeEncoder::EncodeInteger(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) return false;
  if (number >= -32 && number < 128) {
    WriteByte(static_cast<uint8_t>(number));
  } else if (number >= INT32_MIN && number <= INT32_MAX) {
    WriteTagged(0xd2, static_cast<uint32_t>(number));
  } else {
    WriteTagged(0xd3, static_cast<uint64_t>(number));
  }
  return true;
}

bool NativeEncoder::EncodeText(PyObject* value, int depth) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text == nullptr) {  // Lone surrogates.
    PyErr_Clear();
    return false;
  }
  if (static_cast<uint64_t>(size) > UINT32_MAX) return false;
  if (size < 32) {
    WriteByte(static_cast<uint8_t>(0xa0 | size));
    Write(text, static_cast<size_t>(size));
    return true;
  }
  return WriteString({text, static_cast<size_t>(size)}, 0xd9, depth);
}

bool NativeEncoder::EncodeBytes(PyObject* value, int depth) {
  const std::string_view bytes = BytesOf(value);
  return bytes.size() <= UINT32_MAX && WriteString(bytes, 0xc4, depth);
}

// `tag8`: of up to 255 bytes; the next two are for 16 and 32 bits.
bool NativeEncoder::WriteString(std::string_view bytes, uint8_t tag8, int depth) {
  if (bytes.size() < 256) {
    WriteTagged(tag8, static_cast<uint8_t>(bytes.size()));
  } else if (bytes.size() <= 0xffff) {
    WriteTagged(static_cast<uint8_t>(tag8 + 1), static_cast<uint16_t>(bytes.size()));
  } else {
    WriteTagged(static_cast<uint8_t>(tag8 + 2), static_cast<uint32_t>(bytes.size()));
  }
  if (depth == 0 && bytes.size() >= kLargeString) {
    tail_ = bytes;
  } else {
    Write(bytes.data(), bytes.size());
  }
  return true;
}

bool NativeEncoder::EncodeReference(PyObject* value) {
  if (!IsCurrent(value)) {  // Pickling will say so.
    PyErr_Clear();
    return false;
  }
  const ObjectHandle& handle = HandleOf(value);
  NestedForm form;
  form.index = static_cast<uint32_t>(nested_.size());
  const ObjectId id = handle.id();
  std::memcpy(form.id, &id, sizeof id);
  nested_.push_back(handle);
  constexpr uint8_t head[] = {0xc7, sizeof form, kExtObject};
  Write(head, sizeof head);
  Write(&form, sizeof form);
  return true;
}

namespace {

class NativeDecoder {
 public:
  NativeDecoder(std::string_view bytes, std::span<const ObjectHandle> handles,
                const BufferSource* buffers)
      : position_(bytes.data()),
        end_(bytes.data() + bytes.size()),
        handles_(handles),
        buffers_(buffers) {}
  PyObject* Decode() {
    PyObject* const value = Item(0);
    if (value == nullptr || position_ == end_) return value;
    Py_DECREF(value);
    return Fail("bytes are left over");
  }

 private:
  static constexpr int kMaxDepth = 200;

  static PyObject* Fail(const char* what) {
    if (PyErr_Occurred() == nullptr)
      PyErr_Format(PyExc_ValueError, "these bytes are no value of Sheaf: %s", what);
    return nullptr;
  }
  bool Has(size_t bytes) const { return static_cast<size_t>(end_ - position_) >= bytes; }
  template <class Number>
  bool Read(Number* number) {
    if (!Has(sizeof(Number))) return false;
    std::memcpy(number, position_, sizeof(Number));
    *number = BigEndian(*number);
    position_ += sizeof(Number);
    return true;
  }
  // A count of 1, 2 or 4 bytes.
  bool ReadCount(int bytes, size_t* count) {
    uint8_t one = 0;
    uint16_t two = 0;
    uint32_t four = 0;
    const bool ok = bytes == 1 ? Read(&one) : bytes == 2 ? Read(&two) : Read(&four);
    *count = bytes == 1 ? one : bytes == 2 ? two : four;
    return ok;
  }

  PyObject* Item(int depth) {
    uint8_t tag = 0;
    if (!Read(&tag)) return Fail("too short");
    if (tag < 0x80) return PyLong_FromLong(tag);
    if (tag >= 0xe0) return PyLong_FromLong(static_cast<int8_t>(tag));
    if (tag >= 0xa0 && tag < 0xc0) return Text(tag & 0x1f);
    if (tag >= 0x90 && tag < 0xa0) return List(tag & 0x0f, depth);
    if (tag < 0x90) return Dict(tag & 0x0f, depth);
    return Tagged(tag, depth);
  }

  PyObject* Tagged(uint8_t tag, int depth) {
    size_t count = 0;
    switch (tag) {
      case 0xc0:
        return Owned::Borrow(Py_None).Release();
      case 0xc2:
        return Owned::Borrow(Py_False).Release();
      case 0xc3:
        return Owned::Borrow(Py_True).Release();
      case 0xca:
        return Number<uint32_t>(
            [](uint32_t bits) { return PyFloat_FromDouble(std::bit_cast<float>(bits)); });
      case 0xcb:
        return Number<uint64_t>(
            [](uint64_t bits) { return PyFloat_FromDouble(std::bit_cast<double>(bits)); });
      case 0xcc:
        return Number<uint8_t>([](uint8_t n) { return PyLong_FromLong(n); });
      case 0xcd:
        return Number<uint16_t>([](uint16_t n) { return PyLong_FromLong(n); });
      case 0xce:
        return Number<uint32_t>([](uint32_t n) { return PyLong_FromUnsignedLongLong(n); });
      case 0xcf:
        return Number<uint64_t>([](uint64_t n) { return PyLong_FromUnsignedLongLong(n); });
      case 0xd0:
        return Number<int8_t>([](int8_t n) { return PyLong_FromLong(n); });
      case 0xd1:
        return Number<int16_t>([](int16_t n) { return PyLong_FromLong(n); });
      case 0xd2:
        return Number<int32_t>([](int32_t n) { return PyLong_FromLong(n); });
      case 0xd3:
        return Number<int64_t>([](int64_t n) { return PyLong_FromLongLong(n); });
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return ReadCount(1 << (tag - 0xc4), &count) ? Bytes(count) : Fail("too short");
      case 0xd9:
      case 0xda:
      case 0xdb:
        return ReadCount(1 << (tag - 0xd9), &count) ? Text(count) : Fail("too short");
      case 0xdc:
      case 0xdd:
        return ReadCount(2 << (tag - 0xdc), &count) ? List(count, depth) : Fail("too short");
      case 0xde:
      case 0xdf:
        return ReadCount(2 << (tag - 0xde), &count) ? Dict(count, depth) : Fail("too short");
      case 0xd4:
      case 0xd5:
      case 0xd6:
      case 0xd7:
      case 0xd8:
        return Extension(size_t{1} << (tag - 0xd4), depth);
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return ReadCount(1 << (tag - 0xc7), &count) ? Extension(count, depth) : Fail("too short");
      default:
        return Fail("an unknown kind of value");
    }
  }

  template <class Bits, class Make>
  PyObject* Number(Make make) {
    Bits bits{};
    return Read(&bits) ? make(bits) : Fail("too short");
  }
  PyObject* Text(size_t size) {
    if (!Has(size)) return Fail("too short");
    const char* const text = std::exchange(position_, position_ + size);
    return PyUnicode_FromStringAndSize(text, static_cast<Py_ssize_t>(size));
  }
  PyObject* Bytes(size_t size) {
    if (!Has(size)) return Fail("too short");
    return PyBytes_FromStringAndSize(std::exchange(position_, position_ + size),
                                     static_cast<Py_ssize_t>(size));
  }
  PyObject* List(size_t count, int depth) {
    if (depth == kMaxDepth || !Has(count)) return Fail("too short, or too deep");
    Owned list = Owned::Steal(PyList_New(static_cast<Py_ssize_t>(count)));
    for (size_t i = 0; list && i < count; ++i) {
      PyObject* const item = Item(depth + 1);
      if (item == nullptr) return nullptr;
      PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), item);
    }
    return list.Release();
  }
  PyObject* Tuple(size_t count, int depth) {
    if (depth == kMaxDepth || !Has(count)) return Fail("too short, or too deep");
    Owned tuple = Owned::Steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (size_t i = 0; tuple && i < count; ++i) {
      PyObject* const item = Item(depth + 1);
      if (item == nullptr) return nullptr;
      PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), item);
    }
    return tuple.Release();
  }
  PyObject* Dict(size_t count, int depth) {
    if (depth == kMaxDepth || !Has(count)) return Fail("too short, or too deep");
    Owned dict = Owned::Steal(PyDict_New());
    for (size_t i = 0; dict && i < count; ++i) {
      const Owned key = Owned::Steal(Item(depth + 1));
      if (!key) return nullptr;
      const Owned value = Owned::Steal(Item(depth + 1));
      if (!value || PyDict_SetItem(dict.get(), key.get(), value.get()) != 0) return nullptr;
    }
    return dict.Release();
  }
  // Numbers of C++, in place or outside, as a NumPy array.
  PyObject* Array(int8_t type, size_t size) {
    const uint8_t kind = static_cast<uint8_t>(*position_);
    const std::string_view content(position_ + 1, size - 1);
    position_ += size;
    Owned memory;
    if (type == kExtArray) {
      memory = Owned::Steal(NewAlignedCopy(content));
    } else {
      uint32_t index = 0;
      if (buffers_ == nullptr || content.size() != sizeof index) return Fail("a malformed array");
      std::memcpy(&index, content.data(), sizeof index);
      memory = Owned::Steal((*buffers_)(index));
    }
    const Owned number = Owned::Steal(PyLong_FromLong(kind));
    if (!memory || !number) return Fail("an array that is not there");
    return array_of(memory.get(), number.get());
  }
  PyObject* Extension(size_t size, int depth) {
    int8_t type = 0;
    if (!Read(&type) || !Has(size)) return Fail("too short");
    if ((type == kExtArray || type == kExtBuffer) && size > 0) return Array(type, size);
    if (type == kExtActor) {
      return Fail(
          "it holds an actor's handle of C++, which Python cannot use: name the actor, and find it "
          "with get_actor");
    }
    if (type == kExtObject && size == sizeof(NestedForm)) {
      NestedForm form;
      std::memcpy(&form, position_, sizeof form);
      position_ += sizeof form;
      ObjectId id;
      std::memcpy(&id, form.id, sizeof id);
      return ReferenceNamed(handles_, form.index, id);
    }
    uint8_t tag = 0;
    if (type != kExtTuple || size != 0 || !Read(&tag)) return Fail("an unknown extension");
    size_t count = tag & 0x0f;
    if (tag >= 0x90 && tag < 0xa0) return Tuple(count, depth);
    if ((tag != 0xdc && tag != 0xdd) || !ReadCount(2 << (tag - 0xdc), &count))
      return Fail("a tuple without items");
    return Tuple(count, depth);
  }

  const char* position_;
  const char* const end_;
  const std::span<const ObjectHandle> handles_;
  const BufferSource* const buffers_;
};

}  // namespace

PyObject* DecodeNative(std::string_view bytes, std::span<const ObjectHandle> handles,
                       const BufferSource* buffers) {
  return NativeDecoder(bytes, handles, buffers).Decode();
}

PyObject* ReferenceNamed(std::span<const ObjectHandle> handles, uint32_t index, ObjectId id) {
  if (index < handles.size() && handles[index].id() == id) return NewReference(handles[index]);
  for (const ObjectHandle& handle : handles) {
    if (handle.id() == id) return NewReference(handle);
  }
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) return nullptr;
  absl::StatusOr<ObjectHandle> handle = runtime->HandleFor(id);
  if (!handle.ok()) return RaiseStatus(handle.status(), ErrorKind::kObjectLost);
  return NewReference(*std::move(handle));
}

}  // namespace sheaf::python
