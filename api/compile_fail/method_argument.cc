// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: an argument does not fit its parameter
#include <sheaf/sheaf.h>

class Counter {
 public:
  int Add(int n) { return value_ += n; }

 private:
  int value_ = 0;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<>, &Counter::Add);

void Run(sheaf::ActorHandle<Counter> counter) { counter.Task(&Counter::Add).Remote("one"); }
