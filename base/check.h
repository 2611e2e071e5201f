// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// SHEAF_CHECK(condition, text): ends the process with file, line and text when a programming error
// left `condition` false. Never for what a peer, a user or the kernel can cause: that is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace sheaf {

[[noreturn, gnu::cold]] inline void CheckFailed(const char* file, int line, const char* condition,
                                                const char* text) {
  std::fprintf(stderr, "sheaf: %s:%d: %s: %s\n", file, line, condition, text);
  std::abort();
}

}  // namespace sheaf

#define SHEAF_CHECK(condition, text)                              \
  do {                                                            \
    if (!(condition)) [[unlikely]] {                              \
      ::sheaf::CheckFailed(__FILE__, __LINE__, #condition, text); \
    }                                                             \
  } while (false)
