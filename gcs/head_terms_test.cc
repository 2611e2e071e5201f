// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/head_terms.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace head_terms_test {

constexpr Nanos kThen = 1'700'000'000 * kSecond;

SCENARIO("a head that another replaced in its sleep stays the older one when its GCS starts anew") {
  HeadTerms old;
  CHECK(old.Least(kThen) == 1'700'000'000'000);
  CHECK(old.Least(kThen + kSecond) == 1'700'000'001'000);  // It did not serve.
  old.Began(1'700'000'001'000);
  HeadTerms next;
  const uint64_t taken_over = next.Least(kThen + 10 * kSecond);
  CHECK(old.Least(kThen + 60 * kSecond) == 1'700'000'001'001);
  CHECK(old.Least(kThen + 60 * kSecond) < taken_over);
}

}  // namespace head_terms_test
}  // namespace sheaf
