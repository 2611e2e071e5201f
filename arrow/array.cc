// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/array.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

constexpr uint8_t kNoOffsets[8] = {};  // Those of no rows.

absl::Status Malformed(const Field& field, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("column '", field.name, "' of type '", field.format, "' is malformed: ", what));
}

int64_t BuffersOf(Layout layout) {
  switch (layout) {
    case Layout::kNull:
      return 0;
    case Layout::kStruct:
    case Layout::kFixedList:
      return 1;
    case Layout::kBinary:
    case Layout::kLargeBinary:
      return 3;
    default:
      return 2;
  }
}

// `most`: where the last one may lead to.
template <class Offset>
bool Rise(const uint8_t* offsets, int64_t count, int64_t most) {
  Offset before = Load<Offset>(offsets, 0);
  bool rise = before >= 0;
  for (int64_t i = 1; i <= count; ++i) {
    const auto next = Load<Offset>(offsets, i);
    rise &= next >= before;
    before = next;
  }
  return rise && static_cast<int64_t>(before) <= most;
}

absl::Status CheckOffsets(const Field& field, const Array& array) {
  if (array.data == nullptr) return Malformed(field, "it has no offsets");
  const bool wide = HasWideOffsets(field.layout);
  const int64_t most = IsList(field.layout) ? array.children[0].length : INT64_MAX / 2;
  const uint8_t* const offsets = array.DataFrom(wide ? 8 : 4);
  if (!(wide ? Rise<int64_t>(offsets, array.length, most)
             : Rise<int32_t>(offsets, array.length, most)))
    return Malformed(field, "its offsets are negative, fall, or lead out of its values");
  if (IsBinary(field.layout) && array.bytes == nullptr &&
      OffsetAt(field, array, array.length) > OffsetAt(field, array, 0))
    return Malformed(field, "it has no bytes");
  return absl::OkStatus();
}

constexpr int64_t kMost = int64_t{1} << 46;  // Offsets in bytes then fit into 64 bits.

absl::Status CheckCounts(const Field& field, const ArrowArray& array) {
  if (array.release == nullptr) return Malformed(field, "it was released");
  if (array.length < 0 || array.offset < 0 || array.length > kMost || array.offset > kMost ||
      (array.length + array.offset) > (int64_t{1} << 62) / std::max(field.width, 1))
    return Malformed(field, absl::StrCat(array.length, " rows from row ", array.offset));
  if (array.null_count < -1 || array.null_count > array.length)
    return Malformed(field, absl::StrCat(array.null_count, " of ", array.length, " are NULL"));
  if (array.n_buffers != BuffersOf(field.layout) ||
      (array.n_buffers > 0 && array.buffers == nullptr))
    return Malformed(field,
                     absl::StrCat(array.n_buffers, " buffers, of ", BuffersOf(field.layout)));
  if (array.n_children != static_cast<int64_t>(field.children.size()) ||
      (array.n_children > 0 && array.children == nullptr))
    return Malformed(field,
                     absl::StrCat(array.n_children, " children, of ", field.children.size()));
  if ((array.dictionary == nullptr) != (field.dictionary == nullptr))
    return Malformed(field, "only one of type and values has a dictionary");
  return absl::OkStatus();
}

// What children have beside what their parent says.
absl::Status CheckChildren(const Field& field, const Array& array) {
  const int64_t end = array.offset + array.length;
  if (field.layout == Layout::kFixedList) {
    const int64_t most = array.children[0].length;
    if (field.width > 0 && end > most / field.width)
      return Malformed(field, absl::StrCat(end, " lists in ", most, " values"));
  } else if (field.layout == Layout::kStruct) {
    for (size_t i = 0; i < array.children.size(); ++i) {
      if (array.children[i].length < end)
        return Malformed(field, absl::StrCat("its part '", field.children[i].name, "' has ",
                                             array.children[i].length, " rows of ", end));
    }
  }
  return absl::OkStatus();
}

// What an ArrowArray of ours owns.
struct ArrayOwner {
  Array array;  // Its buffers.
  const void* buffers[3];
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
  ArrowArray dictionary{};
};

void ReleaseArray(ArrowArray* array) {
  auto* const owner = static_cast<ArrayOwner*>(array->private_data);
  for (ArrowArray& child : owner->children) {  // One may have been moved away.
    if (child.release != nullptr) child.release(&child);
  }
  if (owner->dictionary.release != nullptr) owner->dictionary.release(&owner->dictionary);
  delete owner;
  array->release = nullptr;
}

}  // namespace

Array NoRows(const Field& field) {
  Array empty;
  if (IsBinary(field.layout) || IsList(field.layout)) empty.data = Bytes(Bytes(), kNoOffsets);
  for (const Field& child : field.children) empty.children.push_back(NoRows(child));
  if (field.dictionary != nullptr)
    empty.dictionary = std::make_shared<const Array>(NoRows(*field.dictionary));
  return empty;
}

Array Slice(const Array& array, int64_t start, int64_t length) {
  Array slice = array;
  slice.offset += start;
  slice.length = length;
  return slice;
}

Array ChildRows(const Field& field, const Array& array, size_t child) {
  const int64_t rows = field.layout == Layout::kFixedList ? field.width : 1;
  return Slice(array.children[child], array.offset * rows, array.length * rows);
}

int64_t CountNulls(const Field& field, const Array& array) {
  if (field.layout == Layout::kNull) return array.length;
  if (array.validity == nullptr) return 0;
  return array.length - CountOnes(array.validity.get(), array.offset, array.length);
}

int64_t CountBytes(const Field& field, const Array& array, int64_t start, int64_t stop) {
  const int64_t rows = stop - start;
  if (rows == 0) return 0;
  int64_t bytes = array.validity != nullptr ? BytesOfBits(rows) : 0;
  const int64_t offset_bytes = rows * (HasWideOffsets(field.layout) ? 8 : 4);
  switch (field.layout) {
    case Layout::kNull:
    case Layout::kOther:
      return bytes;
    case Layout::kBits:
      return bytes + BytesOfBits(rows);
    case Layout::kFixed:
      return bytes + rows * field.width;
    case Layout::kBinary:
    case Layout::kLargeBinary:
      return bytes + offset_bytes + OffsetAt(field, array, stop) - OffsetAt(field, array, start);
    case Layout::kList:
    case Layout::kLargeList:
      return bytes + offset_bytes +
             CountBytes(field.children[0], array.children[0], OffsetAt(field, array, start),
                        OffsetAt(field, array, stop));
    case Layout::kStruct:
    case Layout::kFixedList:
      const int64_t each = field.layout == Layout::kFixedList ? field.width : 1;
      for (size_t i = 0; i < array.children.size(); ++i)
        bytes +=
            CountBytes(field.children[i], ChildRows(field, array, i), start * each, stop * each);
      return bytes;
  }
  return bytes;
}

absl::StatusOr<Array> ReadArray(const Field& field, const ArrowArray& array,
                                const std::shared_ptr<const void>& owner) {
  Array read;
  if (field.layout == Layout::kOther) {  // Nothing but the rows is known of it.
    if (array.length < 0 || array.length > kMost)
      return Malformed(field, absl::StrCat(array.length, " rows"));
    read.length = array.length;
    return read;
  }
  SHEAF_RETURN_IF_ERROR(CheckCounts(field, array));
  read.length = array.length;
  read.offset = array.offset;
  const auto buffer = [&](int64_t i) {
    return Bytes(owner,
                 i < array.n_buffers ? static_cast<const uint8_t*>(array.buffers[i]) : nullptr);
  };
  // A count of 0 holds whatever the bits say.
  if (array.null_count != 0 && array.n_buffers > 0) read.validity = buffer(0);
  if (array.null_count > 0 && read.validity == nullptr && array.n_buffers > 0)
    return Malformed(field, absl::StrCat(array.null_count, " are NULL, and no bits say which"));
  read.data = buffer(1);
  if ((IsBinary(field.layout) || IsList(field.layout)) && read.data == nullptr &&
      read.length == 0) {  // As old producers have it.
    read.offset = 0;
    read.data = Bytes(Bytes(), kNoOffsets);
  }
  read.bytes = buffer(2);
  for (size_t i = 0; i < field.children.size(); ++i) {
    if (array.children[i] == nullptr) return Malformed(field, "a child is missing");
    SHEAF_ASSIGN_OR_RETURN(Array child, ReadArray(field.children[i], *array.children[i], owner));
    read.children.push_back(std::move(child));
  }
  SHEAF_RETURN_IF_ERROR(CheckChildren(field, read));
  if (IsBinary(field.layout) || IsList(field.layout)) {
    SHEAF_RETURN_IF_ERROR(CheckOffsets(field, read));
  } else if (array.n_buffers == 2 && read.data == nullptr && read.length > 0 &&
             !(field.layout == Layout::kFixed && field.width == 0)) {
    return Malformed(field, "it has no values");
  }
  if (field.dictionary != nullptr) {
    SHEAF_ASSIGN_OR_RETURN(Array values, ReadArray(*field.dictionary, *array.dictionary, owner));
    read.dictionary = std::make_shared<const Array>(std::move(values));
  }
  return read;
}

void WriteArray(const Field& field, const Array& array, ArrowArray* out) {
  auto* const owner = new ArrayOwner{array, {}, {}, {}, {}};
  const Array& own = owner->array;
  owner->buffers[0] = own.validity.get();
  owner->buffers[1] = own.data.get();
  owner->buffers[2] = own.bytes.get();
  owner->children.resize(own.children.size());
  for (size_t i = 0; i < own.children.size(); ++i) {
    WriteArray(field.children[i], own.children[i], &owner->children[i]);
    owner->pointers.push_back(&owner->children[i]);
  }
  if (own.dictionary != nullptr) WriteArray(*field.dictionary, *own.dictionary, &owner->dictionary);
  *out = ArrowArray{
      .length = own.length,
      .null_count = CountNulls(field, own),
      .offset = own.offset,
      .n_buffers = BuffersOf(field.layout),
      .n_children = static_cast<int64_t>(own.children.size()),
      .buffers = owner->buffers,
      .children = owner->pointers.data(),
      .dictionary = own.dictionary != nullptr ? &owner->dictionary : nullptr,
      .release = ReleaseArray,
      .private_data = owner,
  };
}

int64_t IndexAt(const Field& field, const Array& array, int64_t row) {
  const uint8_t* const data = array.DataFrom(field.width);
  const bool is_signed = field.kind == Kind::kSigned;
  switch (field.width) {
    case 1:
      return is_signed ? Load<int8_t>(data, row) : int64_t{Load<uint8_t>(data, row)};
    case 2:
      return is_signed ? Load<int16_t>(data, row) : int64_t{Load<uint16_t>(data, row)};
    case 4:
      return is_signed ? Load<int32_t>(data, row) : int64_t{Load<uint32_t>(data, row)};
    default:
      return Load<int64_t>(data, row);  // One of 2^63 and more is negative: no dictionary has it.
  }
}

absl::Status CheckIndices(const Field& field, const Array& array) {
  for (int64_t row = 0; row < array.length; ++row) {
    if (array.IsNull(row)) continue;
    const int64_t index = IndexAt(field, array, row);
    if (index < 0 || index >= array.dictionary->length)
      return Malformed(field, absl::StrCat("row ", row, " is value ", index, " of a dictionary of ",
                                           array.dictionary->length));
  }
  return absl::OkStatus();
}

}  // namespace sheaf::arrow
