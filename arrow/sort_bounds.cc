// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/sort_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "arrow/move.h"
#include "arrow/values.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

constexpr uint64_t kSign = uint64_t{1} << 63;
// Behind each number, in both directions: the word of no number, nor of one inverted.
constexpr uint64_t kNanWord = UINT64_MAX;

// Numbers as words in their order.
uint64_t WordOf(uint64_t value) { return value; }
uint64_t WordOf(int64_t value) { return static_cast<uint64_t>(value) ^ kSign; }
uint64_t WordOf(Instant value) { return WordOf(value.value); }
uint64_t WordOf(double value) {
  const auto bits = std::bit_cast<uint64_t>(value + 0.0);  // -0.0 becomes 0.0.
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

template <class Value>
  requires requires(Value value) { WordOf(value); }
uint64_t OrderedWord(Value value, bool descending) {
  if constexpr (std::is_same_v<Value, double>) {
    if (std::isnan(value)) return kNanWord;
  }
  return descending ? ~WordOf(value) : WordOf(value);
}

void AppendWord(uint64_t word, std::string& out) {
  for (int shift = 56; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(word >> shift & 0xff));
}

// Appends bytes whose order is that of the values, and of which none begins another.
template <class Value>
void AppendOrdered(Value value, bool descending, std::string& out) {
  if constexpr (std::is_same_v<Value, std::string_view>) {
    const char flip = descending ? '\xff' : '\0';
    for (const char byte : value) {
      out.push_back(static_cast<char>(byte ^ flip));
      if (byte == '\0') out.push_back(static_cast<char>('\xff' ^ flip));
    }
    out.push_back(flip);  // The end comes before all bytes that may follow.
    out.push_back(flip);
  } else if constexpr (std::is_same_v<Value, Int256>) {
    for (size_t i = value.size(); i-- > 0;) {
      const uint64_t word = value[i] ^ (i == 3 ? kSign : 0);
      AppendWord(descending ? ~word : word, out);
    }
  } else {
    AppendWord(OrderedWord(value, descending), out);
  }
}

// Appends what orders the rows of one column, to the texts of all of them.
void AppendColumn(const Field& field, const Array& array, int64_t start, bool descending,
                  std::span<std::string> texts) {
  const Field& values = ValueField(field);
  if (values.kind == Kind::kNull) {
    for (std::string& text : texts) text.push_back('\1');
    return;
  }
  const Array& source = field.dictionary != nullptr ? *array.dictionary : array;
  WithValues(values, source, [&](auto get) {
    for (size_t i = 0; i < texts.size(); ++i) {
      int64_t row = start + static_cast<int64_t>(i);
      bool is_null = array.IsNull(row);
      if (!is_null && field.dictionary != nullptr) {
        row = IndexAt(field, array, row);
        is_null = source.IsNull(row);
      }
      texts[i].push_back(is_null ? '\1' : '\0');
      if (!is_null) AppendOrdered(get(row), descending, texts[i]);
    }
  });
}

bool FitsInWords(const Field& field) {
  return field.dictionary == nullptr && field.kind != Kind::kNull && field.kind != Kind::kDecimal &&
         field.kind != Kind::kBytes;
}

bool ComparesWith(const Field& key, const Field& bound) {
  const Field& a = ValueField(key);
  const Field& b = ValueField(bound);
  if (b.kind == Kind::kNull) return true;  // All of its rows are NULL.
  return a.kind == b.kind && (a.kind != Kind::kTime || a.nanos == b.nanos) &&
         (a.kind != Kind::kDecimal || a.format == b.format);
}

absl::Status CheckKeys(const Table& table, std::span<const size_t> keys, const Table& bounds) {
  if (bounds.columns() != keys.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bounds have ", bounds.columns(), " columns for ", keys.size(), " keys"));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const Field& key = table.schema.children[keys[i]];
    const Field& bound = bounds.schema.children[i];
    if (!HasValues(key)) return UnsupportedKey(key);
    if (!ComparesWith(key, bound)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the bounds of column '", key.name, "' are of type '",
                       ValueField(bound).format, "' in Arrow's C format, and the column of type '",
                       ValueField(key).format, "': cast the bounds"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SortBounds> SortBounds::Make(const Table& table, std::span<const size_t> keys,
                                            const Table& bounds,
                                            const std::vector<bool>& descending, Memory& memory) {
  SHEAF_RETURN_IF_ERROR(CheckKeys(table, keys, bounds));
  SortBounds made;
  made.keys_.assign(keys.begin(), keys.end());
  made.descending_ = descending;
  made.parts_ = static_cast<uint32_t>(bounds.rows) + 1;
  made.texts_.resize(static_cast<size_t>(bounds.rows));
  std::vector<Column> columns;
  for (size_t i = 0; i < keys.size(); ++i) {
    SHEAF_ASSIGN_OR_RETURN(Column column,
                           Concatenate(bounds.schema.children[i], bounds.Chunks(i), memory));
    if (column.field.dictionary != nullptr)
      SHEAF_RETURN_IF_ERROR(CheckIndices(column.field, column.array));
    AppendColumn(column.field, column.array, 0, descending[i], made.texts_);
    columns.push_back(std::move(column));
  }
  const auto fallen = std::adjacent_find(made.texts_.begin(), made.texts_.end(), std::greater<>());
  if (fallen != made.texts_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bounds are in the order of the sort, and bound ",
                     fallen - made.texts_.begin() + 1, " lies before the one before it"));
  }
  made.by_words_ = keys.size() == 1 && FitsInWords(table.schema.children[keys[0]]) &&
                   FitsInWords(columns[0].field);
  if (made.by_words_) {
    const Array& array = columns[0].array;
    WithValues(columns[0].field, array, [&](auto get) {
      if constexpr (requires { OrderedWord(get(0), false); }) {
        for (int64_t row = 0; row < array.length; ++row) {
          if (!array.IsNull(row)) made.words_.push_back(OrderedWord(get(row), descending[0]));
        }
      }
    });
  }
  return made;
}

absl::Status SortBounds::Place(const Table& table, uint32_t* part_of_row) const {
  if (by_words_) return PlaceWords(table, part_of_row);
  constexpr int64_t kBlock = 256;  // Rows whose texts are made at a time.
  std::vector<std::string> block(kBlock);
  for (const Array& batch : table.batches) {
    SHEAF_ASSIGN_OR_RETURN(const std::vector<Array> columns, KeyColumns(table, batch, keys_));
    for (int64_t start = 0; start < batch.length; start += kBlock) {
      const auto texts =
          std::span(block).first(static_cast<size_t>(std::min(kBlock, batch.length - start)));
      for (std::string& text : texts) text.clear();
      for (size_t i = 0; i < keys_.size(); ++i)
        AppendColumn(table.schema.children[keys_[i]], columns[i], start, descending_[i], texts);
      for (const std::string& text : texts) {
        const auto above = std::upper_bound(texts_.begin(), texts_.end(), text);
        *part_of_row++ = static_cast<uint32_t>(above - texts_.begin());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status SortBounds::PlaceWords(const Table& table, uint32_t* part_of_row) const {
  const Field& field = table.schema.children[keys_[0]];
  const bool descending = descending_[0];
  const auto place = [&](uint64_t word) {  // As upper_bound, without a branch to guess.
    const uint64_t* at = words_.data();
    for (size_t left = words_.size(); left > 0;) {
      const size_t half = (left + 1) / 2;
      at += half * static_cast<size_t>(at[half - 1] <= word);
      left -= half;
    }
    return static_cast<uint32_t>(at - words_.data());
  };
  for (const Array& array : table.Chunks(keys_[0])) {
    WithValues(field, array, [&](auto get) {
      if constexpr (requires { OrderedWord(get(0), false); }) {
        for (int64_t row = 0; row < array.length; ++row) {
          // No bound lies behind NULL.
          *part_of_row++ =
              array.IsNull(row) ? parts_ - 1 : place(OrderedWord(get(row), descending));
        }
      }
    });
  }
  return absl::OkStatus();
}

}  // namespace sheaf::arrow
