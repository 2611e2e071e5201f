// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A clock that a test moves by hand.
#pragma once

#include "base/clock.h"

namespace sheaf {

class FakeClock final : public Clock {
 public:
  Nanos Now() const override { return now_; }
  void Advance(Nanos duration) { now_ += duration; }
  void SetNow(Nanos now) { now_ = now; }

 private:
  Nanos now_ = kSecond;
};

}  // namespace sheaf
