// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <sheaf/sheaf.h>
#include <iostream>
#include <vector>

struct Request {
  int number = 0;
  std::vector<double> weights;
};

int Square(const Request& request) { return request.number * request.number; }
SHEAF_REMOTE(Square);

class Counter {
 public:
  int Add(int n) { return value_ += n; }

 private:
  int value_ = 0;
};
SHEAF_ACTOR(Counter, sheaf::Constructor<>, &Counter::Add);

int main(int argc, char** argv) {
  sheaf::Init(argc, argv);
  const auto counter = sheaf::Actor<Counter>().Remote();
  std::vector<sheaf::ObjectRef<int>> squares;
  sheaf::ObjectRef<int> count;
  for (int i = 0; i < 16; ++i) {
    squares.push_back(sheaf::Task(Square).Remote(Request{i, std::vector<double>(1000, 1.)}));
    count = counter.Task(&Counter::Add).Remote(i);
  }
  int sum = 0;
  for (const int square : sheaf::Get(squares)) sum += square;
  std::cout << squares.size() << " squares sum up to " << sum << ", the counter is at "
            << sheaf::Get(count) << "\n";
}
