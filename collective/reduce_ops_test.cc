// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/reduce_ops.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::vector<T> ValuesOf(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Bytes Reduced(DataType type, ReduceOp op, const std::vector<Bytes>& inputs,
              decltype(&Reduce) reduce = &Reduce) {
  std::vector<const std::byte*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes result(inputs[0].size());
  const std::vector<std::byte*> targets = {result.data()};
  reduce(type, op, sources, targets, result.size() / SizeOf(type));
  return result;
}

template <class T>
std::vector<T> Of(DataType type, ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<Bytes> bytes;
  for (const auto& input : inputs) bytes.push_back(BytesOf(input));
  return ValuesOf<T>(Reduced(type, op, bytes));
}

TEST_CASE("integers wrap around, and their average goes towards zero") {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  CHECK(Of<int32_t>(DataType::kInt32, ReduceOp::kSum, {{kMost, -5}, {1, 2}}) ==
        std::vector<int32_t>{std::numeric_limits<int32_t>::min(), -3});
  CHECK(Of<int32_t>(DataType::kInt32, ReduceOp::kAverage, {{-5, 5, 7}, {2, 2, 2}, {0, 0, 0}}) ==
        std::vector<int32_t>{-1, 2, 3});
  CHECK(Of<int64_t>(DataType::kInt64, ReduceOp::kProduct, {{3, -4}, {5, 6}, {1LL << 40, 1}}) ==
        std::vector<int64_t>{15LL << 40, -24});
  CHECK(Of<int64_t>(DataType::kInt64, ReduceOp::kMax, {{3, -4}, {5, -6}}) ==
        std::vector<int64_t>{5, -4});
  CHECK(Of<uint8_t>(DataType::kUint8, ReduceOp::kMin, {{3, 200}, {5, 199}}) ==
        std::vector<uint8_t>{3, 199});
}

TEST_CASE("a NaN of any rank makes the result one") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAverage}) {
    const auto result = Of<float>(DataType::kFloat32, op, {{nan, 1, 1}, {1, nan, 2}});
    CHECK(std::isnan(result[0]));
    CHECK(std::isnan(result[1]));
    CHECK_FALSE(std::isnan(result[2]));
  }
}

TEST_CASE("float16 is reduced as float32 and rounded once, to nearest even") {
  // 1, 2048, 1: in float16 alone 1 + 2048 is 2048, and 2048 + 1 again.
  CHECK(Of<uint16_t>(DataType::kFloat16, ReduceOp::kSum, {{0x3c00}, {0x6800}, {0x3c00}}) ==
        std::vector<uint16_t>{0x6801});
  // 2048 + 1 is half way between 2048 and 2050; 2050 + 1 between 2050 and 2052.
  CHECK(Of<uint16_t>(DataType::kFloat16, ReduceOp::kSum, {{0x6800, 0x6801}, {0x3c00, 0x3c00}}) ==
        std::vector<uint16_t>{0x6800, 0x6802});
  // The largest number doubled is infinite; the smallest subnormals add up; signs stay.
  CHECK(Of<uint16_t>(DataType::kFloat16, ReduceOp::kSum,
                     {{0x7bff, 0x0001, 0x8000, 0xfc00}, {0x7bff, 0x0001, 0x8000, 0x3c00}}) ==
        std::vector<uint16_t>{0x7c00, 0x0002, 0x8000, 0xfc00});
  CHECK(Of<uint16_t>(DataType::kFloat16, ReduceOp::kAverage, {{0x3c00}, {0x4000}}) ==
        std::vector<uint16_t>{0x3e00});  // 1.5
}

TEST_CASE("every float16 survives a reduction of one, with both sets of loops") {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (decltype(&Reduce) reduce : {&Reduce, &ReducePlainly}) {
    const auto result =
        ValuesOf<uint16_t>(Reduced(DataType::kFloat16, ReduceOp::kSum, {BytesOf(all)}, reduce));
    size_t wrong = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_nan = (all[i] & 0x7fff) > 0x7c00;
      wrong += is_nan ? (result[i] & 0x7fff) <= 0x7c00 : result[i] != all[i];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("bfloat16 is rounded to nearest even") {
  // 1 + 2^-8 is half way between 1 and the next; 1.0078125 + 2^-8 half way to the one after.
  CHECK(Of<uint16_t>(DataType::kBfloat16, ReduceOp::kSum, {{0x3f80, 0x3f81}, {0x3b80, 0x3b80}}) ==
        std::vector<uint16_t>{0x3f80, 0x3f82});
  CHECK(Of<uint16_t>(DataType::kBfloat16, ReduceOp::kProduct, {{0x4000}, {0x4040}, {0xbf80}}) ==
        std::vector<uint16_t>{0xc0c0});  // -6
}

TEST_CASE("both sets of loops have the same bits, whatever the size and the number of ranks") {
  SeededRandom random(11);
  for (int type = 0; type < kDataTypes; ++type) {
    const size_t element = SizeOf(static_cast<DataType>(type));
    for (int op = 0; op < kReduceOps; ++op) {
      for (size_t ranks : {1, 2, 3, 4}) {
        for (size_t count : {0, 1, 7, 1024, 1025, 2500}) {
          std::vector<Bytes> inputs(ranks, Bytes(count * element));
          for (Bytes& input : inputs) {
            // Numbers of ordinary size: NaNs keep other bits with other instructions.
            for (size_t i = 0; i < count; ++i) {
              const double value = static_cast<double>(random.Below(2000)) / 16 - 60;
              const auto put = [&](auto number) {
                std::memcpy(input.data() + i * element, &number, element);
              };
              const float single = static_cast<float>(value);
              uint32_t bits;
              std::memcpy(&bits, &single, sizeof bits);
              switch (static_cast<DataType>(type)) {
                case DataType::kFloat32:
                  put(single);
                  break;
                case DataType::kFloat64:
                  put(value);
                  break;
                case DataType::kBfloat16:
                  put(static_cast<uint16_t>(bits >> 16));
                  break;
                case DataType::kFloat16:
                  put(static_cast<uint16_t>(0x3000 + random.Below(0x1800)));
                  break;
                default:
                  put(random.Next());
              }
            }
          }
          REQUIRE(Reduced(static_cast<DataType>(type), static_cast<ReduceOp>(op), inputs) ==
                  Reduced(static_cast<DataType>(type), static_cast<ReduceOp>(op), inputs,
                          &ReducePlainly));
        }
      }
    }
  }
}

TEST_CASE("results may replace the sources, in several places at once") {
  const size_t count = GENERATE(3000, 300'001);  // The second is read with fetches ahead.
  for (size_t ranks : {2, 3}) {
    for (size_t wanted : {size_t{1}, ranks}) {
      std::vector<std::vector<float>> arrays(ranks, std::vector<float>(count));
      std::vector<const std::byte*> sources;
      std::vector<std::byte*> targets;
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) arrays[r][i] = static_cast<float>(i * (r + 1));
        auto* const bytes = reinterpret_cast<std::byte*>(arrays[r].data());
        sources.push_back(bytes);
        if (r < wanted) targets.push_back(bytes);
      }
      Reduce(DataType::kFloat32, ReduceOp::kSum, sources, targets, count);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto sum = static_cast<float>(i * (ranks == 2 ? 3 : 6));
        for (size_t r = 0; r < ranks; ++r) {
          wrong += arrays[r][i] != (r < wanted ? sum : static_cast<float>(i * (r + 1)));
        }
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
}  // namespace sheaf
