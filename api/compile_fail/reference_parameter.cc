// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: a parameter of this function cannot travel between processes
#include <sheaf/sheaf.h>

void Sort(std::vector<int>& numbers) { std::sort(numbers.begin(), numbers.end()); }
SHEAF_REMOTE(Sort);
