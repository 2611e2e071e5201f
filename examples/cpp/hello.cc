// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The shortest program: a remote function, and an actor.
#include <sheaf/sheaf.h>
#include <iostream>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  int Add(int n) { return value_ += n; }

 private:
  int value_;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Add);

int main(int argc, char** argv) {
  sheaf::Init(argc, argv);  // Starts a node on this machine, or joins one: SHEAF_ADDRESS.

  sheaf::ObjectRef<int> nine = sheaf::Task(Square).Remote(3);  // Runs in another process.
  sheaf::ObjectRef<int> eighty_one =
      sheaf::Task(Square).Remote(nine);  // Starts when `nine` is there.
  std::cout << "3 * 3 = " << sheaf::Get(nine) << ", squared " << sheaf::Get(eighty_one) << "\n";

  auto counter = sheaf::Actor<Counter>().Remote(10);  // An object in a process of its own.
  counter.Task(&Counter::Add).Remote(1);
  std::cout << "10 + 1 + 31 = " << sheaf::Get(counter.Task(&Counter::Add).Remote(31)) << "\n";
}
