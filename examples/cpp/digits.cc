// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "digits.h"

#include <sheaf/sheaf.h>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "console.h"
#include "digits_model.h"

namespace examples {
namespace {

constexpr size_t kWorkers = 4;
constexpr size_t kBatch = 16;  // Per worker.
constexpr size_t kSteps = 600;
constexpr size_t kTestPart = 5;  // One in five images is for the test.

std::string Percent(double part) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.1f %%", 100 * part);
  return text;
}

// The images of worker `index`.
Samples ShardOf(const Samples& samples, size_t index) {
  return Slice(samples, samples.size() * index / kWorkers, samples.size() * (index + 1) / kWorkers);
}

}  // namespace

// Holds a part of the images and computes gradients on it.
class Worker {
 public:
  explicit Worker(Samples samples) : samples_(std::move(samples)) {}
  // `weights` is read where it lies: in shared memory when it is large.
  GradientOf Gradient(std::span<const float> weights, uint64_t step) {
    return BatchGradient(weights, samples_, step * kBatch, kBatch);
  }
  uint32_t Node() const { return sheaf::Context().node; }

 private:
  Samples samples_;
};
SHEAF_ACTOR(Worker, sheaf::Constructor<Samples>, &Worker::Gradient, &Worker::Node);

// Holds the weights.
class ParameterServer {
 public:
  explicit ParameterServer(std::vector<float> weights)
      : weights_(std::move(weights)), velocity_(weights_.size()) {}
  std::vector<float> Step(const std::vector<sheaf::ObjectRef<GradientOf>>& references) {
    const std::vector<GradientOf> gradients = sheaf::Get(references);
    Descend(gradients, weights_, velocity_);
    return weights_;
  }

 private:
  std::vector<float> weights_;
  std::vector<float> velocity_;
};
SHEAF_ACTOR(ParameterServer, sheaf::Constructor<std::vector<float>>, &ParameterServer::Step);

namespace {

std::vector<float> TrainTogether(const Samples& training) {
  // The weights are nowhere else: they live and die with the node of this program.
  const auto server = sheaf::Actor<ParameterServer>()
                          .Place(sheaf::Strategy::Node(sheaf::Context().node))
                          .Remote(InitialWeights());
  std::vector<sheaf::ActorHandle<Worker>> workers;
  for (size_t i = 0; i < kWorkers; ++i)
    // One that is lost is made again from its images, and asked again: a gradient depends on
    // nothing else.
    workers.push_back(sheaf::Actor<Worker>()
                          .Place(sheaf::Strategy::Spread())
                          .MaxRestarts(3)
                          .MaxTaskRetries(3)
                          .Remote(ShardOf(training, i)));
  std::map<uint32_t, int> on_node;
  for (const auto& worker : workers) ++on_node[sheaf::Get(worker.Task(&Worker::Node).Remote())];
  std::string where;
  for (const auto& [node, count] : on_node)
    where +=
        (where.empty() ? "" : ", ") + std::to_string(count) + " on node " + std::to_string(node);
  Row("actors", "workers: " + where + "; and a parameter server");

  // Nothing is waited for but for the display: each step's call waits for its arguments by itself.
  Progress progress("steps");
  const Stopwatch watch;
  sheaf::ObjectRef<std::vector<float>> weights = sheaf::Put(InitialWeights());
  for (uint64_t step = 0; step < kSteps; ++step) {
    std::vector<sheaf::ObjectRef<GradientOf>> gradients;
    for (const auto& worker : workers)
      gradients.push_back(worker.Task(&Worker::Gradient).Remote(weights, step));
    weights = server.Task(&ParameterServer::Step).Remote(gradients);
    if (step % 20 == 0) {
      const float loss = sheaf::Get(gradients[0]).loss / kBatch;
      char text[64];
      std::snprintf(text, sizeof(text), "step %llu, loss %.3f",
                    static_cast<unsigned long long>(step), loss);
      progress.Show(static_cast<double>(step) / kSteps, text);
    }
  }
  std::vector<float> trained = sheaf::Get(weights);
  const double images = static_cast<double>(kSteps * kWorkers * kBatch);
  progress.Done(std::to_string(kSteps) + " in " + Seconds(watch.seconds()) + ", " +
                WithCommas(static_cast<uint64_t>(images / watch.seconds())) + " images a second");
  return trained;
}

std::vector<float> TrainAlone(const Samples& training) {
  std::vector<Samples> shards;
  for (size_t i = 0; i < kWorkers; ++i) shards.push_back(ShardOf(training, i));
  std::vector<float> weights = InitialWeights();
  std::vector<float> velocity(weights.size());
  for (size_t step = 0; step < kSteps; ++step) {
    std::vector<GradientOf> gradients;
    for (const Samples& shard : shards)
      gradients.push_back(BatchGradient(weights, shard, step * kBatch, kBatch));
    Descend(gradients, weights, velocity);
  }
  return weights;
}

}  // namespace

bool RunDigits(const std::string& data) {
  Title("Digits", "a classifier trained by data-parallel actors");
  const Samples all = LoadDigits(data.c_str());
  const size_t test_size = all.size() / kTestPart;
  const Samples test = Slice(all, 0, test_size);
  const Samples training = Slice(all, test_size, all.size());
  Row("images",
      WithCommas(training.size()) + " to learn from, " + WithCommas(test.size()) + " for the test");

  const std::vector<float> together = TrainTogether(training);
  const double accuracy = Accuracy(together, test);
  Row("accuracy", Bar(accuracy, 24) + " " + Percent(accuracy) + " of the test images");
  const std::vector<float> alone = TrainAlone(training);
  const bool same = together.size() == alone.size() &&
                    std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) == 0;
  Row("check",
      same ? "one process alone gets the same " + WithCommas(kWeights) + " weights, to the last bit"
           : "one process alone gets other weights");
  return same && accuracy > 0.93;
}

}  // namespace examples
