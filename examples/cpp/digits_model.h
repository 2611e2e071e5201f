// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A small neural network for handwritten digits: 64 pixels, a hidden layer of 32, 10 classes. Plain
// C++; the same arithmetic in the same order wherever it runs, so that training in one process and
// in many gives equal weights to the last bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace examples {

inline constexpr size_t kPixels = 64;
inline constexpr size_t kHidden = 32;
inline constexpr size_t kClasses = 10;
// hidden[kHidden][kPixels + 1], then output[kClasses][kHidden + 1]; the last column is the bias.
inline constexpr size_t kWeights = kHidden * (kPixels + 1) + kClasses * (kHidden + 1);

struct Samples {
  std::vector<float> pixels;  // kPixels each, in [0, 1].
  std::vector<int32_t> labels;
  size_t size() const { return labels.size(); }
};

// The images of a .npz file with x and y, in an order of our own. Throws std::runtime_error.
Samples LoadDigits(const char* path);
Samples Slice(const Samples& samples, size_t begin, size_t end);

std::vector<float> InitialWeights();

struct GradientOf {
  std::vector<float> sum;  // Over the batch.
  float loss = 0;          // The same.
  uint64_t samples = 0;
};
// Of the samples [begin, begin + count), begin taken modulo their number: the cross entropy's
// gradient.
GradientOf BatchGradient(std::span<const float> weights, const Samples& samples, size_t begin,
                         size_t count);

// One step of gradient descent with momentum, by the mean over all gradients, summed in the order
// given.
void Descend(std::span<const GradientOf> gradients, std::vector<float>& weights,
             std::vector<float>& velocity);

double Accuracy(std::span<const float> weights, const Samples& samples);

}  // namespace examples
