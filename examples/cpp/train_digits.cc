// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "train_digits.h"

#include <sheaf/train.h>
#include <signal.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "console.h"
#include "digits_model.h"

namespace examples {
namespace {

namespace fs = std::filesystem;
namespace train = sheaf::train;

constexpr size_t kBatch = 64;  // Of all workers together.
constexpr uint64_t kSaveEach = 20;
constexpr double kRounding = 1e-3;  // Sums of floats in another order, over hundreds of steps.

struct Settings {
  sheaf::ObjectRef<Samples> images;
  uint64_t steps = 0;
  size_t batch = kBatch;
};
struct State {
  std::vector<float> weights;
  std::vector<float> velocity;
  uint64_t step = 0;
};
State FirstState() { return {InitialWeights(), std::vector<float>(kWeights), 0}; }

// Runs in each worker.
void Train(train::Worker& worker, const Settings& settings) {
  const Samples images = sheaf::Get(settings.images);
  State state = worker.checkpoint() ? worker.checkpoint()->Read<State>("state") : FirstState();
  const size_t rank = static_cast<size_t>(worker.rank());
  const size_t size = static_cast<size_t>(worker.world_size());
  const size_t first = settings.batch * rank / size;
  const size_t count = settings.batch * (rank + 1) / size - first;
  // Gradients, and the loss behind them, where the workers of a node read each other's.
  auto shared = worker.group().Allocate<float>(kWeights + 1);
  while (state.step < settings.steps) {
    const GradientOf mine =
        BatchGradient(state.weights, images, state.step * settings.batch + first, count);
    std::copy(mine.sum.begin(), mine.sum.end(), shared.begin());
    shared[kWeights] = mine.loss;
    worker.group().AllReduce(shared);
    const GradientOf all{{shared.begin(), shared.begin() + kWeights}, 0, settings.batch};
    Descend({&all, 1}, state.weights, state.velocity);
    ++state.step;
    train::SaveFunction save;
    if (rank == 0 && (state.step % kSaveEach == 0 || state.step == settings.steps))
      save = [&](train::Checkpoint& to) { to.Write("state", state); };
    worker.Report({{"loss", shared[kWeights] / static_cast<double>(settings.batch)}}, save);
  }
}

// The same in this process.
std::vector<float> TrainAlone(const Samples& images, uint64_t steps) {
  State state = FirstState();
  for (; state.step < steps; ++state.step) {
    const GradientOf all = BatchGradient(state.weights, images, state.step * kBatch, kBatch);
    Descend({&all, 1}, state.weights, state.velocity);
  }
  return state.weights;
}

// A folder of its own, gone with this object.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "sheaf-digits-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder " + pattern);
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string Text(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// "0, 1 on node 1; 2, 3 on node 2".
std::string Places(const std::vector<train::Member>& members) {
  std::map<uint32_t, std::string> by_node;
  for (const train::Member& member : members) {
    std::string& ranks = by_node[member.node];
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(member.rank);
  }
  std::string text;
  for (const auto& [node, ranks] : by_node)
    text += (text.empty() ? "" : "; ") + ranks + " on node " + std::to_string(node);
  return text;
}

void ShowEvents(const train::Result& result) {
  for (const train::Event& event : result.events)
    Row("at " + Text("%.2f s", event.seconds), event.text);
}

struct Trained {
  train::Result result;
  std::vector<float> weights;
  std::string places;
};
// `kill_at`: behind this step a worker is killed; 0: none is.
Trained TrainTogether(const Settings& settings, int workers, uint64_t kill_at, int victim,
                      const std::function<void(const train::Row&)>& show = nullptr) {
  Scratch scratch;
  Trained trained;
  train::Options options;
  options.workers = workers;
  options.folder = scratch.path();
  options.keep_checkpoints = 2;
  options.max_failures = 5;
  train::WorkerGroup<Train>* running = nullptr;
  options.on_step = [&, killed = false](const train::Row& row) mutable {
    if (trained.places.empty()) trained.places = Places(running->members());
    if (row.step == kill_at && !std::exchange(killed, true))
      kill(running->members().at(static_cast<size_t>(victim)).pid, SIGKILL);
    if (show) show(row);
  };
  train::WorkerGroup<Train> group(options);
  running = &group;
  try {
    trained.result = group.Run(settings);
  } catch (const train::TrainingError& error) {
    ShowEvents(error.result());
    throw;
  }
  trained.weights = trained.result.checkpoint.value().Read<State>("state").weights;
  return trained;
}

// How far the weights are apart; without bound when there are steps missing or doubled.
double Difference(const Trained& trained, const std::vector<float>& expected, uint64_t steps) {
  bool right = trained.result.history.size() == steps;
  for (uint64_t step = 1; right && step <= steps; ++step)
    right = trained.result.history[step - 1].step == step;
  if (!right || trained.weights.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    largest = std::max<double>(largest, std::abs(trained.weights[i] - expected[i]));
  return largest;
}

double ImagesPerSecond(const train::Result& result, size_t batch) {
  const double seconds = result.history.back().seconds - result.history.front().seconds;
  return static_cast<double>((result.history.size() - 1) * batch) / seconds;
}

void ShowScaling(Settings settings) {
  // Large batches, as they are for large models: the digits are so few that all make one.
  settings.batch = 1408;
  settings.steps = 60;
  Row("scaling", "batches of " + WithCommas(settings.batch) + " images; this machine has " +
                     std::to_string(std::thread::hardware_concurrency()) + " cores");
  double one = 0;
  for (const int workers : {1, 2, kTrainWorkers}) {
    const Trained trained = TrainTogether(settings, workers, 0, 0);
    const double speed = ImagesPerSecond(trained.result, settings.batch);
    if (workers == 1) one = speed;
    Row(std::to_string(workers) + (workers == 1 ? " worker" : " workers"),
        Bar(speed / one / kTrainWorkers, 24) + " " + WithCommas(static_cast<uint64_t>(speed)) +
            " images a second, " + Text("%.1f", speed / one) + " times");
  }
}

struct Digits {
  Samples training;
  Samples test;
};
Digits Load(const std::string& data) {
  const Samples all = LoadDigits(data.c_str());
  const size_t test = all.size() / 5;
  return {Slice(all, test, all.size()), Slice(all, 0, test)};
}

}  // namespace

bool RunTraining(const std::string& data, int epochs, bool scaling) {
  Title("Training in C++", std::to_string(kTrainWorkers) +
                               " workers add up their gradients by all-reduce; one will be killed");
  const Digits digits = Load(data);
  const uint64_t steps = static_cast<uint64_t>(epochs) * (digits.training.size() / kBatch);
  Row("images", WithCommas(digits.training.size()) + " to learn from, " +
                    WithCommas(digits.test.size()) + " for the test");
  const Settings settings{sheaf::Put(digits.training), steps, kBatch};
  Progress progress("steps");
  const Trained trained =
      TrainTogether(settings, kTrainWorkers, steps / 2, 2, [&](const train::Row& row) {
        progress.Show(
            static_cast<double>(row.step) / static_cast<double>(steps),
            "step " + std::to_string(row.step) + ", loss " + Text("%.3f", row.metrics.at("loss")));
      });
  progress.Done(std::to_string(steps) + ", " +
                WithCommas(static_cast<uint64_t>(ImagesPerSecond(trained.result, kBatch))) +
                " images a second, the loss of a worker included");
  Row("ranks", trained.places);
  ShowEvents(trained.result);
  const double accuracy = Accuracy(trained.weights, digits.test);
  Row("accuracy",
      Bar(accuracy, 24) + " " + Text("%.1f %%", 100 * accuracy) + " of the test images");
  const double off = Difference(trained, TrainAlone(digits.training, steps), steps);
  const bool same = off < kRounding;
  Row("check", same ? "each step once, and the weights of one process to " + Text("%.0e", off)
                    : "steps are missing or doubled, or the weights differ: " + Text("%g", off));
  if (scaling) ShowScaling(settings);
  return same && accuracy > 0.93;
}

bool RunKills(const std::string& data, int kills, uint64_t seed) {
  Title("Kills", std::to_string(kills) + " runs, each with a kill at a random step; seed " +
                     std::to_string(seed));
  const Digits digits = Load(data);
  const uint64_t steps = 6 * (digits.training.size() / kBatch);
  const Settings settings{sheaf::Put(digits.training), steps, kBatch};
  const std::vector<float> expected = TrainAlone(digits.training, steps);
  std::mt19937_64 random(seed);
  std::vector<double> recoveries;
  double largest = 0;
  Progress progress("runs");
  for (int run = 1; run <= kills; ++run) {
    // Before the last time but one that all wait for a checkpoint: nobody has finished by then.
    const uint64_t kill_at = 1 + random() % (steps / kSaveEach * kSaveEach - 1);
    const int victim = static_cast<int>(random() % kTrainWorkers);
    const Trained trained = TrainTogether(settings, kTrainWorkers, kill_at, victim);
    const double off = Difference(trained, expected, steps);
    largest = std::max(largest, off);
    if (!(off < kRounding) || trained.result.recoveries.empty()) {
      progress.Done("in run " + std::to_string(run) + " rank " + std::to_string(victim) +
                    " was killed behind step " + std::to_string(kill_at) + ": " +
                    std::to_string(trained.result.history.size()) + " of " + std::to_string(steps) +
                    " steps, " + std::to_string(trained.result.recoveries.size()) +
                    " recoveries, weights off by " + Text("%g", off));
      ShowEvents(trained.result);
      return false;
    }
    recoveries.insert(recoveries.end(), trained.result.recoveries.begin(),
                      trained.result.recoveries.end());
    progress.Show(1.0 * run / kills, "rank " + std::to_string(victim) + " behind step " +
                                         std::to_string(kill_at) + ", back after " +
                                         Seconds(recoveries.back()));
  }
  progress.Done(std::to_string(kills) + " of " + std::to_string(steps) +
                " steps: each step once, the weights of one process to " + Text("%.0e", largest));
  std::sort(recoveries.begin(), recoveries.end());
  Row("recovery", std::to_string(recoveries.size()) + " losses; to the next step: median " +
                      Seconds(recoveries[recoveries.size() / 2]) + ", longest " +
                      Seconds(recoveries.back()));
  return true;
}

}  // namespace examples
