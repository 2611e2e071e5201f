// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The public C++ interface against a real node. This program is driver and worker, as users'
// programs are.
#include <unistd.h>

#include <sheaf/sheaf.h>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <numeric>
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
