// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Values that consist of parts, each of which can be read without the others
// (docs/design/parts.md):
//   PartsHead | BufferEntry[part_count] | zeros | part | zeros | part ...
// with each part at a multiple of 64 from the start:
//   PartMark | a value
// Little-endian. The mark says of which value it is a part, by a digest of all places: one that was
// made anew may lie otherwise, and nobody shall take what lies there for a part.
#pragma once

#include <cstdint>

#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/python.h"

namespace sheaf::python {

struct PartsHead {
  uint8_t mark = kOutOfBandMark;
  uint8_t version = kVersionParts;
  uint16_t reserved = 0;
  uint32_t part_count = 0;
};
struct PartMark {
  uint32_t magic = kMagic;
  uint32_t index = 0;
  uint64_t digest = 0;
  uint64_t zeros[6] = {};

  static constexpr uint32_t kMagic = 0x54504853;  // "SHPT"
};
static_assert(sizeof(PartsHead) == 8 && sizeof(PartMark) == 64);

// The type sheaf._core.Parts: the parts of one value, encoded. False: an exception is set.
bool AddPartsType(PyObject* module);
bool IsParts(PyObject* object);

// Of a Parts object: the bytes of the whole value.
size_t PartsBytes(PyObject* parts);
// Without the GIL, if need be; the caller holds a reference.
void CopyParts(PyObject* parts, char* out, Pages pages);

// A list of all parts; nullptr: an exception is set.
PyObject* DecodeParts(const ObjectView& view);

extern PyMethodDef part_functions[];

}  // namespace sheaf::python
