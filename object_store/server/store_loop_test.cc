// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/store_loop.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace store_loop_test {

SCENARIO("what comes back after the store is gone is dropped") {
  ManualExecutor executor, elsewhere;
  auto loop = std::make_unique<StoreLoop>(executor);
  int ran = 0, done = 0, posted = 0, released = 0;
  loop->RunElsewhere(elsewhere, [&] { ++ran; }, [&] { ++done; });
  loop->Post([&] { ++posted; });
  auto hold = loop->Hold([&] { ++released; });
  CHECK(loop->holds() == 1);
  WHEN("the store lives") {
    hold.reset();
    CHECK(loop->holds() == 1);  // Until the loop hears of it.
    elsewhere.RunAll();
    executor.RunAll();
    CHECK(ran == 1);
    CHECK(done == 1);
    CHECK(posted == 1);
    CHECK(released == 1);
    CHECK(loop->holds() == 0);
  }
  WHEN("it goes before") {
    loop.reset();
    hold.reset();
    elsewhere.RunAll();  // Its work is done in any case.
    executor.RunAll();
    CHECK(ran == 1);
    CHECK(done + posted + released == 0);
  }
  WHEN("it goes between the work and its end") {
    hold.reset();
    elsewhere.RunAll();
    loop.reset();
    executor.RunAll();
    CHECK(done + posted + released == 0);
  }
}

}  // namespace store_loop_test
}  // namespace sheaf::store_parts_test
