// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The shortest program: a remote function, and an actor.
#include <sheaf/sheaf.h>
#include <iostream>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

class Counter {
 public:
  explicit Counter(int start) : total_(start) {}
  int Add(int n) { return total_ += n; }

 private:
  int total_;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<int>, &Counter::Add);

int main(int argc, char** argv) {
  sheaf::Init(argc, argv);  // Joins a node, or starts one that ends with this program.

  sheaf::ObjectRef<int> nine = sheaf::Task(Square).Remote(3);
  sheaf::ObjectRef<int> more = sheaf::Task(Square).Remote(nine);  // Runs when `nine` is there.

  sheaf::ActorHandle<Counter> counter = sheaf::Actor<Counter>().Remote(10);
  counter.Task(&Counter::Add).Remote(1);
  sheaf::ObjectRef<int> total = counter.Task(&Counter::Add).Remote(2);
  std::cout << sheaf::Get(more) << " " << sheaf::Get(total) << "\n";  // 81 13
}
