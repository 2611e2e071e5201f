// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/callback_runner.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace sheaf {
namespace callback_runner_test {

using namespace std::chrono_literals;

// Something that happens on another thread, and is waited for.
class Event {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool Wait(std::chrono::milliseconds limit = 20s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

TEST_CASE("callbacks run in their order, on another thread") {
  CallbackRunner runner("test");
  std::vector<int> order;
  Event last;
  bool elsewhere = true;
  for (int i = 0; i < 1000; ++i) {
    runner.Post([&, i, here = std::this_thread::get_id()] {
      order.push_back(i);
      elsewhere &= std::this_thread::get_id() != here;
      if (i == 999) last.Set();
    });
  }
  REQUIRE(last.Wait());
  CHECK(elsewhere);
  REQUIRE(order.size() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

TEST_CASE("a callback may post another") {
  CallbackRunner runner("test");
  Event inner;
  runner.Post([&] { runner.Post([&] { inner.Set(); }); });
  CHECK(inner.Wait());
}

TEST_CASE("callbacks that do not return hold up no others") {
  // Shared with the callbacks: these may outlive the test if it fails.
  const auto release = std::make_shared<Event>();
  std::vector<std::shared_ptr<Event>> stuck;
  CallbackRunner runner("test");
  for (int i = 0; i < 3; ++i) {
    stuck.push_back(std::make_shared<Event>());
    runner.Post([begun = stuck.back(), release] {
      begun->Set();
      release->Wait(60s);
    });
  }
  const auto other = std::make_shared<Event>();
  runner.Post([other] { other->Set(); });
  REQUIRE(stuck[0]->Wait());
  CHECK_FALSE(stuck[1]->Wait(0ms));  // One at a time, until somebody sees that it takes long.
  for (int look = 0; look < 8; ++look) {
    runner.Relieve();
    if (other->Wait(50ms)) break;
  }
  CHECK(other->Wait(0ms));
  release->Set();
}

TEST_CASE("closing waits as long as it is told, and loses what it is told") {
  const auto release = std::make_shared<Event>(), begun = std::make_shared<Event>();
  const auto ran = std::make_shared<std::atomic<int>>(0);
  CallbackRunner runner("test");
  SECTION("not for one that does not return; the others never begin") {
    runner.Post([begun, release] {
      begun->Set();
      release->Wait(60s);
    });
    REQUIRE(begun->Wait());
    runner.Post([ran] { ++*ran; });
    runner.Close({.finish = GENERATE(false, true), .patience = 20 * kMillisecond});
    release->Set();
    CHECK(*ran == 0);
  }
  SECTION("of all, though one does not return: the others run yet") {
    const auto second = std::make_shared<Event>(), third = std::make_shared<Event>();
    runner.Post([begun, release] {
      begun->Set();
      release->Wait(60s);
    });
    REQUIRE(begun->Wait());
    runner.Post([second] { second->Set(); });
    runner.Post([third] { third->Set(); });
    runner.Close({.finish = true, .patience = 20 * kMillisecond, .all = true});
    CHECK(second->Wait());
    CHECK(third->Wait());
    release->Set();
  }
  SECTION("until all have run") {
    for (int i = 0; i < 100; ++i) runner.Post([ran] { ++*ran; });
    runner.Close({.finish = true, .patience = 20 * kSecond});
    CHECK(*ran == 100);
    runner.Post([ran] { ++*ran; });
    runner.Close({.finish = true, .patience = 20 * kSecond});
    CHECK(*ran == 100);
  }
}

}  // namespace callback_runner_test
}  // namespace sheaf
