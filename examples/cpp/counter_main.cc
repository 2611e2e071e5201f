// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sheaf/sheaf.h>
#include <cstdlib>

#include "counter.h"

// counter [CALLS]
int main(int argc, char** argv) {
  sheaf::Init(argc, argv);
  return examples::RunCounter(argc > 1 ? std::atoi(argv[1]) : 100'000) ? 0 : 1;
}
