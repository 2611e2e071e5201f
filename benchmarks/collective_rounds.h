// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How bench_collective and the peers that it is compared with measure one size: the same sizes, the
// same number of operations, back to back in five rounds with a barrier before each, of which the
// median counts. No code of Sheaf.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "benchmarks/floor/figures.h"

namespace rounds {

inline constexpr size_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
inline constexpr int kRounds = 5;

// Of one round; the first five of them are run before, to warm up.
inline int Operations(size_t bytes) {
  return static_cast<int>(std::clamp<size_t>((size_t{128} << 20) / bytes, 2, 1000));
}

struct Figure {
  double median_us, best_us;
};

// Microseconds for an operation, as this rank sees it. `operation` and `barrier` concern all ranks.
template <class Operation, class Barrier>
Figure Measure(size_t bytes, Operation operation, Barrier barrier) {
  const int count = Operations(bytes);
  for (int i = 0; i < std::min(count, 5); ++i) operation();
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    barrier();
    const double began = floors::NowSeconds();
    for (int i = 0; i < count; ++i) operation();
    times.push_back((floors::NowSeconds() - began) * 1e6 / count);
  }
  std::sort(times.begin(), times.end());
  return {times[kRounds / 2], times[0]};
}

// What a peer's program prints for each size, and bench_collective reads.
inline void PrintFigure(size_t bytes, const Figure& figure) {
  std::printf("%zu %.6g %.6g\n", bytes, figure.median_us, figure.best_us);
  std::fflush(stdout);
}

}  // namespace rounds
