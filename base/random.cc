// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace sheaf {

uint64_t EntropySeed() {
  uint64_t seed = 0;
  SHEAF_CHECK(getrandom(&seed, sizeof seed, 0) == sizeof seed, "the kernel gave no entropy");
  return seed;
}

}  // namespace sheaf
