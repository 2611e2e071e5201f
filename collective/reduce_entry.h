// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Between reduce_ops.cc and the copies of its loops. Plain types only (see reduce_kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sheaf {

// In the order of DataType and ReduceOp (communicator.h).
enum class KernelType : uint8_t {
  kUint8,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};
enum class KernelOp : uint8_t { kSum, kProduct, kMin, kMax, kAverage };

struct KernelCall {
  KernelType type;
  KernelOp op;
  const void* sources;   // const std::byte* const*
  size_t source_count;   // At least 1.
  void* targets;         // std::byte* const*
  size_t target_count;   // At least 1.
  size_t count;          // Elements.
  size_t divisor;        // Of kAverage.
  const float* weights;  // Of kAverage in 16 bits: what each source counts. nullptr: 1 each.
};
// Between float and float16 or bfloat16.
struct ConvertCall {
  KernelType type;  // Of the 16 bits.
  bool to_float;
  const void* from;
  void* to;
  size_t count;
};

namespace plain_kernels {
void RunKernel(const KernelCall& call);
void RunConvert(const ConvertCall& call);
}  // namespace plain_kernels
namespace avx2_kernels {
// Need AVX2 and F16C.
void RunKernel(const KernelCall& call);
void RunConvert(const ConvertCall& call);
}  // namespace avx2_kernels

}  // namespace sheaf
