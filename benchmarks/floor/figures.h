// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the floors measure and print: a warm-up, then several repetitions, of which the median counts. One JSON line a
// figure: {"name": "...", "unit": "...", "value": ...}. No code of Sheaf.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace floors {

inline constexpr int kRepetitions = 5;

inline double NowSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// --seconds N: how long one figure is measured, all repetitions together. `fallback` without it.
inline double SecondsArgument(int argc, char** argv, double fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--seconds") == 0) return std::max(0.01, std::atof(argv[i + 1]));
  }
  return fallback;
}

inline void Print(const char* name, const char* unit, double value) {
  std::printf("{\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.6g}\n", name, unit, value);
  std::fflush(stdout);
}

// A floor whose values are wrong measures nothing.
inline void Require(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  std::_Exit(1);
}

// Calls `batch`, which does and returns some number of operations, for `seconds`; operations per second.
template <class Batch>
double Rate(double seconds, Batch batch) {
  const double start = NowSeconds();
  double now = start;
  uint64_t operations = 0;
  while (now < start + seconds) {
    operations += batch();
    now = NowSeconds();
  }
  return static_cast<double>(operations) / (now - start);
}

template <class Batch>
double MedianRate(double seconds, Batch batch) {
  Rate(seconds / (2 * kRepetitions), batch);  // Warm up.
  std::vector<double> rates;
  for (int i = 0; i < kRepetitions; ++i) rates.push_back(Rate(seconds / kRepetitions, batch));
  return Median(rates);
}

}  // namespace floors
