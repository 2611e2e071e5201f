// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of a model in buckets, while the rest of them is still computed.
//
//   sheaf::collective::GradientReducer reducer(group, {{"layer2", 10 * 64}, {"layer1", 64 * 784}});
//   for (each step) {
//     BackwardThroughLayer2(reducer.array(0));   // Writes there.
//     reducer.MarkReady(0);                      // Its reduction runs from now on ...
//     BackwardThroughLayer1(reducer.array(1));   // ... beside this.
//     reducer.MarkReady(1);
//     reducer.Finish();                          // The averages are in reducer.array(...).
//   }
// The arrays are in memory of the group. All ranks list the same ones, best in the order in which
// they become ready; a bucket starts when all of its arrays and the buckets before it are ready.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sheaf/collective.h"

namespace sheaf::inline v1::collective {

// kFloat16: half of the bytes; values above 65504 become infinite. kTopK: only the largest part of
// each bucket's values; the rest is added to the next step's gradient, so that nothing is lost.
enum class Compression : uint8_t { kNone, kFloat16, kTopK };

// One array of a model.
struct GradientArray {
  std::string name;  // For errors; each its own.
  size_t count = 0;  // Of floats.
};

// How gradients are reduced; the same on all ranks.
struct GradientOptions {
  Op op = Op::kAverage;                          // Or kSum.
  Compression compression = Compression::kNone;  // On the way; sums are made in float.
  double keep = 0.01;                            // Of kTopK: the part of the values that is sent.
  size_t bucket_bytes = 4 << 20;                 // A larger array has a bucket of its own.
};

// One thread at a time. After a CollectiveError make a new one, from a new group; Residual and
// SetResidual carry over what kTopK has not sent yet.
class GradientReducer {
 public:
  // `group` outlives it. Throws InvalidArgumentError (no arrays, an empty one, two of one name, a
  // reduction other than those), CollectiveError (no memory left in the group).
  SHEAF_API GradientReducer(Group& group, std::vector<GradientArray> arrays,
                            const GradientOptions& options = {});
  SHEAF_API GradientReducer(GradientReducer&&) noexcept;
  SHEAF_API GradientReducer& operator=(GradientReducer&&) noexcept;
  SHEAF_API ~GradientReducer();

  // By its place in the list. Throws InvalidArgumentError: there is none.
  SHEAF_API std::span<float> array(size_t index) const;
  // Array `index` is not touched from here until Finish returns.
  SHEAF_API void MarkReady(size_t index);
  // Marks what is not ready, waits for all reductions, and begins the next step.
  SHEAF_API void Finish();

  // What kTopK has not sent of array `index` yet, for the reducer that follows this one.
  SHEAF_API std::vector<float> Residual(size_t index) const;
  SHEAF_API void SetResidual(size_t index, const std::vector<float>& values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sheaf::inline v1::collective
