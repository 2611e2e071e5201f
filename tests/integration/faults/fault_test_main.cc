// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The program of all fault rows: test, driver and workers are the same one. See oracle.h.
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include <catch2/catch.hpp>

#include "tests/catch/run.h"
#include "tests/integration/faults/oracle.h"
#include "tests/integration/faults/second_driver.h"

int main(int argc, char** argv) {
  faults::argc = argc;
  faults::argv = argv;
  const char* text = std::getenv("FAULT_SEED");
  faults::seed = text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
  setenv("FAULT_SEED", std::to_string(faults::seed).c_str(),
         1);  // Workers compute the same values.
  if (std::getenv("SHEAF_WORKER") != nullptr || std::getenv("SHEAF_WORKER_TEMPLATE") != nullptr) {
    sheaf::Init(argc, argv);  // Does not return.
  }
  if (argc > 1 && std::string(argv[1]) == faults::kSecondDriver) return faults::RunSecondDriver();
  std::cout << "FAULT_SEED=" << faults::seed << std::endl;
  return sheaf::RunTests(argc, argv);
}
