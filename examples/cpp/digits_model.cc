// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "digits_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "npz.h"

namespace examples {
namespace {

constexpr float kRate = 0.05f;
constexpr float kMomentum = 0.9f;
constexpr size_t kOutput = kHidden * (kPixels + 1);  // Where the second layer begins.

struct Activations {
  std::array<float, kHidden> hidden;
  std::array<float, kClasses> probability;
};

Activations Forward(std::span<const float> weights, const float* pixels) {
  Activations at;
  for (size_t h = 0; h < kHidden; ++h) {
    const float* row = &weights[h * (kPixels + 1)];
    float sum = row[kPixels];
    for (size_t p = 0; p < kPixels; ++p) sum += row[p] * pixels[p];
    at.hidden[h] = std::max(sum, 0.f);
  }
  float largest = -INFINITY;
  for (size_t c = 0; c < kClasses; ++c) {
    const float* row = &weights[kOutput + c * (kHidden + 1)];
    float sum = row[kHidden];
    for (size_t h = 0; h < kHidden; ++h) sum += row[h] * at.hidden[h];
    at.probability[c] = sum;
    largest = std::max(largest, sum);
  }
  float total = 0;
  for (float& value : at.probability) total += value = std::exp(value - largest);
  for (float& value : at.probability) value /= total;
  return at;
}

// SplitMix64: the same on every machine, which <random>'s distributions are not.
uint64_t Next(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Samples LoadDigits(const char* path) {
  const std::map<std::string, NpyArray> arrays = ReadNpz(path);
  const auto x = arrays.find("x");
  const auto y = arrays.find("y");
  if (x == arrays.end() || y == arrays.end() || x->second.shape.size() != 2 ||
      x->second.shape[1] != kPixels || y->second.shape.size() != 1 ||
      y->second.shape[0] != x->second.shape[0]) {
    throw std::runtime_error(std::string(path) + ": want x of shape (n, 64) and y of shape (n,)");
  }
  const std::vector<float> pixels = x->second.Floats();
  const std::vector<float> labels = y->second.Floats();
  const float brightest = *std::max_element(pixels.begin(), pixels.end());
  std::vector<size_t> order(labels.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  uint64_t random = 1;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[Next(random) % i]);
  Samples samples;
  for (const size_t i : order) {
    for (size_t p = 0; p < kPixels; ++p)
      samples.pixels.push_back(pixels[i * kPixels + p] / brightest);
    samples.labels.push_back(static_cast<int32_t>(labels[i]));
  }
  return samples;
}

Samples Slice(const Samples& samples, size_t begin, size_t end) {
  const auto pixel = samples.pixels.begin();
  const auto label = samples.labels.begin();
  return {{pixel + static_cast<long>(begin * kPixels), pixel + static_cast<long>(end * kPixels)},
          {label + static_cast<long>(begin), label + static_cast<long>(end)}};
}

std::vector<float> InitialWeights() {
  std::vector<float> weights(kWeights, 0.f);
  uint64_t random = 2;
  for (size_t i = 0; i < kWeights; ++i) {
    const size_t inputs = i < kOutput ? kPixels : kHidden;
    const bool is_bias =
        (i < kOutput ? i % (kPixels + 1) : (i - kOutput) % (kHidden + 1)) == inputs;
    const float uniform =
        static_cast<float>(Next(random) >> 40) / static_cast<float>(1 << 24) * 2 - 1;
    if (!is_bias) weights[i] = uniform * std::sqrt(3.f / static_cast<float>(inputs));
  }
  return weights;
}

GradientOf BatchGradient(std::span<const float> weights, const Samples& samples, size_t begin,
                         size_t count) {
  GradientOf gradient{std::vector<float>(kWeights, 0.f), 0, count};
  for (size_t i = 0; i < count; ++i) {
    const size_t sample = (begin + i) % samples.size();
    const float* pixels = &samples.pixels[sample * kPixels];
    const size_t label = static_cast<size_t>(samples.labels[sample]);
    Activations at = Forward(weights, pixels);
    gradient.loss -= std::log(std::max(at.probability[label], 1e-12f));
    at.probability[label] -= 1;  // Now the gradient of the loss by the outputs.
    std::array<float, kHidden> back{};
    for (size_t c = 0; c < kClasses; ++c) {
      const float error = at.probability[c];
      const float* row = &weights[kOutput + c * (kHidden + 1)];
      float* to = &gradient.sum[kOutput + c * (kHidden + 1)];
      for (size_t h = 0; h < kHidden; ++h) {
        to[h] += error * at.hidden[h];
        back[h] += error * row[h];
      }
      to[kHidden] += error;
    }
    for (size_t h = 0; h < kHidden; ++h) {
      if (at.hidden[h] <= 0) continue;
      float* to = &gradient.sum[h * (kPixels + 1)];
      for (size_t p = 0; p < kPixels; ++p) to[p] += back[h] * pixels[p];
      to[kPixels] += back[h];
    }
  }
  return gradient;
}

void Descend(std::span<const GradientOf> gradients, std::vector<float>& weights,
             std::vector<float>& velocity) {
  uint64_t samples = 0;
  for (const GradientOf& gradient : gradients) samples += gradient.samples;
  for (size_t i = 0; i < kWeights; ++i) {
    float sum = 0;
    for (const GradientOf& gradient : gradients) sum += gradient.sum[i];
    velocity[i] = kMomentum * velocity[i] - kRate * sum / static_cast<float>(samples);
    weights[i] += velocity[i];
  }
}

double Accuracy(std::span<const float> weights, const Samples& samples) {
  size_t right = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Activations at = Forward(weights, &samples.pixels[i * kPixels]);
    const auto best =
        std::max_element(at.probability.begin(), at.probability.end()) - at.probability.begin();
    right += best == samples.labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(samples.size());
}

}  // namespace examples
