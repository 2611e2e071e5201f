// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How bench_collective and the peers that it is compared with measure one size: the same sizes,
// operations back to back in rounds with a barrier before each, of which the median counts. As many
// operations as fill a round's time, so that what is slow does not take minutes. No code of Sheaf.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "benchmarks/floor/figures.h"

namespace rounds {

inline constexpr size_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
inline constexpr int kRounds = 5;
inline constexpr int kSlowRounds = 3;  // Of operations that take longer than kSlowSeconds.
inline constexpr double kSlowSeconds = 0.25;
inline constexpr double kRoundSeconds = 0.1;
inline constexpr int kMostOperations = 1000;  // Of a round.

struct Figure {
  double median_us, best_us;
};

// Microseconds for an operation, as this rank sees it. `operation` and `barrier` concern all ranks.
template <class Operation, class Barrier>
Figure MeasureRounds(int rounds, int count, Operation operation, Barrier barrier) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    barrier();
    const double began = floors::NowSeconds();
    for (int i = 0; i < count; ++i) operation();
    times.push_back((floors::NowSeconds() - began) * 1e6 / count);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

// As many as fill kRoundSeconds. `largest` is what the ranks agree by: of the seconds that each
// gives, the most.
template <class Operation, class Barrier, class Largest>
Figure Measure(Operation operation, Barrier barrier, Largest largest) {
  double expected = 1e9;
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    barrier();
    const double began = floors::NowSeconds();
    operation();
    expected = std::min<double>(expected, largest(floors::NowSeconds() - began));
  }
  const int count = static_cast<int>(
      std::clamp<double>(kRoundSeconds / expected, 1, static_cast<double>(kMostOperations)));
  return MeasureRounds(expected > kSlowSeconds ? kSlowRounds : kRounds, count, operation, barrier);
}

// What a peer's program prints for each size, and bench_collective reads.
inline void PrintFigure(size_t bytes, const Figure& figure) {
  std::printf("%zu %.6g %.6g\n", bytes, figure.median_us, figure.best_us);
  std::fflush(stdout);
}

}  // namespace rounds
