// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: the result of this function cannot travel between processes
#include <sheaf/sheaf.h>
#include <functional>

std::function<int()> Make() {
  return [] { return 1; };
}
SHEAF_REMOTE(Make);
