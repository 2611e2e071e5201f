// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace sheaf {

void CheckFailed(const char* file, int line, const char* condition, const char* text) {
  std::fprintf(stderr, "sheaf: %s:%d: %s: %s\n", file, line, condition, text);
  std::abort();
}

}  // namespace sheaf
