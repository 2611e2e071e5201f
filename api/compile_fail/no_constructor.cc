// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// WANT: none of the constructors that SHEAF_ACTOR names takes these arguments
#include <sheaf/sheaf.h>

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int n) { return value_ += n; }

 private:
  int value_;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Add);

void Run() { sheaf::Actor<Counter>().Remote(std::string("x")); }
