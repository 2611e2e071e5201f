// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: another number of arguments than the function has parameters
#include <sheaf/sheaf.h>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

void Run() { sheaf::Task(Square).Remote(3, 4); }
