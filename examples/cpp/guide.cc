// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The program of docs/guide/cpp.md.
#include <sheaf/collective.h>
#include <sheaf/sheaf.h>
#include <algorithm>
#include <iostream>
#include <numeric>
#include <thread>

using namespace std::chrono_literals;

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

void Tasks() {
  sheaf::ObjectRef<int> nine = sheaf::Task(Square).Remote(3);
  std::cout << sheaf::Get(sheaf::Task(Square).Remote(nine)) << "\n";  // 81
}

struct Reading {
  std::string sensor;
  std::vector<double> values;
};

double Mean(const Reading& reading) {
  return std::accumulate(reading.values.begin(), reading.values.end(), 0.0) / reading.values.size();
}
std::tuple<double, double> Bounds(const Reading& reading) {
  const auto [low, high] = std::minmax_element(reading.values.begin(), reading.values.end());
  return {*low, *high};
}
SHEAF_REMOTE(Mean, Bounds);

void Values() {
  const sheaf::ObjectRef<Reading> reading = sheaf::Put(Reading{"door", {1, 2, 6}});
  auto [low, high] = sheaf::Task(Bounds).RemoteTuple(reading);         // A reference to each.
  std::cout << sheaf::Get(sheaf::Task(Mean).Remote(reading)) << "\n";  // 3
  std::cout << sheaf::Get(low) << " " << sheaf::Get(high) << "\n";     // 1 6
}

double Sum(const sheaf::Array<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}
SHEAF_REMOTE(Sum);

void Arrays() {
  sheaf::ArrayBuilder<double> ones = sheaf::CreateArray<double>(1'000'000);
  std::fill(ones.begin(), ones.end(), 1.0);
  const sheaf::ObjectRef<sheaf::Array<double>> array = ones.Seal();       // No copy, here or there.
  std::cout << sheaf::Get(sheaf::Task(Sum).Remote(array)) / 1e6 << "\n";  // 1
}

int After(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
}
SHEAF_REMOTE(After);

void Options() {
  auto quick = sheaf::Task(After).Cpus(0.5).Retries(1).Name("quick").Remote(1);
  auto slow = sheaf::Task(After).Cpus(0.5).Remote(20'000);
  auto [ready, others] = sheaf::Wait(std::vector{slow, quick}, 1, 10s);
  std::cout << sheaf::Get(ready[0]) << " " << others.size() << "\n";  // 1 1
  sheaf::Cancel(slow, /*force=*/true);
}

sheaf::Generator<int> Squares(int n) {
  for (int i = 0; i < n; ++i) co_yield i* i;
}
SHEAF_REMOTE(Squares);

void Streams() {
  int sum = 0;
  for (const sheaf::ObjectRef<int>& square : sheaf::Task(Squares).Remote(4)) {
    sum += sheaf::Get(square);
  }
  std::cout << sum << "\n";  // 14
}

class Counter {
 public:
  explicit Counter(int start) : total_(start) {}
  int Add(int n) { return total_ += n; }

 private:
  int total_;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Add);

void Actors() {
  sheaf::ActorHandle<Counter> counter =
      sheaf::Actor<Counter>().Name("visits").MaxRestarts(1).Remote(10);
  counter.Task(&Counter::Add).Remote(1);  // Calls of one caller run in order.
  sheaf::Get(counter.Created());
  const auto same = sheaf::GetActor<Counter>("visits");
  std::cout << sheaf::Get(same.Task(&Counter::Add).Remote(2)) << "\n";  // 13
}

sheaf::Async<int> AddUp(sheaf::ObjectRef<int> a, sheaf::ObjectRef<int> b) {
  co_await sheaf::Sleep(1ms);
  co_return co_await a + co_await b;
}

void Coroutines() {
  auto nine = sheaf::Task(Square).Remote(3);
  auto sixteen = sheaf::Task(Square).Remote(4);
  std::cout << sheaf::BlockOn(AddUp(nine, sixteen)) << "\n";  // 25
}

int Parse(const std::string& text) { return std::stoi(text); }
SHEAF_REMOTE(Parse);

void Errors() {
  auto seven = sheaf::Task(Parse).Remote("seven");
  try {
    sheaf::Get(seven);
  } catch (const sheaf::TaskError& error) {
    std::cout << error.cause_type() << "\n";  // std::invalid_argument
  }
  sheaf::Result<int> result = sheaf::TryGet(seven);
  const bool failed = result.kind() == sheaf::ErrorKind::kTaskFailed;
  std::cout << result.ok() << " " << failed << "\n";  // 0 1
}

class Member {
 public:
  double AddUp(int world_size, int rank) {
    auto group = sheaf::collective::Group::Init("sums", world_size, rank);
    auto gradients = group.Allocate<float>(1 << 20);  // A std::vector is copied on the way.
    std::fill(gradients.begin(), gradients.end(), static_cast<float>(rank));
    group.AllReduce(gradients, sheaf::collective::Op::kAverage);
    return gradients[0];
  }
};
SHEAF_ACTOR(Member, sheaf::Constructor<>, &Member::AddUp);

void Groups() {
  const auto first = sheaf::Actor<Member>().Cpus(0).Remote();
  const auto second = sheaf::Actor<Member>().Cpus(0).Remote();
  auto one = first.Task(&Member::AddUp).Remote(2, 0);
  auto other = second.Task(&Member::AddUp).Remote(2, 1);
  std::cout << sheaf::Get(one) << " " << sheaf::Get(other) << "\n";  // 0.5 0.5
}

int main(int argc, char** argv) {
  sheaf::InitOptions options;
  options.cpus = 4;  // Of the node that Init starts, unless SHEAF_ADDRESS names one to join.
  sheaf::Init(argc, argv, options);
  Tasks();
  Values();
  Arrays();
  Options();
  Streams();
  Actors();
  Coroutines();
  Errors();
  Groups();
}
