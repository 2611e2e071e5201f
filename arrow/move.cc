// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/move.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "arrow/dictionary.h"
#include "arrow/move_kernels.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

constexpr char kMoves[] = "is not moved";

// Rows to move: all of a scatter's chunk, or those that a gather names.
template <class Order>
struct Source {
  Array array;
  Order order;
};

absl::Status TooMany(const Field& field, int64_t count) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "column '", field.name, "' would have ", count, " values in its lists, more than its type '",
      field.format, "' or a table can have: cut it into several tables"));
}

template <class From, class To>
void SumUp(const uint8_t* lengths, int64_t rows, uint8_t* offsets) {
  To sum = 0;
  for (int64_t i = 1; i <= rows; ++i) {
    sum = static_cast<To>(sum + Load<From>(lengths, i));
    Store<To>(offsets, i, sum);
  }
  Store<To>(offsets, 0, 0);
}

// Makes columns of `rows` rows.
class Mover {
 public:
  Mover(int64_t rows, Memory& memory, const MoveOptions& options)
      : rows_(rows), memory_(memory), options_(options) {}

  template <class Order>
  absl::StatusOr<Column> Move(const Field& field, const std::vector<Source<Order>>& sources) {
    Column out{field, {}};
    out.array.length = rows_;
    out.array.dictionary = sources.front().array.dictionary;
    SHEAF_RETURN_IF_ERROR(MoveValidity(sources, out.array));
    SHEAF_RETURN_IF_ERROR(MoveRows(sources, out));
    return out;
  }

 private:
  template <class Order>
  absl::Status MoveRows(const std::vector<Source<Order>>& sources, Column& out) {
    switch (out.field.layout) {
      case Layout::kNull:
        return absl::OkStatus();
      case Layout::kBits:
        return Bits(sources, &Array::data, out.array);
      case Layout::kFixed:
        return MoveFixedWidth(sources, out);
      case Layout::kBinary:
        return MoveBinary<int32_t>(sources, out);
      case Layout::kLargeBinary:
        return MoveBinary<int64_t>(sources, out);
      case Layout::kStruct:
        return MoveStruct(sources, out);
      case Layout::kList:
      case Layout::kLargeList:
      case Layout::kFixedList:
        return MoveLists(sources, out);
      case Layout::kOther:
        break;
    }
    return Unsupported(out.field, kMoves);
  }

  template <class Order>
  absl::Status Bits(const std::vector<Source<Order>>& sources, Bytes Array::* buffer, Array& out) {
    SHEAF_ASSIGN_OR_RETURN(const auto bits, memory_.AllocateZeros(BytesOfBits(rows_)));
    for (const auto& [array, order] : sources) {
      if (array.*buffer != nullptr) {
        MoveBits((array.*buffer).get(), array.offset, order, bits.get());
      } else {  // Of validity: no row is NULL.
        order.ForEach([&](int64_t, int64_t to) { OrBit(bits.get(), to, true); }, [](int64_t) {});
      }
    }
    out.*buffer = bits;
    return absl::OkStatus();
  }

  template <class Order>
  absl::Status MoveValidity(const std::vector<Source<Order>>& sources, Array& out) {
    const bool has_nulls = std::any_of(sources.begin(), sources.end(), [](const auto& source) {
      return source.array.validity != nullptr;
    });
    if (!has_nulls) return absl::OkStatus();
    return Bits(sources, &Array::validity, out);
  }

  template <class Order>
  absl::Status MoveFixedWidth(const std::vector<Source<Order>>& sources, Column& out) {
    const int64_t width = out.field.width;
    SHEAF_ASSIGN_OR_RETURN(const auto values, memory_.Allocate(rows_ * width));
    for (const auto& [array, order] : sources) {
      if (array.length > 0 && width > 0)
        MoveFixed(array.DataFrom(width), width, order, values.get());
    }
    out.array.data = values;
    return absl::OkStatus();
  }

  template <class From, class Order>
  absl::Status MoveBinary(const std::vector<Source<Order>>& sources, Column& out) {
    SHEAF_ASSIGN_OR_RETURN(auto offsets, memory_.Allocate((rows_ + 1) * sizeof(From)));
    int64_t sum = 0;
    for (const auto& [array, order] : sources) {
      if (array.length > 0)
        sum += MoveLengths<From>(array.DataFrom(sizeof(From)), order, offsets.get());
    }
    const bool wide = sizeof(From) == 8 || sum > options_.narrow_offset_max;
    if (wide && sizeof(From) == 4) {
      SHEAF_ASSIGN_OR_RETURN(const auto wide_offsets, memory_.Allocate((rows_ + 1) * 8));
      SumUp<From, int64_t>(offsets.get(), rows_, wide_offsets.get());
      offsets = wide_offsets;
      out.field = Widened(std::move(out.field));
    } else {
      SumUp<From, From>(offsets.get(), rows_, offsets.get());
    }
    SHEAF_ASSIGN_OR_RETURN(const auto bytes, memory_.Allocate(sum));
    for (const auto& [array, order] : sources) {
      if (array.length == 0 || array.bytes == nullptr) continue;
      const uint8_t* const from = array.DataFrom(sizeof(From));
      if (wide) {
        MoveBytes<From, int64_t>(from, array.bytes.get(), offsets.get(), order, bytes.get());
      } else {
        MoveBytes<From, int32_t>(from, array.bytes.get(), offsets.get(), order, bytes.get());
      }
    }
    out.array.data = offsets;
    out.array.bytes = bytes;
    return absl::OkStatus();
  }

  template <class Order>
  absl::Status MoveStruct(const std::vector<Source<Order>>& sources, Column& out) {
    for (size_t i = 0; i < out.field.children.size(); ++i) {
      std::vector<Source<Order>> parts;
      for (const auto& [array, order] : sources)
        parts.push_back({ChildRows(out.field, array, i), order});
      SHEAF_ASSIGN_OR_RETURN(Column part, Move(out.field.children[i], parts));
      out.field.children[i] = std::move(part.field);
      out.array.children.push_back(std::move(part.array));
    }
    return absl::OkStatus();
  }

  // Scatters of lists are gathers by now.
  absl::Status MoveLists(const std::vector<Source<ScatterOrder>>&, Column& out) {
    return Unsupported(out.field, kMoves);
  }

  absl::Status MoveLists(const std::vector<Source<GatherOrder>>& sources, Column& out) {
    const Array& array = sources.front().array;
    const std::span<const uint32_t> from = sources.front().order.from;
    const Field given = out.field;  // MoveListOffsets may make the result a large list.
    const bool fixed = given.layout == Layout::kFixedList;
    const auto start_of = [&](int64_t row) {
      return fixed ? row * given.width : OffsetAt(given, array, row);
    };
    int64_t values = 0;
    for (const uint32_t row : from) values += start_of(row + int64_t{1}) - start_of(row);
    if (values > kMostRows) return TooMany(out.field, values);
    if (!fixed) SHEAF_RETURN_IF_ERROR(MoveListOffsets(array, from, values, out));
    std::vector<uint32_t> value_from;
    value_from.reserve(static_cast<size_t>(values));
    for (const uint32_t row : from) {
      const int64_t stop = start_of(row + int64_t{1});
      for (int64_t value = start_of(row); value < stop; ++value)
        value_from.push_back(static_cast<uint32_t>(value));
    }
    const Array all = fixed ? ChildRows(out.field, array, 0) : array.children[0];
    SHEAF_ASSIGN_OR_RETURN(Column items,
                           Gather(out.field.children[0], all, value_from, memory_, options_));
    out.field.children[0] = std::move(items.field);
    out.array.children.push_back(std::move(items.array));
    return absl::OkStatus();
  }

  absl::Status MoveListOffsets(const Array& array, std::span<const uint32_t> from, int64_t values,
                               Column& out) {
    const bool narrow = out.field.layout == Layout::kList;
    const Field before = out.field;
    if (narrow && values > options_.narrow_offset_max) {
      out.field = Widened(std::move(out.field));
      if (out.field.layout == Layout::kList) return TooMany(before, values);  // A map.
    }
    const bool wide = out.field.layout == Layout::kLargeList;
    SHEAF_ASSIGN_OR_RETURN(const auto offsets, memory_.Allocate((rows_ + 1) * (wide ? 8 : 4)));
    int64_t sum = 0;
    for (int64_t to = 0; to <= rows_; ++to) {
      if (wide) {
        Store<int64_t>(offsets.get(), to, sum);
      } else {
        Store<int32_t>(offsets.get(), to, static_cast<int32_t>(sum));
      }
      if (to == rows_) break;
      const int64_t row = from[static_cast<size_t>(to)];
      sum += OffsetAt(before, array, row + 1) - OffsetAt(before, array, row);
    }
    out.array.data = offsets;
    return absl::OkStatus();
  }

  const int64_t rows_;
  Memory& memory_;
  const MoveOptions& options_;
};

// Whether there are lists in it, which a scatter does not move.
bool HasLists(const Field& field) {
  return IsList(field.layout) || field.layout == Layout::kFixedList ||
         std::any_of(field.children.begin(), field.children.end(), HasLists);
}

}  // namespace

absl::StatusOr<Column> Gather(const Field& field, const Array& array,
                              std::span<const uint32_t> from, Memory& memory,
                              const MoveOptions& options) {
  return Mover(static_cast<int64_t>(from.size()), memory, options)
      .Move<GatherOrder>(field, {{array, {from}}});
}

absl::StatusOr<Column> Scatter(const Field& field, std::span<const Array> chunks,
                               std::span<const uint32_t> to, Memory& memory,
                               const MoveOptions& options) {
  if (HasLists(field)) {
    SHEAF_ASSIGN_OR_RETURN(const Column whole, Concatenate(field, chunks, memory, options));
    std::vector<uint32_t> from(to.size());
    for (size_t row = 0; row < to.size(); ++row) from[to[row]] = static_cast<uint32_t>(row);
    return Gather(whole.field, whole.array, from, memory, options);
  }
  SHEAF_ASSIGN_OR_RETURN(const Unified unified, UnifyDictionaries(field, chunks, memory));
  std::vector<Source<ScatterOrder>> sources;
  size_t row = 0;
  for (const Array& chunk : unified.chunks) {
    sources.push_back({chunk, {to.subspan(row, static_cast<size_t>(chunk.length))}});
    row += static_cast<size_t>(chunk.length);
  }
  return Mover(static_cast<int64_t>(to.size()), memory, options).Move(unified.field, sources);
}

}  // namespace sheaf::arrow
