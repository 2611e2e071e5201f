// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The public C++ interface against a real node. This program is driver and worker, as users'
// programs are.
#include <unistd.h>

#include <sheaf/sheaf.h>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "base/testing/wait_until_for_test.h"
#include "tests/catch/run.h"

namespace live {

using namespace std::chrono_literals;

// --- what is called ------------------------------------------------------------------------------

struct Point {
  double x = 0;
  double y = 0;
};
struct Bundle {
  std::string name;
  std::vector<sheaf::ObjectRef<int>> numbers;
};

int Square(int x) { return x * x; }
int Process() { return static_cast<int>(getpid()); }
void Nothing() {}
Point Mirror(const Point& point) { return {point.y, point.x}; }
std::string Join(const std::string& a, std::string_view b) { return a + std::string(b); }
double Sum(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.);
}
double SumArray(const sheaf::Array<double>& numbers) { return Sum(numbers); }
std::vector<double> Iota(size_t count) {
  std::vector<double> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.);
  return numbers;
}
int SumOf(const Bundle& bundle) {
  int sum = 0;
  for (const int number : sheaf::Get(bundle.numbers)) sum += number;
  return sum;
}
int SumInside(const std::vector<sheaf::ObjectRef<Bundle>>& bundles) {
  int sum = 0;
  for (const Bundle& bundle : sheaf::Get(bundles)) sum += SumOf(bundle);
  return sum;
}
std::vector<sheaf::ObjectRef<int>> Spread(int count) {
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < count; ++i) refs.push_back(sheaf::Put(i));
  return refs;
}
int Fibonacci(int n) {
  if (n < 2) return n;
  auto a = sheaf::Task(Fibonacci).Remote(n - 1);
  auto b = sheaf::Task(Fibonacci).Remote(n - 2);
  return sheaf::Get(a) + sheaf::Get(b);
}
int Throw(const std::string& what) { throw std::out_of_range(what); }
int CallsThrow() { return sheaf::Get(sheaf::Task(Throw).Remote(std::string("inner"))); }
int Crash() { std::abort(); }
std::tuple<int, std::string> Both(int x) { return {x, std::to_string(x)}; }
sheaf::Generator<int> Count(int n) {
  for (int i = 0; i < n; ++i) co_yield i;
}
sheaf::Generator<int> CountThenThrow(int n) {
  for (int i = 0; i < n; ++i) co_yield i;
  throw std::runtime_error("counted enough");
}
sheaf::Async<int> AddLater(sheaf::ObjectRef<int> a, sheaf::ObjectRef<int> b) {
  co_await sheaf::Sleep(1ms);
  co_return co_await a + co_await b;
}
int UntilCancelled(const std::string& started) {
  std::ofstream(started).put('x');
  while (!sheaf::IsCancelled()) std::this_thread::sleep_for(1ms);
  throw sheaf::TaskCancelledError("seen");
}
int Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
}
// Fails until it has been tried `times` times.
int FailAtFirst(const std::string& file, int times) {
  std::ofstream(file, std::ios::app).put('x');
  std::ifstream in(file, std::ios::ate);
  if (in.tellg() < times) throw std::underflow_error("not yet");
  return static_cast<int>(in.tellg());
}
std::string Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}
sheaf::RuntimeContext Unused();
std::vector<std::string> Where() {
  const sheaf::RuntimeContext context = sheaf::Context();
  return {context.task_name, context.task_id, std::to_string(context.resources.at("CPU")),
          std::to_string(context.node)};
}
// The groups that it and those below it run in.
std::vector<std::string> Groups(int below) {
  std::vector<std::string> groups = {sheaf::Context().placement_group};
  if (below == 0) return groups;
  for (std::string& group : sheaf::Get(sheaf::Task(Groups).Remote(below - 1)))
    groups.push_back(std::move(group));
  return groups;
}
SHEAF_REMOTE(Square, Process, Nothing, Mirror, Join, Sum, SumArray, Iota, SumOf, SumInside, Spread,
             Fibonacci, Throw, CallsThrow, Crash);
SHEAF_REMOTE(Both, Count, CountThenThrow, AddLater, UntilCancelled, Sleep, FailAtFirst, Variable,
             Where, Groups);

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

std::string Scratch(const std::string& name) {
  static const std::string folder = [] {
    char text[] = "/tmp/sheaf_cpp_api_XXXXXX";
    return std::string(mkdtemp(text));
  }();
  return folder + "/" + name;
}

// --- tasks ---------------------------------------------------------------------------------------

TEST_CASE("a task runs in another process and gives its result") {
  CHECK(sheaf::Get(sheaf::Task(Square).Remote(7)) == 49);
  CHECK(sheaf::Get(sheaf::Task(Process).Remote()) != getpid());
  sheaf::Get(sheaf::Task(Nothing).Remote());
}

TEST_CASE("arguments are values, references, and structs without a macro") {
  const Point mirrored = sheaf::Get(sheaf::Task(Mirror).Remote(Point{1, 2}));
  CHECK(mirrored.x == 2);
  CHECK(sheaf::Get(sheaf::Task(Mirror).Remote(sheaf::Task(Mirror).Remote(Point{1, 2}))).x == 1);
  auto ref = sheaf::Task(Square).Remote(2);
  for (int i = 0; i < 3; ++i) ref = sheaf::Task(Square).Remote(ref);
  CHECK(sheaf::Get(ref) == 65536);
  CHECK(sheaf::Get(sheaf::Task(Join).Remote("a", sheaf::Put("b"))) == "ab");
}

TEST_CASE("references inside arguments and results stay references") {
  const Bundle bundle{"three", {sheaf::Put(1), sheaf::Task(Square).Remote(3), sheaf::Put(5)}};
  CHECK(sheaf::Get(sheaf::Task(SumOf).Remote(bundle)) == 15);
  const std::vector<sheaf::ObjectRef<int>> refs = sheaf::Get(sheaf::Task(Spread).Remote(5));
  CHECK(sheaf::Get(refs) == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("references inside objects inside arguments are found, when nobody else holds them") {
  const auto inside = sheaf::Put(Bundle{"two", {sheaf::Put(1), sheaf::Task(Square).Remote(3)}});
  CHECK(sheaf::Get(sheaf::Task(SumInside).Remote(std::vector{inside})) == 10);
}

TEST_CASE("arrays of numbers travel by shared memory and are read in place") {
  for (const size_t count : {size_t{3}, size_t{1'000}, size_t{1'000'000}}) {
    const std::vector<double> numbers = Iota(count);
    const double sum = Sum(numbers);
    CHECK(sheaf::Get(sheaf::Task(Sum).Remote(numbers)) == sum);
    const sheaf::ObjectRef<std::vector<double>> ref = sheaf::Put(numbers);
    CHECK(sheaf::Get(sheaf::Task(Sum).Remote(ref)) == sum);
    CHECK(sheaf::Get(sheaf::Task(SumArray).Remote(ref)) == sum);
    const sheaf::Array<double> view = sheaf::Get(sheaf::ObjectRef<sheaf::Array<double>>(ref));
    CHECK(view.ToVector() == numbers);
    CHECK(sheaf::Get(sheaf::Task(Iota).Remote(count)) == numbers);
  }
}

TEST_CASE("an array is built in place and read without a copy, after its reference is gone, too") {
  sheaf::Array<float> view;
  {
    auto builder = sheaf::CreateArray<float>(500'000);
    std::iota(builder.begin(), builder.end(), 0.f);
    view = sheaf::Get(builder.Seal());
  }
  // Others use what is free.
  for (int i = 0; i < 20; ++i) sheaf::Put(std::vector<float>(500'000, -1.f));
  CHECK(view.size() == 500'000);
  CHECK(view[123'456] == 123'456.f);
}

TEST_CASE("small values are put and got") {
  CHECK(sheaf::Get(sheaf::Put(5)) == 5);
  CHECK(sheaf::Get(sheaf::Put("text")) == "text");
  CHECK(sheaf::Get(std::tuple(sheaf::Put(1), sheaf::Put(std::string("two")))) ==
        std::tuple(1, std::string("two")));
}

TEST_CASE("tasks call tasks and wait for them without using up the CPUs") {
  CHECK(sheaf::Get(sheaf::Task(Fibonacci).Remote(7)) == 13);
}

TEST_CASE("a tuple's elements can be references of their own") {
  auto [number, text] = sheaf::Task(Both).RemoteTuple(42);
  CHECK(sheaf::Get(sheaf::Task(Square).Remote(number)) == 42 * 42);
  CHECK(sheaf::Get(text) == "42");
  CHECK(sheaf::Get(sheaf::Task(Both).Remote(7)) == std::tuple(7, std::string("7")));
}

TEST_CASE("options: resources, names and variables reach the task") {
  const std::vector<std::string> where =
      sheaf::Get(sheaf::Task(Where).Cpus(0.5).Name("elsewhere").Remote());
  CHECK(where[0] == "elsewhere");
  CHECK(where[1].size() == 32);
  CHECK(std::stod(where[2]) == 0.5);
  CHECK(sheaf::Get(sheaf::Task(Variable).Environment({{"FRUIT", "apple"}}).Remote("FRUIT")) ==
        "apple");
  CHECK(sheaf::Get(sheaf::Task(Variable).Remote("FRUIT")).empty());
}

TEST_CASE("a thousand tasks in flight all end") {
  std::vector<sheaf::ObjectRef<int>> refs;
  for (int i = 0; i < 1'000; ++i) refs.push_back(sheaf::Task(Square).Remote(i));
  const std::vector<int> squares = sheaf::Get(refs);
  for (int i = 0; i < 1'000; ++i) REQUIRE(squares[static_cast<size_t>(i)] == i * i);
}

TEST_CASE("wait gives what is ready, in order, and leaves the rest") {
  std::vector<sheaf::ObjectRef<int>> refs = {sheaf::Task(Sleep).Remote(10'000), sheaf::Put(1),
                                             sheaf::Put(2)};
  auto [ready, rest] = sheaf::Wait(refs, 2, 5s);
  REQUIRE(ready.size() == 2);
  CHECK(sheaf::Get(ready[1]) == 2);
  REQUIRE(rest.size() == 1);
  CHECK(rest[0] == refs[0]);
  CHECK_FALSE(sheaf::IsReady(rest[0]));
  CHECK(sheaf::Wait(rest, 1, 1ms).ready.empty());
  CHECK_THROWS_AS(sheaf::Get(rest[0], 1ms), sheaf::TimeoutError);
  CHECK(sheaf::TryGet(rest[0], 1ms).kind() == sheaf::ErrorKind::kTimeout);
  sheaf::Cancel(rest[0], /*force=*/true);
}

// --- errors --------------------------------------------------------------------------------------

TEST_CASE("an exception crosses with its type, its text and the function's name") {
  try {
    sheaf::Get(sheaf::Task(Throw).Remote(std::string("index 7")));
    FAIL("it should have thrown");
  } catch (const sheaf::TaskError& error) {
    CHECK(error.cause_type() == "std::out_of_range");
    CHECK(error.cause_message() == "index 7");
    CHECK(error.function() == "live::Throw");
    CHECK_THAT(error.what(), Catch::Contains("live::Throw") &&
                                 Catch::Contains("std::out_of_range") &&
                                 Catch::Contains("index 7"));
  }
  const sheaf::Result<int> result = sheaf::TryGet(sheaf::Task(CallsThrow).Remote());
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().cause_type == "std::out_of_range");
  CHECK_THAT(result.error().message,
             Catch::Contains("live::CallsThrow") && Catch::Contains("live::Throw"));
}

TEST_CASE("an argument that failed fails the task that wants it") {
  CHECK_THROWS_AS(sheaf::Get(sheaf::Task(Square).Remote(sheaf::Task(Throw).Remote("x"))),
                  sheaf::TaskError);
}

TEST_CASE("a crash is a typed error after its retries") {
  CHECK_THROWS_AS(sheaf::Get(sheaf::Task(Crash).Retries(1).Remote(), 30s),
                  sheaf::WorkerCrashedError);
}

TEST_CASE("exceptions are retried when they are of the types named") {
  CHECK(sheaf::Get(sheaf::Task(FailAtFirst)
                       .RetryOn<std::range_error, std::underflow_error>()
                       .Remote(Scratch("a"), 3)) == 3);
  CHECK_THROWS_AS(
      sheaf::Get(sheaf::Task(FailAtFirst).RetryOn<std::range_error>().Remote(Scratch("b"), 3)),
      sheaf::TaskError);
  CHECK_THROWS_AS(sheaf::Get(sheaf::Task(FailAtFirst).Remote(Scratch("c"), 3)), sheaf::TaskError);
}

TEST_CASE("a running task sees that it is cancelled, a waiting one does not start") {
  const std::string started = Scratch("started");
  const auto running = sheaf::Task(UntilCancelled).Remote(started);
  REQUIRE(sheaf::WaitUntil(30s, [&] { return access(started.c_str(), F_OK) == 0; }));
  sheaf::Cancel(running);
  CHECK_THROWS_AS(sheaf::Get(running, 10s), sheaf::TaskCancelledError);
  const auto slow = sheaf::Task(Sleep).Remote(300);
  const auto waiting = sheaf::Task(Square).Remote(slow);
  sheaf::Cancel(waiting);
  CHECK_THROWS_AS(sheaf::Get(waiting, 10s), sheaf::TaskCancelledError);
}

TEST_CASE("misuse says what is wrong") {
  CHECK_THROWS_AS(sheaf::Get(sheaf::ObjectRef<int>()), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(sheaf::Task(Square).Remote(sheaf::ObjectRef<int>()), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(sheaf::Task(Square).Cpus(-1).Remote(1), sheaf::InvalidArgumentError);
  CHECK_THROWS_AS(sheaf::GetActor<Counter>("nobody"), sheaf::NotFoundError);
  CHECK_THROWS_AS(sheaf::Init(), sheaf::SystemError);
}

// --- generators and coroutines -------------------------------------------------------------------

TEST_CASE("a generator's values come one by one") {
  int next = 0;
  for (const sheaf::ObjectRef<int>& item : sheaf::Task(Count).MaxUnconsumed(4).Remote(50)) {
    CHECK(sheaf::Get(item) == next++);
  }
  CHECK(next == 50);
}

TEST_CASE("what a generator throws is its last item") {
  auto stream = sheaf::Task(CountThenThrow).Remote(2);
  CHECK(sheaf::Get(*stream.Next()) == 0);
  CHECK(sheaf::Get(*stream.Next()) == 1);
  const auto last = stream.Next();
  REQUIRE(last.has_value());
  CHECK_THROWS_AS(sheaf::Get(*last), sheaf::TaskError);
  CHECK_FALSE(stream.Next().has_value());
}

TEST_CASE("coroutines are tasks, and await references here too") {
  CHECK(sheaf::Get(sheaf::Task(AddLater).Remote(sheaf::Put(1), sheaf::Task(Square).Remote(3))) ==
        10);
  const auto here = []() -> sheaf::Async<int> {
    const std::vector<sheaf::ObjectRef<int>> refs = {sheaf::Task(Square).Remote(2), sheaf::Put(5)};
    const std::vector<int> values = co_await sheaf::All(refs);
    co_return values[0] + values[1] + co_await AddLater(sheaf::Put(1), sheaf::Put(2));
  };
  CHECK(sheaf::BlockOn(here()) == 12);
}

// --- actors --------------------------------------------------------------------------------------

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
  CHECK(sheaf::Get(mailbox.Task(&Mailbox::Twice).Remote(sheaf::Task(Square).Remote(3))) == 18);
}

TEST_CASE("a coroutine that waits is cancelled at once") {
  const auto mailbox = sheaf::Actor<Mailbox>().Remote();
  const auto waits = mailbox.Task(&Mailbox::Wait).Remote();
  mailbox.Task(&Mailbox::Twice).Remote(sheaf::Put(1));
  CHECK(sheaf::Wait(std::vector{waits}, 1, 50ms).ready.empty());
  sheaf::Cancel(waits);
  CHECK_THROWS_AS(sheaf::Get(waits, 10s), sheaf::TaskCancelledError);
}

// --- the node ------------------------------------------------------------------------------------

TEST_CASE("the cluster tells what it has") {
  const std::vector<sheaf::NodeInfo> nodes = sheaf::Nodes();
  REQUIRE(nodes.size() == 1);
  CHECK(nodes[0].state == "ALIVE");
  CHECK(sheaf::ClusterResources()["CPU"] == 4);
  CHECK(sheaf::ClusterResources()["slot"] == 2);
  CHECK(sheaf::AvailableResources()["slot"] == 2);
  CHECK_THAT(sheaf::MetricsUrl(), Catch::StartsWith("http://127.0.0.1:"));
  CHECK_FALSE(sheaf::Context().is_worker);
}

TEST_CASE("a task in a placement group takes its children there where it is to") {
  sheaf::PlacementGroup group = sheaf::CreateGroup({{{"CPU", 1}}, {{"CPU", 1}}});
  REQUIRE(group.Wait(10s));
  const auto run = [&](bool children) {
    return sheaf::Get(
        sheaf::Task(Groups).Place(sheaf::Strategy::Group(group, 0, children)).Remote(2), 30s);
  };
  using Ids = std::vector<std::string>;
  // In turns, so that processes that ran the one run the other.
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(run(true) == Ids(3, group.id()));
    CHECK(run(false) == Ids{group.id(), "", ""});
    CHECK(sheaf::Get(sheaf::Task(Groups).Remote(1), 30s) == Ids(2));
  }
  group.Remove();
}

TEST_CASE("a placement group keeps room for its tasks") {
  sheaf::PlacementGroup group = sheaf::CreateGroup({{{"CPU", 1}, {"slot", 1}}, {{"CPU", 1}}});
  REQUIRE(group.Wait(10s));
  CHECK(group.Nodes().size() == 2);
  CHECK(sheaf::Get(sheaf::Task(Square).Place(sheaf::Strategy::Group(group, 0)).Remote(3), 10s) ==
        9);
  CHECK(sheaf::AvailableResources()["slot"] == 1);
  group.Remove();
  CHECK_THROWS_AS(group.Wait(10s), sheaf::GroupRemovedError);
  const sheaf::PlacementGroup large = sheaf::CreateGroup({{{"CPU", 100}}});
  CHECK_FALSE(large.Wait(10ms));
  CHECK_THROWS_AS(sheaf::CreateGroup({}), sheaf::InvalidArgumentError);
}

TEST_CASE("the program leaves its node and starts another; old references are only names then") {
  const auto old = sheaf::Put(5);
  sheaf::Shutdown();
  CHECK_FALSE(sheaf::IsInitialized());
  CHECK_THROWS_AS(sheaf::Get(old), sheaf::SystemError);
  sheaf::Init({.cpus = 1});
  CHECK(sheaf::Get(sheaf::Task(Square).Remote(4)) == 16);
}

}  // namespace live

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 4;
  options.resources = {{"slot", 2}};
  sheaf::Init(argc, argv, options);
  return sheaf::RunTests(argc, argv);
}
