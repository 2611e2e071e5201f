// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arrow/dictionary.h"
#include "arrow/move.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

// Puts the rows of `chunks` one after the other.
class Concatenation {
 public:
  Concatenation(std::vector<Array> chunks, Memory& memory, const MoveOptions& options)
      : chunks_(std::move(chunks)), memory_(memory), options_(options) {
    for (const Array& chunk : chunks_) rows_ += chunk.length;
  }

  absl::StatusOr<Column> Make(const Field& field) {
    Column out{field, {}};
    out.array.length = rows_;
    out.array.dictionary = chunks_.front().dictionary;
    SHEAF_RETURN_IF_ERROR(Validity(out.array));
    SHEAF_RETURN_IF_ERROR(Rows(field, out));
    return out;
  }

 private:
  // `field` is that of the chunks; that of `out` may become a wider one.
  absl::Status Rows(const Field& field, Column& out) {
    switch (field.layout) {
      case Layout::kNull:
        return absl::OkStatus();
      case Layout::kBits:
        return Bits(&Array::data, out.array);
      case Layout::kFixed:
        return Values(out);
      case Layout::kBinary:
      case Layout::kLargeBinary:
        SHEAF_RETURN_IF_ERROR(Offsets(out));
        return BinaryBytes(field, out.array);
      case Layout::kList:
      case Layout::kLargeList:
        SHEAF_RETURN_IF_ERROR(Offsets(out));
        return Children(field, out);
      case Layout::kStruct:
      case Layout::kFixedList:
        return Children(field, out);
      case Layout::kOther:
        break;
    }
    return Unsupported(field, "is not moved");
  }

  absl::Status Bits(Bytes Array::* buffer, Array& out) {
    SHEAF_ASSIGN_OR_RETURN(const auto bits, memory_.AllocateZeros(BytesOfBits(rows_)));
    int64_t row = 0;
    for (const Array& chunk : chunks_) {
      if (chunk.*buffer != nullptr) {
        CopyBits((chunk.*buffer).get(), chunk.offset, chunk.length, bits.get(), row);
      } else {  // Of validity: no row is NULL.
        for (int64_t i = 0; i < chunk.length; ++i) OrBit(bits.get(), row + i, true);
      }
      row += chunk.length;
    }
    out.*buffer = bits;
    return absl::OkStatus();
  }

  absl::Status Validity(Array& out) {
    const bool has_nulls = std::any_of(chunks_.begin(), chunks_.end(), [](const Array& chunk) {
      return chunk.validity != nullptr;
    });
    if (!has_nulls) return absl::OkStatus();
    return Bits(&Array::validity, out);
  }

  absl::Status Values(Column& out) {
    const int64_t width = out.field.width;
    SHEAF_ASSIGN_OR_RETURN(const auto values, memory_.Allocate(rows_ * width));
    uint8_t* to = values.get();
    for (const Array& chunk : chunks_) {
      if (chunk.length == 0 || width == 0) continue;
      std::memcpy(to, chunk.DataFrom(width), static_cast<size_t>(chunk.length * width));
      to += chunk.length * width;
    }
    out.array.data = values;
    return absl::OkStatus();
  }

  // Where the values of a chunk begin, and how many it has.
  static std::pair<int64_t, int64_t> Extent(const Field& field, const Array& chunk) {
    if (chunk.length == 0) return {0, 0};
    const int64_t start = OffsetAt(field, chunk, 0);
    return {start, OffsetAt(field, chunk, chunk.length) - start};
  }

  absl::Status Offsets(Column& out) {
    const Field before = out.field;
    int64_t values = 0;
    for (const Array& chunk : chunks_) values += Extent(before, chunk).second;
    if (!HasWideOffsets(before.layout) && values > options_.narrow_offset_max) {
      out.field = Widened(std::move(out.field));
      if (!HasWideOffsets(out.field.layout)) {  // A map.
        return absl::ResourceExhaustedError(absl::StrCat(
            "column '", before.name, "' would have ", values, " values, more than its type '",
            before.format, "' can have: cut it into several tables"));
      }
    }
    const bool wide = HasWideOffsets(out.field.layout);
    SHEAF_ASSIGN_OR_RETURN(const auto offsets, memory_.AllocateZeros((rows_ + 1) * (wide ? 8 : 4)));
    int64_t row = 1;
    int64_t base = 0;
    for (const Array& chunk : chunks_) {
      const auto [start, count] = Extent(before, chunk);
      for (int64_t i = 1; i <= chunk.length; ++i, ++row) {
        const int64_t offset = base + OffsetAt(before, chunk, i) - start;
        if (wide) {
          Store<int64_t>(offsets.get(), row, offset);
        } else {
          Store<int32_t>(offsets.get(), row, static_cast<int32_t>(offset));
        }
      }
      base += count;
    }
    out.array.data = offsets;
    return absl::OkStatus();
  }

  absl::Status BinaryBytes(const Field& field, Array& out) {
    int64_t sum = 0;
    for (const Array& chunk : chunks_) sum += Extent(field, chunk).second;
    SHEAF_ASSIGN_OR_RETURN(const auto bytes, memory_.Allocate(sum));
    uint8_t* to = bytes.get();
    for (const Array& chunk : chunks_) {
      const auto [start, count] = Extent(field, chunk);
      if (count == 0) continue;
      std::memcpy(to, chunk.bytes.get() + start, static_cast<size_t>(count));
      to += count;
    }
    out.bytes = bytes;
    return absl::OkStatus();
  }

  absl::Status Children(const Field& field, Column& out) {
    for (size_t i = 0; i < field.children.size(); ++i) {
      std::vector<Array> parts;
      for (const Array& chunk : chunks_) {
        if (IsList(field.layout)) {
          const auto [start, count] = Extent(field, chunk);
          parts.push_back(Slice(chunk.children[0], start, count));
        } else {
          parts.push_back(ChildRows(field, chunk, i));
        }
      }
      SHEAF_ASSIGN_OR_RETURN(Column part, Concatenate(field.children[i], parts, memory_, options_));
      out.field.children[i] = std::move(part.field);
      out.array.children.push_back(std::move(part.array));
    }
    return absl::OkStatus();
  }

  const std::vector<Array> chunks_;
  Memory& memory_;
  const MoveOptions& options_;
  int64_t rows_ = 0;
};

}  // namespace

absl::StatusOr<Column> Concatenate(const Field& field, std::span<const Array> chunks,
                                   Memory& memory, const MoveOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(Unified unified, UnifyDictionaries(field, chunks, memory));
  return Concatenation(std::move(unified.chunks), memory, options).Make(unified.field);
}

}  // namespace sheaf::arrow
