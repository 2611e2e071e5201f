// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "arrow/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

#include "arrow/values.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace sheaf::arrow {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr int64_t kBlock = 1024;  // Rows whose hashes stay in the cache from key to key.
constexpr int64_t kSample = 4096;
constexpr size_t kHeaviest = 10;
constexpr int64_t kHeavyShare = 200;

uint64_t HashOfNull(uint64_t before) { return XXH3_64bits_withSeed("", 0, ~before); }

uint64_t HashOfWord(uint64_t word, uint64_t before) {
  return XXH3_64bits_withSeed(&word, sizeof(word), before);
}

template <class Value>
uint64_t HashOf(const Field& field, Value value, uint64_t before) {
  if constexpr (std::is_same_v<Value, double>) {
    const double one = std::isnan(value) ? 0.0 : value + 0.0;  // -0.0 + 0.0 is 0.0.
    return HashOfWord(std::isnan(value) ? 0x7ff8000000000000u : std::bit_cast<uint64_t>(one),
                      before);
  } else if constexpr (std::is_same_v<Value, Instant>) {
    const auto units = static_cast<uint64_t>(value.value);
    return HashOfWord(units * static_cast<uint64_t>(field.nanos), before);
  } else if constexpr (std::is_same_v<Value, Int256>) {
    return XXH3_64bits_withSeed(value.data(), sizeof(value), before);
  } else if constexpr (std::is_same_v<Value, std::string_view>) {
    return XXH3_64bits_withSeed(value.data() != nullptr ? value.data() : "", value.size(), before);
  } else {
    return HashOfWord(static_cast<uint64_t>(value), before);
  }
}

// Goes on with `hashes` for the rows from `start` on.
void HashKey(const Field& field, const Array& array, int64_t start, std::span<uint64_t> hashes) {
  const auto rows = static_cast<int64_t>(hashes.size());
  const Field& values = ValueField(field);
  if (values.kind == Kind::kNull) {
    for (uint64_t& hash : hashes) hash = HashOfNull(hash);
    return;
  }
  uint64_t* const out = hashes.data();
  if (field.dictionary != nullptr) {
    const Array& dictionary = *array.dictionary;
    WithValues(values, dictionary, [&](auto get) {
      for (int64_t i = 0; i < rows; ++i) {
        const bool is_null = array.IsNull(start + i);
        const int64_t index = is_null ? 0 : IndexAt(field, array, start + i);
        out[i] = is_null || dictionary.IsNull(index) ? HashOfNull(out[i])
                                                     : HashOf(values, get(index), out[i]);
      }
    });
    return;
  }
  WithValues(values, array, [&](auto get) {
    if (array.validity == nullptr) {
      for (int64_t i = 0; i < rows; ++i) out[i] = HashOf(values, get(start + i), out[i]);
      return;
    }
    for (int64_t i = 0; i < rows; ++i) {
      out[i] =
          array.IsNull(start + i) ? HashOfNull(out[i]) : HashOf(values, get(start + i), out[i]);
    }
  });
}

void HashBlock(const Table& table, std::span<const size_t> keys, std::span<const Array> columns,
               int64_t start, std::span<uint64_t> hashes) {
  std::fill(hashes.begin(), hashes.end(), 0);
  for (size_t i = 0; i < keys.size(); ++i)
    HashKey(table.schema.children[keys[i]], columns[i], start, hashes);
}

}  // namespace

absl::Status HashRows(const Table& table, std::span<const size_t> keys,
                      absl::FunctionRef<void(int64_t first, std::span<const uint64_t>)> take) {
  std::array<uint64_t, kBlock> block;
  int64_t first = 0;
  for (const Array& batch : table.batches) {
    SHEAF_ASSIGN_OR_RETURN(const std::vector<Array> columns, KeyColumns(table, batch, keys));
    for (int64_t start = 0; start < batch.length; start += kBlock) {
      const auto hashes =
          std::span(block).first(static_cast<size_t>(std::min(kBlock, batch.length - start)));
      HashBlock(table, keys, columns, start, hashes);
      take(first + start, hashes);
    }
    first += batch.length;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HeavyKey>> HeavyKeys(const Table& table, std::span<const size_t> keys) {
  const int64_t samples = std::min(kSample, table.rows);
  std::vector<std::pair<uint64_t, uint32_t>> seen;  // Hash and row.
  SeededRandom random(0);
  int64_t first = 0;
  int64_t sample = 0;
  for (const Array& batch : table.batches) {
    SHEAF_ASSIGN_OR_RETURN(const std::vector<Array> columns, KeyColumns(table, batch, keys));
    for (; sample < samples; ++sample) {
      // Anywhere in its part of the table, so that no period of the rows meets it always.
      const int64_t low = table.rows * sample / samples;
      const int64_t high = table.rows * (sample + 1) / samples;
      if (high > first + batch.length) break;
      const int64_t row =
          low + static_cast<int64_t>(random.Below(static_cast<uint64_t>(high - low)));
      if (row < first) continue;  // Its part lies in two batches.
      uint64_t hash;
      HashBlock(table, keys, columns, row - first, {&hash, 1});
      seen.emplace_back(hash, static_cast<uint32_t>(row));
    }
    first += batch.length;
  }
  std::sort(seen.begin(), seen.end());
  std::vector<HeavyKey> heavy;
  for (size_t i = 0; i < seen.size();) {
    size_t end = i;
    while (end < seen.size() && seen[end].first == seen[i].first) ++end;
    const auto count = static_cast<int64_t>(end - i);
    const auto all = static_cast<int64_t>(seen.size());
    if (count * kHeavyShare >= all) heavy.push_back({seen[i].second, table.rows * count / all});
    i = end;
  }
  std::stable_sort(heavy.begin(), heavy.end(),
                   [](const HeavyKey& a, const HeavyKey& b) { return a.count > b.count; });
  if (heavy.size() > kHeaviest) heavy.resize(kHeaviest);
  return heavy;
}

}  // namespace sheaf::arrow
