// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors of the public C++ interface. Part of the program of cpp_api_test.cc.
#include <unistd.h>

#include <sheaf/sheaf.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/wait_until_for_test.h"

namespace live {

using namespace std::chrono_literals;

int Nine() { return 9; }
SHEAF_REMOTE(Nine);

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int n) { return value_ += n; }
  int Value() const { return value_; }
  int Process() const { return static_cast<int>(getpid()); }
  void Fail() { throw std::logic_error("no"); }
  void Exit() { _exit(3); }
  int AddTo(sheaf::ActorHandle<Counter> other, int n) {
    return sheaf::Get(other.Task(&Counter::Add).Remote(n));
  }
  sheaf::Generator<int> Countdown() {
    while (value_ > 0) co_yield value_--;
  }
  std::tuple<int, int> Split() const { return {value_ / 2, value_ - value_ / 2}; }

 private:
  int value_;
};
Counter MakeCounter(int a, int b) { return Counter(a * b); }
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, MakeCounter, &Counter::Add, &Counter::Value,
            &Counter::Process, &Counter::Fail, &Counter::Exit, &Counter::AddTo, &Counter::Countdown,
            &Counter::Split);

// Calls run at the same time.
class Meeting {
 public:
  // Returns when `count` calls are in here together.
  int Meet(int count) {
    const int order = ++inside_;
    while (inside_ < count) std::this_thread::sleep_for(1ms);
    return order;
  }
  int Inside() const { return inside_; }

 private:
  std::atomic<int> inside_ = 0;
};
SHEAF_ACTOR(Meeting, sheaf::Constructor<>, &Meeting::Meet,
            sheaf::InGroup<"quick">(&Meeting::Inside));

// Coroutines take turns.
class Mailbox {
 public:
  sheaf::Async<std::string> Wait() {
    while (text_.empty()) co_await sheaf::Sleep(1ms);
    co_return text_;
  }
  sheaf::Async<int> Twice(sheaf::ObjectRef<int> number) { co_return 2 * co_await number; }
  void Write(const std::string& text) { text_ = text; }

 private:
  std::string text_;
};
SHEAF_ACTOR(Mailbox, sheaf::Constructor<>, &Mailbox::Wait, &Mailbox::Twice, &Mailbox::Write);

class Refuses {
 public:
  Refuses() { throw std::invalid_argument("not today"); }
  int Ping() { return 1; }
};
SHEAF_ACTOR(Refuses, sheaf::Constructor<>, &Refuses::Ping);

// --- tests ---------------------------------------------------------------------------------------

TEST_CASE("an actor keeps its state, and calls run in order") {
  const auto counter = sheaf::Actor<Counter>().Remote(10);
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 1; i <= 100; ++i) refs.push_back(counter.Task(&Counter::Add).Remote(i));
  const std::vector<int> values = sheaf::Get(refs);
  int expected = 10;
  for (int i = 1; i <= 100; ++i) REQUIRE(values[static_cast<size_t>(i - 1)] == (expected += i));
  CHECK(sheaf::Get(counter.Task(&Counter::Value).Remote()) == expected);
  auto [half, rest] = counter.Task(&Counter::Split).RemoteTuple();
  CHECK(sheaf::Get(half) + sheaf::Get(rest) == expected);
}

TEST_CASE("an actor is made by a factory, called by other actors, and streams") {
  const auto a = sheaf::Actor(MakeCounter).Remote(2, 3);
  const auto b = sheaf::Actor<Counter>().Remote(100);
  CHECK(sheaf::Get(b.Task(&Counter::AddTo).Remote(a, 4)) == 10);
  int sum = 0;
  for (const auto& item : a.Task(&Counter::Countdown).Remote()) sum += sheaf::Get(item);
  CHECK(sum == 55);
}

TEST_CASE("an exception in a method leaves the actor alive, one in the constructor ends it") {
  const auto counter = sheaf::Actor<Counter>().Remote(1);
  CHECK_THROWS_AS(sheaf::Get(counter.Task(&Counter::Fail).Remote()), sheaf::TaskError);
  CHECK(sheaf::Get(counter.Task(&Counter::Value).Remote()) == 1);
  const auto refuses = sheaf::Actor<Refuses>().Remote();
  CHECK_THROWS_WITH(sheaf::Get(refuses.Created(), 10s), Catch::Contains("not today"));
  CHECK_THROWS_AS(sheaf::Get(refuses.Task(&Refuses::Ping).Remote(), 10s), sheaf::Error);
}

TEST_CASE("a named actor is found, by its class only, and its name is taken") {
  const auto counter = sheaf::Actor<Counter>().Name("the counter").Remote(5);
  CHECK(sheaf::Get(sheaf::GetActor<Counter>("the counter").Task(&Counter::Add).Remote(1)) == 6);
  CHECK_THROWS_AS(sheaf::GetActor<Counter>("nobody"), sheaf::NotFoundError);
  CHECK_THROWS_AS(sheaf::GetActor<Meeting>("the counter"), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(sheaf::Actor<Counter>().Name("the counter").Remote(1),
                  sheaf::ActorNameTakenError);
  const auto same = sheaf::Actor<Counter>().Name("the counter").GetIfExists().Remote(1);
  CHECK(sheaf::Get(same.Task(&Counter::Value).Remote()) == 6);
}

TEST_CASE("a dead actor says so, and one that may restart comes back anew") {
  const auto counter = sheaf::Actor<Counter>().Remote(5);
  sheaf::Get(counter.Created());
  sheaf::Kill(counter);
  CHECK_THROWS_AS(sheaf::Get(counter.Task(&Counter::Value).Remote(), 10s), sheaf::ActorDiedError);

  const auto phoenix = sheaf::Actor<Counter>().MaxRestarts(1).MaxTaskRetries(-1).Remote(5);
  const int first = sheaf::Get(phoenix.Task(&Counter::Process).Remote());
  sheaf::Get(phoenix.Task(&Counter::Add).Remote(1));
  (void)sheaf::TryGet(phoenix.Task(&Counter::Exit).Retries(0).Remote(), 10s);
  CHECK(sheaf::Get(phoenix.Task(&Counter::Value).Retries(5).Remote(), 10s) == 5);
  CHECK(sheaf::Get(phoenix.Task(&Counter::Process).Remote()) != first);
}

TEST_CASE("calls of a threaded actor run at the same time, and groups by themselves") {
  const auto meeting =
      sheaf::Actor<Meeting>().MaxConcurrency(3).ConcurrencyGroup("quick", 1).Remote();
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < 2; ++i) refs.push_back(meeting.Task(&Meeting::Meet).Remote(3));
  REQUIRE(sheaf::WaitUntil(
      30s, [&] { return sheaf::Get(meeting.Task(&Meeting::Inside).Remote()) == 2; }));
  refs.push_back(meeting.Task(&Meeting::Meet).Remote(3));
  const std::vector<int> order = sheaf::Get(refs, 10s);
  CHECK(std::set<int>(order.begin(), order.end()) == std::set<int>{1, 2, 3});
}

TEST_CASE("coroutines of an actor wait for each other") {
  const auto mailbox = sheaf::Actor<Mailbox>().Remote();
  std::vector<sheaf::ObjectRef<std::string>> readers;
  for (int i = 0; i < 20; ++i) readers.push_back(mailbox.Task(&Mailbox::Wait).Remote());
  mailbox.Task(&Mailbox::Write).Remote("letter");
  for (const std::string& text : sheaf::Get(readers, 10s)) CHECK(text == "letter");
  CHECK(sheaf::Get(mailbox.Task(&Mailbox::Twice).Remote(sheaf::Task(Nine).Remote())) == 18);
}

TEST_CASE("a coroutine that waits is cancelled at once") {
  const auto mailbox = sheaf::Actor<Mailbox>().Remote();
  const auto waits = mailbox.Task(&Mailbox::Wait).Remote();
  mailbox.Task(&Mailbox::Twice).Remote(sheaf::Put(1));
  CHECK(sheaf::Wait(std::vector{waits}, 1, 50ms).ready.empty());
  sheaf::Cancel(waits);
  CHECK_THROWS_AS(sheaf::Get(waits, 10s), sheaf::TaskCancelledError);
}

}  // namespace live
