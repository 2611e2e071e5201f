// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The shortest program: a remote function.
#include <sheaf/sheaf.h>
#include <iostream>

int Square(int x) { return x * x; }
SHEAF_REMOTE(Square);

int main(int argc, char** argv) {
  sheaf::Init(argc, argv);  // Joins a node, or starts one that ends with this program.
  sheaf::ObjectRef<int> nine = sheaf::Task(Square).Remote(3);
  std::cout << sheaf::Get(sheaf::Task(Square).Remote(nine)) << "\n";  // 81
}
