// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: RemoteTuple() is for functions that return a std::tuple
#include <sheaf/sheaf.h>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

void Run() { sheaf::Task(Square).RemoteTuple(3); }
