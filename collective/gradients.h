// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of a model while the rest of them is still computed. Arrays of float lie
// side by side in buckets, in memory of the group; a bucket's reduction starts as soon as all of
// its arrays, and all buckets before it, are ready. So list the arrays in the order in which they
// become ready: the last layer's first.
//
// Compression. kFloat16 sends half of the bytes: values are rounded to float16 before and after
// they are reduced, and those above 65504 become infinite (scale the loss). kTopK sends of each
// bucket the `keep` part of the values, those that are largest, as indices and values; what was not
// sent is added to the next step's gradient (error feedback), so nothing is lost, only late.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"

namespace sheaf {

struct GradientArray {
  std::string name;
  size_t count = 0;  // Of floats.
};

enum class Compression : uint8_t { kNone, kFloat16, kTopK };

struct GradientOptions {
  ReduceOp op = ReduceOp::kAverage;  // Or kSum.
  Compression compression = Compression::kNone;
  double keep = 0.01;                         // Of kTopK; at least one value of each bucket.
  size_t bucket_bytes = 4 << 20;              // Of floats; a larger array has a bucket of its own.
  Nanos timeout = kDefaultCollectiveTimeout;  // Of each reduction.
};

// One thread at a time. All ranks make one with the same arrays and options.
class GradientReducer {
 public:
  // `group` outlives it. kInvalidArgument: no array, one of no size, two of one name, a reduction
  // or a part to keep that make no sense. kResourceExhausted: the group has no memory left.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Make(Communicator& group,
                                                               std::vector<GradientArray> arrays,
                                                               const GradientOptions& options);
  // Waits for what was started; its errors are lost.
  ~GradientReducer();

  size_t array_count() const { return arrays_.size(); }
  size_t bucket_count() const { return buckets_.size(); }
  // Where array `index` (or the one of this name; -1: none) is: the gradient is written there, and
  // after Finish the result is there.
  float* array(size_t index) const { return arrays_[index].data; }
  size_t count(size_t index) const { return arrays_[index].count; }
  int IndexOf(const std::string& name) const;

  // Array `index` is as it shall be sent, and not touched before Finish. kFailedPrecondition: it
  // was ready already in this step.
  absl::Status MarkReady(size_t index);
  // Marks what is not ready, waits until all is reduced and begins the next step. After an error of
  // the group make a new one from a new group; what error feedback kept is in Residual.
  absl::Status Finish();

  // kTopK: what this rank has not sent yet of array `index`; else empty.
  std::vector<float> Residual(size_t index) const;
  // The same arrays go on with what another kept.
  void SetResidual(size_t index, const std::vector<float>& values);

 private:
  struct Array {
    std::string name;
    size_t count;
    size_t bucket;
    size_t offset;  // In its bucket.
    float* data = nullptr;
    bool ready = false;
  };
  struct Bucket {
    size_t count = 0;
    size_t arrays = 0;
    size_t waiting = 0;  // Arrays that are not ready.
    size_t kept = 0;     // Values that kTopK sends.
    std::shared_ptr<std::byte> memory;
    std::shared_ptr<std::byte> packed;    // What is sent: float16, or indices and values.
    std::shared_ptr<std::byte> gathered;  // kTopK: of all ranks.
    std::vector<float> residual;
    std::shared_ptr<Work> work;
    float* data() const { return reinterpret_cast<float*>(memory.get()); }
  };

  GradientReducer(Communicator& group, const GradientOptions& options)
      : group_(group), options_(options) {}
  void Start(Bucket& bucket);
  void Pack(Bucket& bucket);
  void Unpack(Bucket& bucket);

  Communicator& group_;
  const GradientOptions options_;
  std::vector<Array> arrays_;
  std::vector<Bucket> buckets_;
  size_t started_ = 0;  // Buckets of this step.
  std::vector<uint32_t> order_;
};

}  // namespace sheaf
