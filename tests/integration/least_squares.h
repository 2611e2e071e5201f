// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A least-squares fit as a training function, and what a run of it must have reached: each step
// once, and the weights of one process. Included by one file of a program.
#pragma once

#include <sheaf/train.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/scratch_directory_for_test.h"

namespace training {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace train = sheaf::train;

constexpr size_t kWeights = 500;
constexpr size_t kBatch = 24;  // Of all workers together.

struct Settings {
  uint64_t steps = 0;
  uint64_t save_each = 1;
  // What rank 1 does behind step 6, unless this file is there: "die", "throw", "hang".
  std::string misdeed{};
  std::string done{};
};
struct State {
  std::vector<double> weights = std::vector<double>(kWeights);
  uint64_t step = 0;
};

// The gradient of samples [begin, end) of the batch of a step, added up into `out`.
inline void AddGradients(const State& state, size_t begin, size_t end, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0);
  for (size_t sample = begin; sample < end; ++sample) {
    const double x = 0.1 * static_cast<double>((state.step * kBatch + sample) % 17);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] += (state.weights[i] - static_cast<double>(i)) * x * x;
  }
}
inline void Descend(State& state, std::span<const double> gradients) {
  for (size_t i = 0; i < kWeights; ++i) state.weights[i] -= 0.1 * gradients[i] / kBatch;
  ++state.step;
}
inline State Alone(uint64_t steps) {
  State state;
  std::vector<double> gradients(kWeights);
  while (state.step < steps) {
    AddGradients(state, 0, kBatch, gradients);
    Descend(state, gradients);
  }
  return state;
}

inline void Misbehave(const std::string& how) {
  if (how == "die") kill(getpid(), SIGKILL);
  if (how == "throw") throw std::out_of_range("no such sample");
  if (how == "hang") std::this_thread::sleep_for(1h);
}

inline void Fit(train::Worker& worker, const Settings& settings) {
  State state;
  if (worker.checkpoint()) state = worker.checkpoint()->Read<State>("state");
  const size_t rank = static_cast<size_t>(worker.rank());
  const size_t size = static_cast<size_t>(worker.world_size());
  auto gradients = worker.group().Allocate<double>(kWeights);
  while (state.step < settings.steps) {
    if (rank == 1 && state.step == 6 && !settings.misdeed.empty() && !fs::exists(settings.done)) {
      std::ofstream(settings.done) << "once";
      Misbehave(settings.misdeed);
    }
    AddGradients(state, kBatch * rank / size, kBatch * (rank + 1) / size, gradients);
    worker.group().AllReduce(gradients);
    Descend(state, gradients);
    train::SaveFunction save;
    if (rank == 0 && state.step % settings.save_each == 0)
      save = [&](train::Checkpoint& to) { to.Write("state", state); };
    worker.Report({{"weight", state.weights[7]}}, save);
  }
}

using sheaf::ScratchDirectory;

inline std::string Words(const train::Result& result) {
  std::string words;
  for (const train::Event& event : result.events) words += event.text + "\n";
  return words;
}
inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
// Each step once, in order, and the weights of one process.
inline void CheckReached(const train::Result& result, uint64_t steps) {
  INFO(Words(result));
  REQUIRE(result.history.size() == steps);
  for (uint64_t step = 1; step <= steps; ++step) {
    CHECK(result.history[step - 1].step == step);
    CHECK(result.history[step - 1].metrics.at("weight") ==
          Approx(Alone(step).weights[7]).epsilon(1e-12));
  }
  const State state = result.checkpoint.value().Read<State>("state");
  const State alone = Alone(state.step);
  for (size_t i = 0; i < kWeights; ++i)
    REQUIRE(state.weights[i] == Approx(alone.weights[i]).epsilon(1e-12).margin(1e-12));
}

}  // namespace training
