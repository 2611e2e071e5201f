// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: sheaf::Put: this type cannot travel between processes
#include <mutex>
#include <sheaf/sheaf.h>

void Run(std::mutex& mutex) { sheaf::Put(mutex); }
