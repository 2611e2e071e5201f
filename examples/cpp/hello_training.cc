// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The shortest training: workers that learn y = 3x, each from data of its own.
#include <sheaf/train.h>
#include <filesystem>
#include <iostream>

struct State {
  double w = 0;
  int step = 0;
};

void Fit(sheaf::train::Worker& worker, int steps) {  // Runs in each worker.
  State state;
  if (worker.checkpoint()) state = worker.checkpoint()->Read<State>("state");  // After a loss.
  while (state.step < steps) {
    const double x = 1 + worker.rank();
    std::vector<double> gradient = {(state.w * x - 3 * x) * x};
    worker.group().AllReduce(gradient, sheaf::collective::Op::kAverage);
    state = {state.w - 0.3 * gradient[0], state.step + 1};
    worker.Report({{"w", state.w}}, [&](sheaf::train::Checkpoint& to) {
      if (worker.rank() == 0) to.Write("state", state);
    });  // On disk when it returns.
  }
}

int main(int argc, char** argv) {
  sheaf::Init(argc, argv);
  const auto folder = std::filesystem::temp_directory_path() / "sheaf-hello-training";
  sheaf::train::WorkerGroup<Fit> group({.workers = 2, .folder = folder, .max_failures = 3});
  sheaf::train::Result result = group.Run(20);
  const double w = result.history.back().metrics.at("w");
  std::cout << w << " " << result.history.size() << "\n";  // 3 20
  std::filesystem::remove_all(folder);
}
