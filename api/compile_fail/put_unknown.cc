// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: sheaf::Put: this type cannot travel between processes
#include <sheaf/sheaf.h>
#include <mutex>

void Run(std::mutex& mutex) { sheaf::Put(mutex); }
