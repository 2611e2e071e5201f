// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sheaf/sheaf.h>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

void Run() { sheaf::Get(sheaf::Task(Square).Remote(3)); }
