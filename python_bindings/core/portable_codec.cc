// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "python_bindings/core/portable_codec.h"

#include <bit>
#include <concepts>
#include <cstring>

#include "object_store/parallel_copy.h"
#include "python_bindings/core/native_codec.h"
#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/process.h"
#include "python_bindings/core/reference.h"

namespace sheaf::python {
namespace {

constexpr int kMaxDepth = 200;  // As C++ has it.
constexpr size_t kInlineArrayBytes = 256;
constexpr size_t kMaxBuffers = 0xffff;
constexpr char kWhatTravels[] =
    "calls between languages take None, bool, int, float, str, bytes, lists, tuples and dicts of "
    "them, references, and one-dimensional arrays of numbers";

constexpr size_t Aligned64(size_t bytes) { return (bytes + 63) & ~size_t{63}; }

template <std::integral Number>
Number BigEndian(Number number) {
  if constexpr (sizeof(Number) == 2) return static_cast<Number>(__builtin_bswap16(number));
  if constexpr (sizeof(Number) == 4) return static_cast<Number>(__builtin_bswap32(number));
  if constexpr (sizeof(Number) == 8) return static_cast<Number>(__builtin_bswap64(number));
  return number;
}

std::string TypeNameOf(PyObject* value) {
  const Owned name =
      Owned::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(value)), "__name__"));
  Py_ssize_t size = 0;
  const char* const text = name ? PyUnicode_AsUTF8AndSize(name.get(), &size) : nullptr;
  PyErr_Clear();
  return text == nullptr ? "value" : std::string(text, static_cast<size_t>(size));
}

std::string ReprOf(PyObject* value) {
  const Owned repr = Owned::Steal(PyObject_Repr(value));
  Py_ssize_t size = 0;
  const char* const text = repr ? PyUnicode_AsUTF8AndSize(repr.get(), &size) : nullptr;
  PyErr_Clear();
  return text == nullptr ? "?" : std::string(text, static_cast<size_t>(size)).substr(0, 60);
}

// The type of the numbers of a buffer as the format names it (NumberKind of type_traits.h); 0: they
// are none.
uint8_t KindOf(char format, Py_ssize_t item_bytes) {
  const bool integral_size =
      item_bytes == 1 || item_bytes == 2 || item_bytes == 4 || item_bytes == 8;
  if (!integral_size || format == '\0') return 0;
  if (std::strchr("bhilqn", format) != nullptr) return static_cast<uint8_t>(0x10 + item_bytes);
  if (std::strchr("BHILQN", format) != nullptr) return static_cast<uint8_t>(0x20 + item_bytes);
  if (format == 'f' || format == 'd') return static_cast<uint8_t>(0x30 + item_bytes);
  return 0;
}

// Of one number per item; '\0': something else.
char FormatOf(const Py_buffer& buffer) {
  const char* format = buffer.format == nullptr ? "B" : buffer.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  return format[0] != '\0' && format[1] == '\0' ? format[0] : '\0';
}

}  // namespace

PlainEncoder::~PlainEncoder() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
}

template <class Number>
void PlainEncoder::Tagged(uint8_t tag, Number number) {
  const Number swapped = BigEndian(number);
  Byte(tag);
  body_.append(reinterpret_cast<const char*>(&swapped), sizeof swapped);
}

// The head of a list or dict: `fixed` | count below 16, else `tag16` or the next with 32 bits.
void PlainEncoder::Count(size_t count, uint8_t fixed, uint8_t tag16) {
  if (count < 16) {
    Byte(static_cast<uint8_t>(fixed | count));
  } else if (count <= 0xffff) {
    Tagged(tag16, static_cast<uint16_t>(count));
  } else {
    Tagged(static_cast<uint8_t>(tag16 + 1), static_cast<uint32_t>(count));
  }
}

bool PlainEncoder::Refuse(PyObject* value, std::string_view why) {
  if (!reason_.empty()) return false;
  reason_ = "is a " + TypeNameOf(value) + ": " + std::string(why.empty() ? kWhatTravels : why);
  return false;
}

bool PlainEncoder::Encode(PyObject* value, std::string_view what) {
  if (Item(value, 0)) return true;
  if (CallbackScope::Interrupted()) return false;
  PyErr_Clear();
  const std::string words = std::string(what) + place_ + " " + reason_;
  const Owned text = Owned::Steal(NewText(words));
  if (text) PyErr_SetObject(PyExc_TypeError, text.get());
  return false;
}

bool PlainEncoder::Item(PyObject* value, int depth) {
  if (value == Py_None) return Byte(0xc0), true;
  if (value == Py_True) return Byte(0xc3), true;
  if (value == Py_False) return Byte(0xc2), true;
  if (PyLong_Check(value)) return Integer(value);
  if (PyFloat_Check(value)) {
    Tagged(0xcb, std::bit_cast<uint64_t>(PyFloat_AsDouble(value)));
    return true;
  }
  if (PyUnicode_Check(value)) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text == nullptr) return Refuse(value, "it has lone surrogates, which are no UTF-8");
    if (size >= 32) return Text({text, static_cast<size_t>(size)}, 0xd9);
    Byte(static_cast<uint8_t>(0xa0 | size));
    body_.append(text, static_cast<size_t>(size));
    return true;
  }
  if (PyBytes_Check(value)) return Text(BytesOf(value), 0xc4);
  if (Py_TYPE(value) == reference_type) return Reference(value);
  if (depth == kMaxDepth)
    return Refuse(value, "it lies more than 200 deep, or a list contains itself");
  if (PyList_Check(value)) return Sequence(value, false, depth);
  if (PyTuple_Check(value)) return Sequence(value, true, depth);
  if (PyDict_Check(value)) return Dict(value, depth);
  if (PyObject_CheckBuffer(value) != 0) return Numbers(value);
  return Refuse(value);
}

bool PlainEncoder::Integer(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) {
    if (number >= -32 && number < 128) {
      Byte(static_cast<uint8_t>(number));
    } else {
      Tagged(0xd3, static_cast<uint64_t>(number));
    }
    return true;
  }
  const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(value) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr)
    return Refuse(value, "it has more than 64 bits: send it as text");
  Tagged(0xcf, static_cast<uint64_t>(large));
  return true;
}

// `tag8`: of up to 255 bytes; the next two are for 16 and 32 bits.
bool PlainEncoder::Text(std::string_view bytes, uint8_t tag8) {
  if (bytes.size() < 256) {
    Tagged(tag8, static_cast<uint8_t>(bytes.size()));
  } else if (bytes.size() <= 0xffff) {
    Tagged(static_cast<uint8_t>(tag8 + 1), static_cast<uint16_t>(bytes.size()));
  } else if (bytes.size() <= UINT32_MAX) {
    Tagged(static_cast<uint8_t>(tag8 + 2), static_cast<uint32_t>(bytes.size()));
  } else {
    reason_ = "has more than 4 GiB: send it as an array of uint8";
    return false;
  }
  body_.append(bytes);
  return true;
}

bool PlainEncoder::Sequence(PyObject* value, bool tuple, int depth) {
  const Py_ssize_t count = tuple ? PyTuple_Size(value) : PyList_Size(value);
  Count(static_cast<size_t>(count), 0x90, 0xdc);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Owned item = Owned::Borrow(tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i));
    if (!item) return Refuse(value, "it was changed meanwhile");
    if (!Item(item.get(), depth + 1)) {
      place_ = "[" + std::to_string(i) + "]" + place_;
      return false;
    }
  }
  return true;
}

bool PlainEncoder::Dict(PyObject* value, int depth) {
  const Py_ssize_t count = PyDict_Size(value);
  Count(static_cast<size_t>(count), 0x80, 0xde);
  Py_ssize_t at = 0;
  Py_ssize_t written = 0;
  PyObject* next_key = nullptr;
  PyObject* next_item = nullptr;
  for (; PyDict_Next(value, &at, &next_key, &next_item) != 0; ++written) {
    const Owned key = Owned::Borrow(next_key);
    const Owned item = Owned::Borrow(next_item);
    if (!Item(key.get(), depth + 1)) {
      place_ = " key " + ReprOf(key.get()) + place_;
      return false;
    }
    if (!Item(item.get(), depth + 1)) {
      place_ = "[" + ReprOf(key.get()) + "]" + place_;
      return false;
    }
  }
  return written == count || Refuse(value, "it was changed meanwhile");
}

bool PlainEncoder::Numbers(PyObject* value) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(value, &buffer, PyBUF_FORMAT | PyBUF_STRIDES) != 0) return Refuse(value);
  const char format = FormatOf(buffer);
  const uint8_t kind = KindOf(format, buffer.itemsize);
  std::string why;
  if (kind == 0 && !(format == '?' && buffer.ndim == 0)) {
    why = std::string("its items ('") + (buffer.format == nullptr ? "B" : buffer.format) +
          "') are no integers of 1 to 8 bytes, float32 or float64";
  } else if (buffer.ndim > 1) {
    why =
        "it has " + std::to_string(buffer.ndim) + " dimensions: send array.ravel(), and the shape";
  } else if (PyBuffer_IsContiguous(&buffer, 'C') == 0) {
    why = "its items are not side by side: send numpy.ascontiguousarray(array)";
  } else if (buffers_.size() == kMaxBuffers) {
    why = "it is one of more than 65,535 large arrays";
  }
  if (!why.empty()) {
    PyBuffer_Release(&buffer);
    return Refuse(value, why);
  }
  const size_t bytes = static_cast<size_t>(buffer.len);
  if (buffer.ndim == 0) {
    const bool fits = Scalar(format, buffer);
    PyBuffer_Release(&buffer);
    return fits;
  }
  if (bytes <= kInlineArrayBytes) {
    Tagged(0xc8, static_cast<uint16_t>(bytes + 1));
    Byte(kExtArray);
    Byte(kind);
    body_.append(static_cast<const char*>(buffer.buf), bytes);
    PyBuffer_Release(&buffer);
    return true;
  }
  const uint32_t index = static_cast<uint32_t>(buffers_.size());
  buffers_.push_back(buffer);
  for (const uint8_t byte : {uint8_t{0xc7}, uint8_t{5}, uint8_t{kExtBuffer}, kind}) Byte(byte);
  body_.append(reinterpret_cast<const char*>(&index), sizeof index);
  return true;
}

// A NumPy scalar: as the plain number.
bool PlainEncoder::Scalar(char format, const Py_buffer& number) {
  const bool is_signed = std::strchr("bhilqn", format) != nullptr;
  uint64_t bits = 0;
  std::memcpy(&bits, number.buf, static_cast<size_t>(number.itemsize));
  if (format == '?') {
    Byte(bits != 0 ? 0xc3 : 0xc2);
  } else if (format == 'f') {
    Tagged(0xca, static_cast<uint32_t>(bits));
  } else if (format == 'd') {
    Tagged(0xcb, bits);
  } else if (is_signed) {
    const int unused = 64 - 8 * static_cast<int>(number.itemsize);
    Tagged(0xd3, static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused));
  } else {
    Tagged(0xcf, bits);
  }
  return true;
}

bool PlainEncoder::Reference(PyObject* value) {
  if (!IsCurrent(value)) return Refuse(value, "it belongs to a session that has ended");
  const ObjectHandle& handle = HandleOf(value);
  NestedForm form;
  form.index = static_cast<uint32_t>(nested_.size());
  const ObjectId id = handle.id();
  std::memcpy(form.id, &id, sizeof id);
  nested_.push_back(handle);
  for (const uint8_t byte : {uint8_t{0xc7}, uint8_t{sizeof form}, uint8_t{kExtObject}}) Byte(byte);
  body_.append(reinterpret_cast<const char*>(&form), sizeof form);
  return true;
}

size_t PlainEncoder::size() const {
  if (buffers_.empty()) return body_.size();
  size_t size = sizeof(ArraysHead) + buffers_.size() * sizeof(BufferEntry) + body_.size();
  for (const Py_buffer& buffer : buffers_) size = Aligned64(size) + static_cast<size_t>(buffer.len);
  return size;
}

void PlainEncoder::CopyTo(char* out, Pages pages) const {
  if (buffers_.empty()) {
    std::memcpy(out, body_.data(), body_.size());
    return;
  }
  ArraysHead head;
  head.buffer_count = static_cast<uint16_t>(buffers_.size());
  head.body_bytes = static_cast<uint32_t>(body_.size());
  std::memcpy(out, &head, sizeof head);
  size_t at = sizeof head + buffers_.size() * sizeof(BufferEntry);
  std::memcpy(out + at, body_.data(), body_.size());
  at += body_.size();
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const size_t begin = Aligned64(at);
    std::memset(out + at, 0, begin - at);
    const BufferEntry entry{begin, static_cast<uint64_t>(buffers_[i].len)};
    std::memcpy(out + sizeof head + i * sizeof entry, &entry, sizeof entry);
    ParallelCopy(out + begin, buffers_[i].buf, entry.bytes, pages);
    at = begin + entry.bytes;
  }
}

PyObject* EncodePlain(PyObject*, PyObject* value) {
  PlainEncoder encoder;
  if (!encoder.Encode(value, "the value")) return nullptr;
  if (!encoder.nested().empty()) {
    PyErr_SetString(PyExc_TypeError, "references cannot be kept outside of the cluster");
    return nullptr;
  }
  std::string bytes(encoder.size(), '\0');
  encoder.CopyTo(bytes.data());
  return NewBytes(bytes);
}

PyObject* DecodePlain(PyObject*, PyObject* bytes) {
  if (PyBytes_Check(bytes) == 0) {
    PyErr_SetString(PyExc_TypeError, "decode_plain(bytes)");
    return nullptr;
  }
  ObjectView view;
  view.bytes = BytesOf(bytes);
  return DecodeValue(view);
}

}  // namespace sheaf::python
