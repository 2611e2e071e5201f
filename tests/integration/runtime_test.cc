// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The whole runtime on one real node, through the public API: this program is the driver and all of
// its workers.
#include <sheaf/sheaf.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "tests/catch/run.h"

using namespace std::chrono_literals;

namespace {

int Square(int x) { return x * x; }
int Add(int a, int b) { return a + b; }
std::string Shout(const std::string& text) { return text + "!"; }
int Divide(int a, int b) {
  if (b == 0) throw std::domain_error("division by zero");
  return a / b;
}
double Sum(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}
std::vector<double> Ramp(size_t count) {
  std::vector<double> out(count);
  std::iota(out.begin(), out.end(), 0.0);
  return out;
}
int SumOfReferences(std::vector<sheaf::ObjectRef<int>> refs) {
  int sum = 0;
  for (int value : sheaf::Get(refs)) sum += value;
  return sum;
}
std::vector<sheaf::ObjectRef<int>> MakeReferences(int n) {
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < n; ++i) refs.push_back(sheaf::Put(i));
  return refs;
}
int DieOnce(std::string path) {
  if (!std::filesystem::exists(path)) {
    std::ofstream(path) << "x";
    _exit(1);
  }
  return 2;
}
int Flaky(std::string path) {
  std::ofstream(path, std::ios::app) << "x";
  if (std::filesystem::file_size(path) < 4) throw std::runtime_error("not yet");
  return static_cast<int>(std::filesystem::file_size(path));
}
int SleepFor(int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end) {
    if (sheaf::IsCancelled()) throw std::runtime_error("stopped");
    std::this_thread::sleep_for(5ms);
  }
  return milliseconds;
}
std::tuple<int, std::string> Two() { return {1, "two"}; }
sheaf::Generator<int> CountTo(int n) {
  for (int i = 0; i < n; ++i) co_yield i;
}
sheaf::Generator<int> HalfWay() {
  co_yield 1;
  throw std::runtime_error("half way");
}
int Fibonacci(int n);

}  // namespace
SHEAF_REMOTE(Square, Add, Shout, Divide, Sum, Ramp, SumOfReferences, MakeReferences, DieOnce, Flaky,
             SleepFor, Two, CountTo, HalfWay);
SHEAF_REMOTE(Fibonacci);
namespace {
int Fibonacci(int n) {
  if (n < 2) return n;
  auto a = sheaf::Task(Fibonacci).Remote(n - 1);
  auto b = sheaf::Task(Fibonacci).Remote(n - 2);
  return sheaf::Get(a) + sheaf::Get(b);
}

class Counter {
 public:
  explicit Counter(int start) : value_(start) {
    if (start < 0) throw std::invalid_argument("a counter starts at 0 or above");
  }
  int Add(int n) { return value_ += n; }
  int Value() const { return value_; }
  int Pid() const { return getpid(); }
  int Die() { _exit(3); }

 private:
  int value_;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Add, &Counter::Value, &Counter::Pid,
            &Counter::Die);

int AddThrough(sheaf::ActorHandle<Counter> counter, int times) {
  int last = 0;
  for (int i = 0; i < times; ++i) last = sheaf::Get(counter.Task(&Counter::Add).Remote(1));
  return last;
}
SHEAF_REMOTE(AddThrough);

class Meeting {
 public:
  Meeting() = default;
  bool Meet(int people) {
    ++here_;
    for (int i = 0; i < 2000 && here_ < people; ++i) std::this_thread::sleep_for(1ms);
    return here_ >= people;
  }

 private:
  std::atomic<int> here_{0};
};
SHEAF_ACTOR(Meeting, sheaf::Constructor<>, &Meeting::Meet);

std::string Scratch(const std::string& name) {
  static const std::string directory = [] {
    char path[] = "/tmp/sheaf-test-XXXXXX";
    return std::string(mkdtemp(path));
  }();
  return directory + "/" + name;
}

}  // namespace

TEST_CASE("a task computes its result in another process") {
  CHECK(sheaf::Get(sheaf::Task(Square).Remote(7)) == 49);
  CHECK(sheaf::Get(sheaf::Task(Shout).Remote(std::string("hello"))) == "hello!");
}

TEST_CASE("a thousand tasks, each with its own value") {
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < 1000; ++i) refs.push_back(sheaf::Task(Square).Remote(i));
  const std::vector<int> values = sheaf::Get(refs);
  for (int i = 0; i < 1000; ++i) REQUIRE(values[i] == i * i);
}

TEST_CASE("references are arguments: a chain of 200 tasks, each waiting for the one before") {
  sheaf::ObjectRef<int> x = sheaf::Put(0);
  for (int i = 0; i < 200; ++i) x = sheaf::Task(Add).Remote(x, 1);
  CHECK(sheaf::Get(x) == 200);
}

TEST_CASE("tasks start tasks and wait for them without deadlock") {
  CHECK(sheaf::Get(sheaf::Task(Fibonacci).Remote(8)) == 21);
}

TEST_CASE("large arrays travel by the store, both ways") {
  auto ramp = sheaf::Task(Ramp).Remote(size_t{1'000'000});
  CHECK(sheaf::Get(sheaf::Task(Sum).Remote(ramp)) == 499999500000.0);
  sheaf::Array<double> numbers = sheaf::Get(sheaf::ObjectRef<sheaf::Array<double>>(ramp));
  CHECK(numbers.size() == 1'000'000);
  CHECK(numbers[999'999] == 999'999.0);
  ramp = {};
  CHECK(numbers[5] == 5.0);  // A view keeps its object alive.
  auto builder = sheaf::CreateArray<double>(100'000);
  for (size_t i = 0; i < builder.size(); ++i) builder[i] = 1;
  CHECK(sheaf::Get(sheaf::Task(Sum).Remote(builder.Seal())) == 100'000.0);
}

TEST_CASE("references inside values arrive as references, and live as long as someone holds them") {
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < 20; ++i) refs.push_back(sheaf::Put(i));
  CHECK(sheaf::Get(sheaf::Task(SumOfReferences).Remote(refs)) == 190);
  const std::vector<sheaf::ObjectRef<int>> made =
      sheaf::Get(sheaf::Task(MakeReferences).Remote(20));
  std::this_thread::sleep_for(50ms);  // The maker has dropped its own by now.
  const std::vector<int> values = sheaf::Get(made);
  CHECK(std::accumulate(values.begin(), values.end(), 0) == 190);
}

TEST_CASE(
    "a user's exception arrives with its function, type and text, also through a dependency") {
  const auto bad = sheaf::Task(Divide).Remote(1, 0);
  const auto after = sheaf::Task(Divide).Remote(bad, 2);
  for (const auto& ref : {bad, after}) {
    try {
      sheaf::Get(ref);
      FAIL("no error");
    } catch (const sheaf::TaskError& error) {
      CHECK(error.cause_message() == "division by zero");
      CHECK(std::string(error.what()).find("Divide") != std::string::npos);
    }
  }
  CHECK(sheaf::TryGet(bad).kind() == sheaf::ErrorKind::kTaskFailed);
}

TEST_CASE(
    "a worker that dies is replaced and its task tried again; without retries the caller hears of "
    "it") {
  CHECK(sheaf::Get(sheaf::Task(DieOnce).Remote(Scratch("a")), 30s) == 2);
  CHECK_THROWS_AS(sheaf::Get(sheaf::Task(DieOnce).Retries(0).Remote(Scratch("b")), 30s),
                  sheaf::WorkerCrashedError);
}

TEST_CASE("chosen exceptions are retried") {
  CHECK(sheaf::Get(sheaf::Task(Flaky).Retries(5).RetryOn<std::runtime_error>().Remote(Scratch("c")),
                   30s) == 4);
}

TEST_CASE("a wait has a bound, and a running task can be cancelled") {
  const auto slow = sheaf::Task(SleepFor).Remote(60'000);
  CHECK_THROWS_AS(sheaf::Get(slow, 200ms), sheaf::TimeoutError);
  sheaf::Cancel(slow);
  CHECK_THROWS_AS(sheaf::Get(slow, 10s), sheaf::TaskCancelledError);
}

TEST_CASE("a queued task can be cancelled, and a running one by force") {
  const auto first = sheaf::Task(SleepFor).Cpus(64).Remote(1);  // Never fits.
  sheaf::Cancel(first);
  CHECK_THROWS_AS(sheaf::Get(first, 5s), sheaf::TaskCancelledError);
  const auto running = sheaf::Task(SleepFor).Remote(60'000);
  CHECK_THROWS_AS(sheaf::Get(running, 100ms), sheaf::TimeoutError);
  sheaf::Cancel(running, true);
  CHECK_THROWS_AS(sheaf::Get(running, 10s), sheaf::TaskCancelledError);
}

TEST_CASE("wait returns what is ready first") {
  const auto slow = sheaf::Task(SleepFor).Remote(3000);
  const auto quick = sheaf::Task(Square).Remote(2);
  const auto result = sheaf::Wait(std::vector{slow, quick}, 1, 10s);
  REQUIRE(result.ready.size() == 1);
  CHECK(result.ready[0] == quick);
  sheaf::Cancel(slow);
}

TEST_CASE("several results of one task") {
  auto [one, two] = sheaf::Task(Two).RemoteTuple();
  CHECK(sheaf::Get(one) == 1);
  CHECK(sheaf::Get(two) == "two");
}

TEST_CASE("a generator streams its items, and its failure is the last of them") {
  int expected = 0;
  for (sheaf::ObjectRef<int> item : sheaf::Task(CountTo).Remote(2000))
    REQUIRE(sheaf::Get(item) == expected++);
  CHECK(expected == 2000);
  auto stream = sheaf::Task(HalfWay).Remote();
  auto item = stream.begin();
  CHECK(sheaf::Get(*item) == 1);
  ++item;
  CHECK_THROWS_AS(sheaf::Get(*item), sheaf::TaskError);
}

TEST_CASE("an actor keeps its state, and runs the calls of one caller in order") {
  auto counter = sheaf::Actor<Counter>().Remote(10);
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < 1000; ++i) refs.push_back(counter.Task(&Counter::Add).Remote(1));
  const std::vector<int> values = sheaf::Get(refs);
  for (int i = 0; i < 1000; ++i) REQUIRE(values[i] == 11 + i);
}

TEST_CASE("actor handles are arguments") {
  auto counter = sheaf::Actor<Counter>().Remote(0);
  const auto a = sheaf::Task(AddThrough).Remote(counter, 50);
  const auto b = sheaf::Task(AddThrough).Remote(counter, 50);
  sheaf::Get(a);
  sheaf::Get(b);
  CHECK(sheaf::Get(counter.Task(&Counter::Value).Remote()) == 100);
}

TEST_CASE("a constructor that throws is the error of every call") {
  auto broken = sheaf::Actor<Counter>().Remote(-1);
  CHECK_THROWS_AS(sheaf::Get(broken.Task(&Counter::Value).Remote(), 20s), sheaf::ActorDiedError);
}

TEST_CASE("a killed actor restarts while it may, then its calls fail") {
  auto fragile = sheaf::Actor<Counter>().MaxRestarts(1).MaxTaskRetries(1).Remote(5);
  CHECK(sheaf::Get(fragile.Task(&Counter::Add).Remote(1)) == 6);
  kill(sheaf::Get(fragile.Task(&Counter::Pid).Remote()), SIGKILL);
  CHECK(sheaf::Get(fragile.Task(&Counter::Add).Remote(1), 20s) == 6);  // New state.
  kill(sheaf::Get(fragile.Task(&Counter::Pid).Remote()), SIGKILL);
  CHECK_THROWS_AS(sheaf::Get(fragile.Task(&Counter::Add).Remote(1), 20s), sheaf::ActorDiedError);
}

TEST_CASE("a caller may have so many calls pending as the actor allows") {
  auto meeting = sheaf::Actor<Meeting>().MaxPendingCalls(2).Remote();
  // Waits 2 s for somebody who never comes.
  const auto first = meeting.Task(&Meeting::Meet).Remote(2);
  const auto second = meeting.Task(&Meeting::Meet).Remote(2);
  CHECK_THROWS_AS(meeting.Task(&Meeting::Meet).Remote(2), sheaf::PendingCallsLimitError);
  sheaf::Kill(meeting);
}

TEST_CASE("an actor of several threads runs calls together") {
  auto meeting = sheaf::Actor<Meeting>().MaxConcurrency(4).Remote();
  std::vector<sheaf::ObjectRef<bool>> refs;
  for (int i = 0; i < 4; ++i) refs.push_back(meeting.Task(&Meeting::Meet).Remote(4));
  for (bool met : sheaf::Get(refs, 20s)) CHECK(met);
}

TEST_CASE("named and detached actors are found by name until they are killed") {
  auto named = sheaf::Actor<Counter>().Name("here").Remote(1);
  CHECK(sheaf::Get(sheaf::GetActor<Counter>("here").Task(&Counter::Add).Remote(1), 20s) == 2);
  CHECK_THROWS_AS(sheaf::Actor<Counter>().Name("here").Remote(1), sheaf::ActorNameTakenError);
  auto detached = sheaf::Actor<Counter>().Name("stays").Detached().Remote(5);
  CHECK(sheaf::Get(detached.Task(&Counter::Add).Remote(1), 20s) == 6);
  CHECK(sheaf::Get(sheaf::GetActor<Counter>("stays").Task(&Counter::Add).Remote(1), 20s) == 7);
  // Its handle travels like any other, though nobody counts it.
  CHECK(sheaf::Get(sheaf::Task(AddThrough).Remote(detached, 2), 20s) == 9);
  CHECK(sheaf::Get(detached.Task(&Counter::Add).Remote(1), 20s) == 10);
  sheaf::Kill(detached);
  CHECK_THROWS_AS(sheaf::GetActor<Counter>("nobody"), sheaf::NotFoundError);
}

TEST_CASE("placement groups reserve resources, and give them back") {
  auto group = sheaf::CreateGroup({{{"CPU", 1}}, {{"CPU", 1}}});
  REQUIRE(group.Wait(10s));
  CHECK(sheaf::Get(sheaf::Task(Square).Place(sheaf::Strategy::Group(group, 1)).Remote(3), 20s) ==
        9);
  group.Remove();
  CHECK(sheaf::Get(sheaf::Task(Square).Remote(4), 20s) == 16);
}

TEST_CASE("a request that can never fit waits, and breaks nothing else") {
  const auto never = sheaf::Task(Square).Cpus(1000).Remote(1);
  CHECK_THROWS_AS(sheaf::Get(never, 300ms), sheaf::TimeoutError);
  CHECK(sheaf::Get(sheaf::Task(Square).Remote(5), 20s) == 25);
  sheaf::Cancel(never);
}

TEST_CASE("four threads of a driver call at once") {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        std::vector<sheaf::ObjectRef<int>> refs;
        for (int i = 0; i < 50; ++i) refs.push_back(sheaf::Task(Add).Remote(t, i));
        const std::vector<int> values = sheaf::Get(refs);
        for (int i = 0; i < 50; ++i) wrong += values[i] != t + i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

// The last one: nothing of Sheaf works after it.
TEST_CASE("leaving ends what other threads wait for") {
  std::vector<std::thread> threads;
  std::atomic<int> begun{0}, ended{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto never = sheaf::Task(Square).Cpus(1000).Remote(1);
      ++begun;
      try {
        sheaf::Get(never);
      } catch (const sheaf::Error&) {
        ++ended;
      }
    });
  }
  REQUIRE(sheaf::WaitUntil(30s, [&] { return begun == 8; }));
  CHECK_THROWS_AS(sheaf::Get(sheaf::Task(Square).Cpus(1000).Remote(1), 100ms), sheaf::TimeoutError);
  sheaf::Shutdown();
  for (std::thread& thread : threads) thread.join();
  CHECK(ended == 8);
}

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 4;
  options.store_bytes = 256 << 20;
  sheaf::Init(argc, argv, options);
  const int result = sheaf::RunTests(argc, argv);
  sheaf::Shutdown();
  return result;
}
