// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The table of values that holds for arrays in any memory: what each rank gives, what each
// operation makes of it in each type, and how an element is written and read.
//
// The kind of memory comes as a function `make(type, count)`, which gives an array of the calling
// rank with
//   std::byte* data(), at(index)
//   void Fill(from, count, value)            element from + i becomes value(i)
//   absl::Status Check(from, count, value, what)
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collective/communicator.h"

namespace sheaf::testing {

// Numbers as each type stores them; float16 and bfloat16 hold the small integers exactly.
inline void Store(DataType type, double value, std::byte* to) {
  const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
  const float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  switch (type) {
    case DataType::kUint8:
      return put(static_cast<uint8_t>(value));
    case DataType::kInt32:
      return put(static_cast<int32_t>(value));
    case DataType::kInt64:
      return put(static_cast<int64_t>(value));
    case DataType::kFloat32:
      return put(single);
    case DataType::kFloat64:
      return put(value);
    case DataType::kBfloat16:
      return put(static_cast<uint16_t>(bits >> 16));
    case DataType::kFloat16:
      return put(static_cast<uint16_t>(
          value == 0 ? 0
                     : (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112u << 10)) % 0x8000));
  }
}

inline double Load(DataType type, const std::byte* from) {
  const auto get = [&]<class T>(T number) {
    std::memcpy(&number, from, sizeof number);
    return number;
  };
  switch (type) {
    case DataType::kUint8:
      return get(uint8_t{});
    case DataType::kInt32:
      return get(int32_t{});
    case DataType::kInt64:
      return static_cast<double>(get(int64_t{}));
    case DataType::kFloat32:
      return static_cast<double>(get(float{}));
    case DataType::kFloat64:
      return get(double{});
    case DataType::kBfloat16: {
      const uint32_t bits = static_cast<uint32_t>(get(uint16_t{})) << 16;
      float single;
      std::memcpy(&single, &bits, sizeof single);
      return static_cast<double>(single);
    }
    case DataType::kFloat16: {
      const uint16_t half = get(uint16_t{});
      const int exponent = half >> 10 & 31;
      return std::ldexp(exponent == 0 ? half & 1023 : 1024 + (half & 1023),
                        (exponent == 0 ? 1 : exponent) - 25);
    }
  }
  return 0;
}

// Averages that a type cannot hold are compared by value. kInternal: the first of the `count`
// elements at `from` that is not `value(i)`.
template <class Value>
absl::Status CheckElements(DataType type, const std::byte* from, size_t count, Value value,
                           const char* what) {
  const double unit = type == DataType::kBfloat16  ? 1.0 / 128
                      : type == DataType::kFloat16 ? 1.0 / 1024
                      : type == DataType::kFloat32 ? 1e-6
                                                   : 0;
  for (size_t i = 0; i < count; ++i) {
    const double got = Load(type, from + i * SizeOf(type));
    if (std::abs(got - value(i)) <= unit * std::abs(value(i))) continue;
    return absl::InternalError(absl::StrCat(what, " ", NameOf(type), " x ", count, ": element ", i,
                                            " is ", got, ", want ", value(i)));
  }
  return absl::OkStatus();
}

// What rank `rank` gives as element `index`: 1 to 4, so that products of four stay exact.
inline double Given(int rank, size_t index) {
  return 1 + static_cast<double>((index + rank * 3) % 4);
}

// What `world` ranks make of it.
inline double Reduced(ReduceOp op, DataType type, int world, size_t index) {
  double result = Given(0, index);
  for (int rank = 1; rank < world; ++rank) {
    const double value = Given(rank, index);
    result = op == ReduceOp::kProduct ? result * value
             : op == ReduceOp::kMin   ? std::min(result, value)
             : op == ReduceOp::kMax   ? std::max(result, value)
                                      : result + value;
  }
  if (op != ReduceOp::kAverage) return result;
  result /= world;
  return type <= DataType::kInt64 ? std::trunc(result) : result;
}

// One reduction of `count` elements in all its forms.
template <class Make>
absl::Status Reductions(Communicator& group, DataType type, ReduceOp op, size_t count, Make make) {
  const int world = group.world_size();
  const int rank = group.rank();
  const auto given = [&](size_t i) { return Given(rank, i); };
  const auto reduced = [&](size_t i) { return Reduced(op, type, world, i); };
  {
    auto input = make(type, count), output = make(type, count);
    input.Fill(0, count, given);
    SHEAF_RETURN_IF_ERROR(group.AllReduce(input.data(), output.data(), count, type, op));
    SHEAF_RETURN_IF_ERROR(output.Check(0, count, reduced, NameOf(op)));
    SHEAF_RETURN_IF_ERROR(group.AllReduce(input.data(), input.data(), count, type, op));
    SHEAF_RETURN_IF_ERROR(input.Check(0, count, reduced, "in place"));
  }
  {
    const int root = world - 1;
    auto array = make(type, count);
    array.Fill(0, count, given);
    SHEAF_RETURN_IF_ERROR(
        group.Reduce(array.data(), rank == root ? array.data() : nullptr, count, type, root, op));
    SHEAF_RETURN_IF_ERROR(array.Check(
        0, count, [&](size_t i) { return rank == root ? reduced(i) : given(i); }, "reduce"));
  }
  {
    auto input = make(type, count * world), output = make(type, count);
    input.Fill(0, count * world, given);
    const auto mine = [&](size_t i) { return reduced(count * rank + i); };
    SHEAF_RETURN_IF_ERROR(group.ReduceScatter(input.data(), output.data(), count, type, op));
    SHEAF_RETURN_IF_ERROR(output.Check(0, count, mine, "reduce_scatter"));
    SHEAF_RETURN_IF_ERROR(
        group.ReduceScatter(input.data(), input.at(count * rank), count, type, op));
    SHEAF_RETURN_IF_ERROR(input.Check(count * rank, count, mine, "reduce_scatter in place"));
  }
  return absl::OkStatus();
}

// The operations of all ranks that move `count` elements of each without reducing them.
template <class Make>
absl::Status Copies(Communicator& group, DataType type, size_t count, Make make) {
  const int world = group.world_size();
  const int rank = group.rank();
  const auto given = [&](size_t i) { return Given(rank, i); };
  {
    const auto of_all = [&](size_t i) { return Given(static_cast<int>(i / count), i % count); };
    auto input = make(type, count), output = make(type, count * world);
    input.Fill(0, count, given);
    SHEAF_RETURN_IF_ERROR(group.AllGather(input.data(), output.data(), count, type));
    SHEAF_RETURN_IF_ERROR(output.Check(0, count * world, of_all, "all_gather"));
    auto whole = make(type, count * world);
    whole.Fill(count * rank, count, given);
    SHEAF_RETURN_IF_ERROR(group.AllGather(whole.at(count * rank), whole.data(), count, type));
    SHEAF_RETURN_IF_ERROR(whole.Check(0, count * world, of_all, "all_gather in place"));
  }
  for (int root = 0; root < world; ++root) {
    auto array = make(type, count);
    if (rank == root) array.Fill(0, count, given);
    SHEAF_RETURN_IF_ERROR(group.Broadcast(array.data(), count, type, root));
    SHEAF_RETURN_IF_ERROR(
        array.Check(0, count, [&](size_t i) { return Given(root, i); }, "broadcast"));
  }
  {
    auto input = make(type, count * world), output = make(type, count * world);
    input.Fill(0, count * world, given);
    SHEAF_RETURN_IF_ERROR(group.AllToAll(input.data(), output.data(), count, type));
    const auto from_all = [&](size_t i) {
      return Given(static_cast<int>(i / count), count * rank + i % count);
    };
    SHEAF_RETURN_IF_ERROR(output.Check(0, count * world, from_all, "all_to_all"));
  }
  return absl::OkStatus();
}

}  // namespace sheaf::testing
