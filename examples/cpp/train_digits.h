// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Trains the classifier of handwritten digits in a group of workers that add up their gradients by
// all-reduce. One is killed on the way; the others stay, a new one joins, and training goes on from
// the last checkpoint.
#pragma once

#include <cstdint>
#include <string>

namespace examples {

inline constexpr int kTrainWorkers = 4;

// Trains on `data` (an .npz file) for `epochs`, kills one worker in the middle, and compares with
// this process alone; then measures the throughput of 1, 2 and 4 workers. False: a step is missing
// or doubled, the weights differ by more than rounding, or fewer than 93 % of the test images are
// recognised.
bool RunTraining(const std::string& data, int epochs, bool scaling);

// Trains `kills` times, each time with a kill of a random worker at a random step, and says how
// long it took to recover. False as above.
bool RunKills(const std::string& data, int kills, uint64_t seed);

}  // namespace examples
