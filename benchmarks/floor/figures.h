// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the floors measure and print: a warm-up, then several repetitions, of which the median
// counts. One JSON line a figure: {"name": "...", "unit": "...", "value": ...}. No code of Sheaf.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace floors {

inline constexpr int kRepetitions = 5;

// For a receiver that has several calls in flight: one that looks at the sender's cursor again at
// once takes its cache line for each record.
inline void PauseBetweenLooks() {
#if defined(__x86_64__)
  for (int i = 0; i < 32; ++i) __builtin_ia32_pause();
#endif
}

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

// --two-cores: keeps the calling process (`second` of two) on a core of its own. Without it the
// kernel places both, at times on one core, where nothing travels between caches and calls in
// flight are faster.
inline void PlaceProcess(int argc, char** argv, bool second) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--two-cores") != 0) continue;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(second ? 1 : 0, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }
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

// Calls `batch`, which does and returns some number of operations, for `seconds`; operations per
// second.
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
