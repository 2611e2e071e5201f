// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sheaf/sheaf.h>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include "train_digits.h"

// train_digits             and shows how it scales
// train_digits EPOCHS
// train_digits --kills COUNT [SEED]
int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = examples::kTrainWorkers;  // Of a node of its own.
  sheaf::Init(argc, argv, options);
  try {
    if (argc > 2 && std::string(argv[1]) == "--kills") {
      const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : std::random_device()();
      return examples::RunKills(SHEAF_DIGITS_FILE, std::atoi(argv[2]), seed) ? 0 : 1;
    }
    const int epochs = argc > 1 ? std::atoi(argv[1]) : 15;
    return examples::RunTraining(SHEAF_DIGITS_FILE, epochs, argc == 1) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_digits: %s\n", error.what());
    return 1;
  }
}
