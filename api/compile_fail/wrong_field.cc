// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: a field of this struct cannot travel between processes
#include <sheaf/sheaf.h>

struct Job {
  int number;
  int* memory;
};

void Run() { sheaf::Put(Job{}); }
