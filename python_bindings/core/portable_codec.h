// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Values that every language of Sheaf reads, in the form that api/include/sheaf/internal/encoder.h
// describes: None, bool, int (64 bits), float, str, bytes, lists and dicts of them (tuples are
// lists), references, and one-dimensional arrays of numbers, which lie outside of the rest when
// they are long. docs/cross_language.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "object_store/parallel_copy.h"
#include "python_bindings/core/python.h"
#include "worker/owner/object_handle.h"

namespace sheaf::python {

// One value in the making; holds its arrays meanwhile. With the GIL.
class PlainEncoder {
 public:
  PlainEncoder() = default;
  ~PlainEncoder();
  PlainEncoder(const PlainEncoder&) = delete;
  PlainEncoder& operator=(const PlainEncoder&) = delete;

  // Once. False: TypeError is set, which begins with `what` ("argument 1") and the place inside.
  bool Encode(PyObject* value, std::string_view what);

  size_t size() const;
  // Without the GIL, if need be.
  void CopyTo(char* out, Pages pages = Pages::kEntered) const;
  // The whole value, if it lies in one piece.
  std::string_view whole() const { return buffers_.empty() ? body_ : std::string_view(); }
  const std::vector<ObjectHandle>& nested() const { return nested_; }

 private:
  bool Item(PyObject* value, int depth);
  bool Integer(PyObject* value);
  bool Text(std::string_view bytes, uint8_t tag8);
  bool Sequence(PyObject* value, bool tuple, int depth);
  bool Dict(PyObject* value, int depth);
  bool Numbers(PyObject* value);
  bool Scalar(char format, const Py_buffer& number);
  bool Reference(PyObject* value);
  bool Refuse(PyObject* value, std::string_view why = {});

  template <class Number>
  void Tagged(uint8_t tag, Number number);
  void Count(size_t count, uint8_t fixed, uint8_t tag16);
  void Byte(uint8_t byte) { body_.push_back(static_cast<char>(byte)); }

  std::string body_;
  std::vector<Py_buffer> buffers_;
  std::vector<ObjectHandle> nested_;
  std::string place_;   // Of what is refused, from the inside out: "[3]['weights']".
  std::string reason_;  // Why.
};

// The bytes of a plain value in one piece, as a new bytes object; nullptr: an exception is set.
PyObject* EncodePlain(PyObject* module, PyObject* value);
// And back.
PyObject* DecodePlain(PyObject* module, PyObject* bytes);

}  // namespace sheaf::python
