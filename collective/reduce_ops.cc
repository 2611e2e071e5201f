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
                  std::span<std::byte* const> targets, size_t count, size_t divisor,
                  std::span<const float> weights = {}) {
  return {static_cast<KernelType>(type),
          static_cast<KernelOp>(op),
          sources.data(),
          sources.size(),
          const_cast<std::byte**>(targets.data()),
          targets.size(),
          count,
          divisor,
          weights.empty() ? nullptr : weights.data()};
}

struct Kernels {
  void (*run)(const KernelCall&);
  void (*convert)(const ConvertCall&);
};

const Kernels& Best() {
  static const Kernels best = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
      return Kernels{&avx2_kernels::RunKernel, &avx2_kernels::RunConvert};
    }
#endif
    return Kernels{&plain_kernels::RunKernel, &plain_kernels::RunConvert};
  }();
  return best;
}

}  // namespace

void Reduce(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count) {
  ReduceAndDivide(type, op, sources, targets, count, sources.size());
}

void ReduceAndDivide(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
                     std::span<std::byte* const> targets, size_t count, size_t divisor,
                     std::span<const float> weights) {
  if (count == 0 || targets.empty()) return;
  Best().run(CallOf(type, op, sources, targets, count, divisor, weights));
}

void ReducePlainly(DataType type, ReduceOp op, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, size_t count) {
  if (count != 0 && !targets.empty()) {
    plain_kernels::RunKernel(CallOf(type, op, sources, targets, count, sources.size()));
  }
}

void ToFloat(DataType type, const void* from, float* to, size_t count) {
  Best().convert({static_cast<KernelType>(type), true, from, to, count});
}

void FromFloat(DataType type, const float* from, void* to, size_t count) {
  Best().convert({static_cast<KernelType>(type), false, from, to, count});
}

}  // namespace sheaf
