// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: a parameter of this function cannot travel between processes
#include <sheaf/sheaf.h>

int First(const int* numbers) { return *numbers; }
SHEAF_REMOTE(First);
