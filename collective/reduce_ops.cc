// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/reduce_ops.h"

#include "collective/reduce_entry.h"

namespace sheaf {
namespace {

static_assert(static_cast<int>(KernelType::kFloat64) == static_cast<int>(DataType::kFloat64) &&
              static_cast<int>(KernelType::kFloat16) == static_cast<int>(DataType::kFloat16) &&
              static_cast<int>(KernelOp::kAverage) == static_cast<int>(ReduceOp::kAverage) &&
              static_cast<int>(KernelOp::kMin) == static_cast<int>(ReduceOp::kMin));

KernelCall CallOf(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> targets, size_t count) {
  return {static_cast<KernelType>(type),
          static_cast<KernelOp>(op),
          sources.data(),
          sources.size(),
          const_cast<std::byte**>(targets.data()),
          targets.size(),
          count};
}

using Kernel = void (*)(const KernelCall&);

Kernel Best() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    return &avx2_kernels::RunKernel;
  }
#endif
  return &plain_kernels::RunKernel;
}

}  // namespace

void Reduce(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count) {
  static const Kernel kernel = Best();
  if (count != 0 && !targets.empty()) kernel(CallOf(type, op, sources, targets, count));
}

void ReducePlainly(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, size_t count) {
  if (count != 0 && !targets.empty()) {
    plain_kernels::RunKernel(CallOf(type, op, sources, targets, count));
  }
}

}  // namespace sheaf
