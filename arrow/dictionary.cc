// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/dictionary.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "arrow/move.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

bool SameMemory(const Array& a, const Array& b) {
  if (a.length != b.length || a.offset != b.offset || a.validity.get() != b.validity.get() ||
      a.data.get() != b.data.get() || a.bytes.get() != b.bytes.get() ||
      a.children.size() != b.children.size() ||
      (a.dictionary == nullptr) != (b.dictionary == nullptr))
    return false;
  for (size_t i = 0; i < a.children.size(); ++i) {
    if (!SameMemory(a.children[i], b.children[i])) return false;
  }
  return a.dictionary == nullptr || SameMemory(*a.dictionary, *b.dictionary);
}

// The bytes of a value, which is not NULL.
std::string_view ValueAt(const Field& field, const Array& values, int64_t row) {
  const auto text = [](const uint8_t* bytes, int64_t size) {
    return std::string_view(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  };
  if (field.layout == Layout::kBits)
    return GetBit(values.data.get(), values.offset + row) ? "1" : "0";
  if (field.layout == Layout::kFixed)
    return text(values.DataFrom(field.width) + row * field.width, field.width);
  const int64_t start = OffsetAt(field, values, row);
  const int64_t size = OffsetAt(field, values, row + 1) - start;
  return size == 0 ? std::string_view() : text(values.bytes.get() + start, size);
}

// All values, each once, and which of them each row of `all` is.
struct Distinct {
  std::vector<uint32_t> rows;
  std::vector<uint32_t> index_of;
};

absl::StatusOr<Distinct> DistinctOf(const Field& column, const Column& all) {
  const Layout layout = all.field.layout;
  if (layout != Layout::kBits && layout != Layout::kFixed && !IsBinary(layout))
    return Unsupported(column, "has dictionaries that differ and are nested");
  Distinct distinct;
  absl::flat_hash_map<std::string_view, uint32_t> seen;
  std::optional<uint32_t> null_index;
  for (int64_t row = 0; row < all.array.length; ++row) {
    const auto next = static_cast<uint32_t>(distinct.rows.size());
    uint32_t index = next;
    if (all.array.IsNull(row)) {
      index = null_index.value_or(next);
      null_index = index;
    } else {
      index = seen.try_emplace(ValueAt(all.field, all.array, row), next).first->second;
    }
    if (index == next) distinct.rows.push_back(static_cast<uint32_t>(row));
    distinct.index_of.push_back(index);
  }
  return distinct;
}

// The type of indices below `count`: that of `field` where it can have them.
Field WithRoomFor(Field field, size_t count) {
  const int value_bits = field.width * 8 - (field.kind == Kind::kSigned ? 1 : 0);
  if (value_bits >= 63 || count <= size_t{1} << value_bits) return field;
  const bool short_enough = count <= size_t{1} << 31;
  field.format = short_enough ? "i" : "l";
  field.kind = Kind::kSigned;
  field.width = short_enough ? 4 : 8;
  return field;
}

absl::StatusOr<Array> Renumbered(const Field& from, const Field& to, const Array& chunk,
                                 std::span<const uint32_t> index_of, Memory& memory) {
  SHEAF_RETURN_IF_ERROR(CheckIndices(from, chunk));
  Array out = chunk;
  const int64_t end = chunk.offset + chunk.length;
  SHEAF_ASSIGN_OR_RETURN(const auto indices, memory.AllocateZeros(end * to.width));
  for (int64_t row = 0; row < chunk.length; ++row) {
    if (chunk.IsNull(row)) continue;
    const uint64_t index = index_of[static_cast<size_t>(IndexAt(from, chunk, row))];
    // The low bytes, which come first.
    std::memcpy(indices.get() + (chunk.offset + row) * to.width, &index,
                static_cast<size_t>(to.width));
  }
  out.data = indices;
  return out;
}

absl::StatusOr<Unified> UnifyOwn(const Field& field, std::span<const Array> chunks,
                                 Memory& memory) {
  std::vector<Array> dictionaries;
  for (const Array& chunk : chunks) dictionaries.push_back(*chunk.dictionary);
  SHEAF_ASSIGN_OR_RETURN(const Column all, Concatenate(*field.dictionary, dictionaries, memory));
  SHEAF_ASSIGN_OR_RETURN(const Distinct distinct, DistinctOf(field, all));
  SHEAF_ASSIGN_OR_RETURN(Column values, Gather(all.field, all.array, distinct.rows, memory));
  Unified unified{WithRoomFor(field, distinct.rows.size()), {}};
  unified.field.dictionary = std::make_shared<const Field>(std::move(values.field));
  const auto shared = std::make_shared<const Array>(std::move(values.array));
  std::span<const uint32_t> index_of = distinct.index_of;
  for (const Array& chunk : chunks) {
    const auto size = static_cast<size_t>(chunk.dictionary->length);
    SHEAF_ASSIGN_OR_RETURN(Array renumbered,
                           Renumbered(field, unified.field, chunk, index_of.first(size), memory));
    index_of = index_of.subspan(size);
    renumbered.dictionary = shared;
    unified.chunks.push_back(std::move(renumbered));
  }
  return unified;
}

}  // namespace

absl::StatusOr<Unified> UnifyDictionaries(const Field& field, std::span<const Array> chunks,
                                          Memory& memory) {
  if (field.dictionary != nullptr) {
    const bool shared = std::all_of(chunks.begin(), chunks.end(), [&](const Array& chunk) {
      return SameMemory(*chunk.dictionary, *chunks.front().dictionary);
    });
    if (!shared) return UnifyOwn(field, chunks, memory);
  }
  Unified unified{field, {chunks.begin(), chunks.end()}};
  if (field.layout != Layout::kStruct) return unified;
  for (size_t i = 0; i < field.children.size(); ++i) {
    std::vector<Array> parts;
    for (const Array& chunk : chunks) parts.push_back(chunk.children[i]);
    SHEAF_ASSIGN_OR_RETURN(Unified part, UnifyDictionaries(field.children[i], parts, memory));
    unified.field.children[i] = std::move(part.field);
    for (size_t chunk = 0; chunk < parts.size(); ++chunk)
      unified.chunks[chunk].children[i] = std::move(part.chunks[chunk]);
  }
  return unified;
}

}  // namespace sheaf::arrow
