// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The loops of reduce_ops, compiled once for every set of instructions: the including file defines
// SHEAF_KERNELS, the namespace of its copy. Nothing here is inline or of the standard library, lest
// the linker takes a copy that the machine cannot run.
#ifndef SHEAF_KERNELS
#error "define SHEAF_KERNELS"
#endif
#ifdef __clang__
// "GCC ivdep": clang looks by itself, as the loop begins, whether what it names overlaps.
#pragma clang diagnostic ignored "-Wunknown-pragmas"
#endif

#include <cstddef>
#include <cstdint>
#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

#include "collective/reduce_entry.h"

namespace sheaf::SHEAF_KERNELS {
namespace {

constexpr size_t kBlock = 1024;  // Elements: what is accumulated at once, in the first-level cache.

template <class To, class From>
To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
struct Bits {
  using Unsigned = T;
};
template <>
struct Bits<int32_t> {
  using Unsigned = uint32_t;
};
template <>
struct Bits<int64_t> {
  using Unsigned = uint64_t;
};

struct Sum {
  template <class T>
  static T Of(T a, T b) {
    using U = typename Bits<T>::Unsigned;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Product {
  template <class T>
  static T Of(T a, T b) {
    using U = typename Bits<T>::Unsigned;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};
struct Min {
  template <class T>
  static T Of(T a, T b) {
    return a < b || a != a ? a : b;  // A NaN is not equal to itself.
  }
};
struct Max {
  template <class T>
  static T Of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

// What is done to each result before it is stored.
struct Keep {
  template <class T>
  T operator()(T value) const {
    return value;
  }
};
template <class T>
struct Divide {
  T by;
  T operator()(T value) const { return static_cast<T>(value / by); }
};
template <class T>
struct Multiply {  // Exact where the divisor is a power of two, and much faster.
  T by;
  T operator()(T value) const { return value * by; }
};

// The processor fetches ahead of a loop by itself, but within a page of 4 KiB only. Arrays that are
// in no cache are read a third faster when the loop asks for what is two pages ahead; with more than
// two sources that was no gain.
constexpr size_t kAheadBytes = 8192;
constexpr size_t kFarBytes = 1 << 20;  // Shorter ones are in a cache, where a fetch ahead costs.
constexpr size_t kLineBytes = 64;

void FetchAhead(const void* from) {
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + kAheadBytes));
}

// Runs `loop` over [0, count): in one piece, or with fetches ahead of it from the two arrays.
template <class T, class Loop>
void OverBoth(const T* a, const T* b, size_t count, Loop loop) {
  constexpr size_t kStep = kLineBytes / sizeof(T);
  const size_t far = count * sizeof(T) >= kFarBytes ? count / kStep * kStep : 0;
  for (size_t begin = 0; begin < far; begin += kStep) {
    FetchAhead(a + begin);
    FetchAhead(b + begin);
    loop(begin, begin + kStep);
  }
  loop(far, count);
}

// Two sources, as with two ranks: one pass. The loops are not to be unrolled before the compiler
// has made them wide.
template <class T, class Op, class Finish>
void ReduceTwo(const T* a, const T* b, T* const* targets, size_t target_count, size_t count,
               Finish finish) {
  T* x = targets[0];
  if (target_count == 2) {
    T* y = targets[1];
    return OverBoth(a, b, count, [&](size_t begin, size_t end) __attribute__((always_inline)) {
#pragma GCC ivdep
#pragma GCC unroll 1
      for (size_t i = begin; i < end; ++i) {
        const T value = finish(Op::template Of<T>(a[i], b[i]));
        x[i] = value;
        y[i] = value;
      }
    });
  }
  OverBoth(a, b, count, [&](size_t begin, size_t end) __attribute__((always_inline)) {
#pragma GCC ivdep
#pragma GCC unroll 1
    for (size_t i = begin; i < end; ++i) x[i] = finish(Op::template Of<T>(a[i], b[i]));
  });
}

template <class T, class Op, class Finish>
void ReduceMany(const T* const* sources, size_t source_count, T* const* targets,
                size_t target_count, size_t count, Finish finish) {
  if (source_count == 2 && (target_count == 1 || target_count == 2)) {
    return ReduceTwo<T, Op>(sources[0], sources[1], targets, target_count, count, finish);
  }
  T sum[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t size = count - start < kBlock ? count - start : kBlock;
    __builtin_memcpy(sum, sources[0] + start, size * sizeof(T));
    for (size_t s = 1; s < source_count; ++s) {
      const T* source = sources[s] + start;
#pragma GCC ivdep
      for (size_t i = 0; i < size; ++i) sum[i] = Op::template Of<T>(sum[i], source[i]);
    }
#pragma GCC ivdep
    for (size_t i = 0; i < size; ++i) sum[i] = finish(sum[i]);
    for (size_t t = 0; t < target_count; ++t) {
      __builtin_memcpy(targets[t] + start, sum, size * sizeof(T));
    }
  }
}

struct Half {
  static float Decode(uint16_t half) {
    constexpr uint32_t kExponent = 0x7c00u << 13;
    uint32_t bits = (half & 0x7fffu) << 13;
    const uint32_t exponent = bits & kExponent;
    bits += (127u - 15u) << 23;
    const uint32_t infinite = bits + ((128u - 16u) << 23);
    const uint32_t subnormal =
        BitsAs<uint32_t>(BitsAs<float>(bits + (1u << 23)) - BitsAs<float>(113u << 23));
    bits = exponent == kExponent ? infinite : exponent == 0 ? subnormal : bits;
    return BitsAs<float>(bits | (half & 0x8000u) << 16);
  }
  static uint16_t Encode(float value) {
    const uint32_t all = BitsAs<uint32_t>(value);
    const uint32_t sign = all & 0x80000000u;
    const uint32_t bits = all ^ sign;
    // Too large, infinite or NaN; subnormal as float16; normal: rounded to nearest even.
    const uint32_t large = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t magic = ((127u - 15u) + (23u - 10u) + 1u) << 23;
    const uint32_t small = BitsAs<uint32_t>(BitsAs<float>(bits) + BitsAs<float>(magic)) - magic;
    const uint32_t normal = (bits + ((15u - 127u) << 23) + 0xfffu + (bits >> 13 & 1u)) >> 13;
    const uint32_t half = bits >= (127u + 16u) << 23 ? large : bits < 113u << 23 ? small : normal;
    return static_cast<uint16_t>(half | sign >> 16);
  }
  static void DecodeBlock(const uint16_t* from, float* to, size_t count) {
    size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(
          to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#endif
    for (; i < count; ++i) to[i] = Decode(from[i]);
  }
  static void EncodeBlock(const float* from, uint16_t* to, size_t count) {
    size_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
    for (; i + 8 <= count; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < count; ++i) to[i] = Encode(from[i]);
  }
};

struct Brain {
  static void DecodeBlock(const uint16_t* from, float* to, size_t count) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) to[i] = BitsAs<float>(static_cast<uint32_t>(from[i]) << 16);
  }
  static void EncodeBlock(const float* from, uint16_t* to, size_t count) {
#pragma GCC ivdep
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = BitsAs<uint32_t>(from[i]);
      const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
      const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
      to[i] = static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40u : rounded);
    }
  }
};

void Weigh(float* values, size_t count, const float* weights, size_t source) {
  if (weights == nullptr) return;
  const float weight = weights[source];
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) values[i] *= weight;
}

template <class Codec, class Op, class Finish>
void ReduceConverted(const uint16_t* const* sources, size_t source_count, uint16_t* const* targets,
                     size_t target_count, size_t count, const float* weights, Finish finish) {
  float sum[kBlock];
  float next[kBlock];
  uint16_t result[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t size = count - start < kBlock ? count - start : kBlock;
    Codec::DecodeBlock(sources[0] + start, sum, size);
    Weigh(sum, size, weights, 0);
    for (size_t s = 1; s < source_count; ++s) {
      Codec::DecodeBlock(sources[s] + start, next, size);
      Weigh(next, size, weights, s);
#pragma GCC ivdep
      for (size_t i = 0; i < size; ++i) sum[i] = Op::template Of<float>(sum[i], next[i]);
    }
#pragma GCC ivdep
    for (size_t i = 0; i < size; ++i) sum[i] = finish(sum[i]);
    Codec::EncodeBlock(sum, result, size);
    for (size_t t = 0; t < target_count; ++t) {
      __builtin_memcpy(targets[t] + start, result, size * sizeof(uint16_t));
    }
  }
}

// Calls `reduce` with the reduction and what is done to its results.
template <class Acc, class ReduceWith>
void WithOp(KernelOp op, size_t divisor, ReduceWith reduce) {
  switch (op) {
    case KernelOp::kSum:
      return reduce(Sum{}, Keep{});
    case KernelOp::kProduct:
      return reduce(Product{}, Keep{});
    case KernelOp::kMin:
      return reduce(Min{}, Keep{});
    case KernelOp::kMax:
      return reduce(Max{}, Keep{});
    case KernelOp::kAverage:
      if constexpr (Acc(0.5) != Acc(0)) {
        if ((divisor & (divisor - 1)) == 0) {
          return reduce(Sum{}, Multiply<Acc>{Acc(1) / static_cast<Acc>(divisor)});
        }
      }
      return reduce(Sum{}, Divide<Acc>{static_cast<Acc>(divisor)});
  }
}

template <class T>
void Typed(const KernelCall& call) {
  const T* const* sources = reinterpret_cast<const T* const*>(call.sources);
  T* const* targets = reinterpret_cast<T* const*>(call.targets);
  WithOp<T>(call.op, call.divisor, [&](auto op, auto finish) {
    ReduceMany<T, decltype(op)>(sources, call.source_count, targets, call.target_count, call.count,
                                finish);
  });
}

template <class Codec>
void Converted(const KernelCall& call) {
  const uint16_t* const* sources = reinterpret_cast<const uint16_t* const*>(call.sources);
  uint16_t* const* targets = reinterpret_cast<uint16_t* const*>(call.targets);
  WithOp<float>(call.op, call.divisor, [&](auto op, auto finish) {
    ReduceConverted<Codec, decltype(op)>(sources, call.source_count, targets, call.target_count,
                                         call.count, call.weights, finish);
  });
}

}  // namespace

void RunKernel(const KernelCall& call) {
  switch (call.type) {
    case KernelType::kUint8:
      return Typed<uint8_t>(call);
    case KernelType::kInt32:
      return Typed<int32_t>(call);
    case KernelType::kInt64:
      return Typed<int64_t>(call);
    case KernelType::kFloat16:
      return Converted<Half>(call);
    case KernelType::kBfloat16:
      return Converted<Brain>(call);
    case KernelType::kFloat32:
      return Typed<float>(call);
    case KernelType::kFloat64:
      return Typed<double>(call);
  }
}

void RunConvert(const ConvertCall& call) {
  if (call.to_float) {
    const auto* const from = static_cast<const uint16_t*>(call.from);
    auto* const to = static_cast<float*>(call.to);
    return call.type == KernelType::kFloat16 ? Half::DecodeBlock(from, to, call.count)
                                             : Brain::DecodeBlock(from, to, call.count);
  }
  const auto* const from = static_cast<const float*>(call.from);
  auto* const to = static_cast<uint16_t*>(call.to);
  return call.type == KernelType::kFloat16 ? Half::EncodeBlock(from, to, call.count)
                                           : Brain::EncodeBlock(from, to, call.count);
}

}  // namespace sheaf::SHEAF_KERNELS
