// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/loop_watch.h"

#include <sys/eventfd.h>

#include <catch2/catch.hpp>

namespace sheaf {
namespace loop_watch_test {

struct WatchTest {
  WatchTest() { REQUIRE(watch.Open(loop.get()).ok()); }
  void Say() { REQUIRE(eventfd_write(loop.get(), 1) == 0); }
  // As a loop that has looked at its descriptors.
  void Hear() {
    eventfd_t value;
    REQUIRE(eventfd_read(loop.get(), &value) == 0);
  }
  UniqueFd loop{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  LoopWatch watch;
};

SCENARIO("what a descriptor says ends one wait of the loop") {
  WatchTest test;
  CHECK(!test.watch.TakeReadable());
  test.Say();
  REQUIRE(test.watch.Wait());
  test.watch.NoteReadable();
  CHECK(test.watch.TakeReadable());
  CHECK(!test.watch.TakeReadable());
}

SCENARIO("the main thread is not called while the loop runs") {
  WatchTest test;
  test.Say();
  REQUIRE(test.watch.Wait());
  test.watch.NoteReadable();
  CHECK(!test.watch.Wait());  // It is readable still, and the loop looks.
  test.watch.Arm();
  CHECK(test.watch.Wait());
  test.watch.NoteReadable();
  test.Hear();
  test.watch.Arm();
  CHECK(!test.watch.Wait());
}

SCENARIO("who leaves waits no more") {
  WatchTest test;
  test.watch.Leave();
  CHECK(!test.watch.Wait());
  CHECK(!test.watch.Wait());
}

SCENARIO("what is no descriptor is refused") {
  LoopWatch watch;
  CHECK(absl::IsResourceExhausted(watch.Open(-1)));
  CHECK(!watch.is_open());
  watch.Leave();
}

}  // namespace loop_watch_test
}  // namespace sheaf
