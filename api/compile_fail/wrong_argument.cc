// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: an argument does not fit its parameter
#include <sheaf/sheaf.h>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

void Run() { sheaf::Task(Square).Remote(std::string("three")); }
