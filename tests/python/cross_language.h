// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sheaf/sheaf.h>

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace app {

int SquareElsewhere(int x);

class Counter {
 public:
  explicit Counter(int start);
  static Counter Between(int low, int high);
  int Add(int n);
  int Value() const;
  void Fail() const;

 private:
  int value_;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Between, &Counter::Add, &Counter::Value,
            &Counter::Fail);

}  // namespace app
