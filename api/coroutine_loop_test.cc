// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/core.h"

#include "api/coroutine_loop.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>

#include "sheaf/coroutine.h"
#include "sheaf/generator.h"

namespace {

using namespace std::chrono_literals;
using sheaf::Async;
using sheaf::BlockOn;

Async<int> Add(int a, int b) { co_return a + b; }
Async<std::string> Describe(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += co_await Add(i, 1);
  co_return std::to_string(sum);
}
Async<void> Throw() {
  co_await Add(1, 1);
  throw std::out_of_range("five");
}

TEST_CASE("a coroutine that awaits others runs to its end") {
  CHECK(BlockOn(Add(2, 3)) == 5);
  CHECK(BlockOn(Describe(10)) == "55");
  CHECK(BlockOn(Describe(50'000)) == "1250025000");  // No stack is used up by awaiting.
}

TEST_CASE("an exception comes out where the coroutine is awaited") {
  CHECK_THROWS_WITH(BlockOn(Throw()), "five");
  const auto outer = []() -> Async<std::string> {
    try {
      co_await Throw();
    } catch (const std::out_of_range& error) {
      co_return error.what();
    }
    co_return "";
  };
  CHECK(BlockOn(outer()) == "five");
}

TEST_CASE("sleeping takes as long as it says, and shorter sleeps end first") {
  const auto start = std::chrono::steady_clock::now();
  const auto nap = []() -> Async<int> {
    co_await sheaf::Sleep(20ms);
    co_return 1;
  };
  CHECK(BlockOn(nap()) == 1);
  CHECK(std::chrono::steady_clock::now() - start >= 20ms);
}

TEST_CASE("awaiting outside of what Sheaf runs is refused") {
  const auto waits = []() -> Async<void> { co_await sheaf::Sleep(1ms); };
  Async<void> async = waits();
  CHECK_FALSE(async.await_suspend(std::noop_coroutine()));
  CHECK_THROWS_AS(async.await_resume(), sheaf::SystemError);
}

TEST_CASE("a cancelled coroutine ends its wait with an exception, and late wake-ups do nothing") {
  using namespace sheaf::internal;
  auto root = std::make_shared<CoroutineRoot>();
  const auto loop = std::make_shared<CoroutineLoop>();
  root->loop = loop;
  std::string end;
  const auto body = [&]() -> Async<void> {
    try {
      co_await sheaf::Sleep(1h);
    } catch (const sheaf::TaskCancelledError&) {
      end = "cancelled";
    }
    try {
      co_await sheaf::Sleep(1h);  // Nor may it wait again.
    } catch (const sheaf::TaskCancelledError&) {
      end += " for good";
    }
  };
  Async<void> async = body();
  bool done = false;
  std::exception_ptr error;
  loop->Start(root, Finish(async, &done, &error).coroutine);
  loop->Cancel(root);
  loop->Cancel(root);
  loop->Run([&] { return done; }, sheaf::kSecond);
  CHECK(end == "cancelled for good");
  CHECK(error == nullptr);
  CHECK(loop.use_count() == 1);  // Its timers, which are an hour away, do not keep it.
}

TEST_CASE("wake-ups come from any thread") {
  using namespace sheaf::internal;
  struct Signal {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiting) {
      std::thread([wake = CoroutineLoop::Suspend(waiting)] {
        wake();
        wake();  // Twice, as a peer might: once counts.
      }).detach();
    }
    void await_resume() const {}
  };
  const auto body = []() -> Async<int> {
    int count = 0;
    for (; count < 200; ++count) co_await Signal();
    co_return count;
  };
  CHECK(BlockOn(body()) == 200);
}

TEST_CASE("a generator gives its values and then its exception") {
  const auto squares = [](int n) -> sheaf::Generator<int> {
    for (int i = 0; i < n; ++i) co_yield i* i;
    throw std::runtime_error("no more");
  };
  sheaf::Generator<int> generator = squares(3);
  std::vector<int> values;
  CHECK_THROWS_WITH(
      [&] {
        while (generator.Next()) values.push_back(generator.value());
      }(),
      "no more");
  CHECK(values == std::vector<int>{0, 1, 4});
}

}  // namespace
