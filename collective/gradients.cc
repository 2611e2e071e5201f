// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collective/reduce_ops.h"

namespace sheaf {
namespace {

constexpr size_t kAlign = 16;  // Floats: arrays begin on cache lines.

// One value that kTopK sends.
struct Kept {
  uint32_t index;
  float value;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Make(
    Communicator& group, std::vector<GradientArray> arrays, const GradientOptions& options) {
  if (arrays.empty()) return absl::InvalidArgumentError("no arrays: want at least one");
  if (options.op != ReduceOp::kSum && options.op != ReduceOp::kAverage) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients are reduced to their sum or average, not ", NameOf(options.op)));
  }
  if (!(options.keep > 0 && options.keep <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("keep = ", options.keep, ": want (0, 1]"));
  }
  std::unique_ptr<GradientReducer> reducer(new GradientReducer(group, options));
  std::set<std::string> names;
  for (GradientArray& array : arrays) {
    if (array.count == 0) {
      return absl::InvalidArgumentError(absl::StrCat("the array '", array.name, "' has no values"));
    }
    if (!names.insert(array.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two arrays are named '", array.name, "'"));
    }
    std::vector<Bucket>& buckets = reducer->buckets_;
    const size_t size = (array.count + kAlign - 1) / kAlign * kAlign;
    if (buckets.empty() || (buckets.back().count + size) * sizeof(float) > options.bucket_bytes) {
      buckets.emplace_back();
    }
    Bucket& bucket = buckets.back();
    reducer->arrays_.push_back(
        {std::move(array.name), array.count, buckets.size() - 1, bucket.count});
    bucket.count += size;
    ++bucket.arrays;
  }
  for (Bucket& bucket : reducer->buckets_) {
    if (bucket.count > UINT32_MAX)
      return absl::InvalidArgumentError("an array of over 2^32 values");
    bucket.waiting = bucket.arrays;
    SHEAF_ASSIGN_OR_RETURN(bucket.memory, group.Allocate(bucket.count * sizeof(float)));
    std::fill_n(bucket.data(), bucket.count, 0.0f);
    if (options.compression == Compression::kFloat16) {
      SHEAF_ASSIGN_OR_RETURN(bucket.packed, group.Allocate(bucket.count * sizeof(uint16_t)));
    } else if (options.compression == Compression::kTopK) {
      bucket.kept = std::max<size_t>(
          1, static_cast<size_t>(std::llround(static_cast<double>(bucket.count) * options.keep)));
      SHEAF_ASSIGN_OR_RETURN(bucket.packed, group.Allocate(bucket.kept * sizeof(Kept)));
      SHEAF_ASSIGN_OR_RETURN(
          bucket.gathered,
          group.Allocate(bucket.kept * sizeof(Kept) * static_cast<size_t>(group.world_size())));
      bucket.residual.assign(bucket.count, 0.0f);
    }
  }
  for (Array& array : reducer->arrays_) {
    array.data = reducer->buckets_[array.bucket].data() + array.offset;
  }
  return reducer;
}

GradientReducer::~GradientReducer() {
  for (Bucket& bucket : buckets_) {
    while (bucket.work != nullptr && !bucket.work->Done()) bucket.work->Wait(kSecond).IgnoreError();
  }
}

int GradientReducer::IndexOf(const std::string& name) const {
  for (size_t index = 0; index < arrays_.size(); ++index) {
    if (arrays_[index].name == name) return static_cast<int>(index);
  }
  return -1;
}

absl::Status GradientReducer::MarkReady(size_t index) {
  if (index >= arrays_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no array ", index, " among ", arrays_.size()));
  }
  Array& array = arrays_[index];
  if (array.ready) {
    return absl::FailedPreconditionError(
        absl::StrCat("the array '", array.name, "' is ready already: call Finish first"));
  }
  array.ready = true;
  --buckets_[array.bucket].waiting;
  // In their order, which is the same on all ranks.
  while (started_ < buckets_.size() && buckets_[started_].waiting == 0) Start(buckets_[started_++]);
  return absl::OkStatus();
}

void GradientReducer::Start(Bucket& bucket) {
  Pack(bucket);
  Operation operation;
  operation.kind = CollectiveKind::kAllReduce;
  operation.type = DataType::kFloat32;
  operation.op = options_.op;
  operation.input = operation.output = bucket.memory.get();
  operation.count = bucket.count;
  operation.timeout = options_.timeout;
  if (options_.compression == Compression::kFloat16) {
    operation.type = DataType::kFloat16;
    operation.input = operation.output = bucket.packed.get();
  } else if (options_.compression == Compression::kTopK) {
    operation.kind = CollectiveKind::kAllGather;
    operation.type = DataType::kUint8;
    operation.count = bucket.kept * sizeof(Kept);
    operation.input = bucket.packed.get();
    operation.output = bucket.gathered.get();
  }
  bucket.work = group_.Start(operation);
}

void GradientReducer::Pack(Bucket& bucket) {
  if (options_.compression == Compression::kFloat16) {
    FromFloat(DataType::kFloat16, bucket.data(), bucket.packed.get(), bucket.count);
  } else if (options_.compression == Compression::kTopK) {
    std::vector<float>& residual = bucket.residual;
    const float* const data = bucket.data();
    for (size_t i = 0; i < bucket.count; ++i) residual[i] += data[i];
    order_.resize(bucket.count);
    std::iota(order_.begin(), order_.end(), 0u);
    std::nth_element(
        order_.begin(), order_.begin() + static_cast<ptrdiff_t>(bucket.kept - 1), order_.end(),
        [&](uint32_t a, uint32_t b) { return std::abs(residual[a]) > std::abs(residual[b]); });
    auto* const kept = reinterpret_cast<Kept*>(bucket.packed.get());
    for (size_t i = 0; i < bucket.kept; ++i) {
      kept[i] = {order_[i], residual[order_[i]]};
      residual[order_[i]] = 0;
    }
  }
}

void GradientReducer::Unpack(Bucket& bucket) {
  if (options_.compression == Compression::kFloat16) {
    ToFloat(DataType::kFloat16, bucket.packed.get(), bucket.data(), bucket.count);
  } else if (options_.compression == Compression::kTopK) {
    const auto world = static_cast<size_t>(group_.world_size());
    const auto* const kept = reinterpret_cast<const Kept*>(bucket.gathered.get());
    const float scale = options_.op == ReduceOp::kAverage ? 1.0f / static_cast<float>(world) : 1.0f;
    std::fill_n(bucket.data(), bucket.count, 0.0f);
    for (size_t i = 0; i < bucket.kept * world; ++i) {
      // What came from another process is checked.
      if (kept[i].index < bucket.count) bucket.data()[kept[i].index] += kept[i].value * scale;
    }
  }
}

absl::Status GradientReducer::Finish() {
  for (size_t index = 0; index < arrays_.size(); ++index) {
    if (arrays_[index].ready) continue;
    SHEAF_RETURN_IF_ERROR(MarkReady(index));
  }
  absl::Status first;
  for (Bucket& bucket : buckets_) {
    absl::Status status = bucket.work->Wait(kForever);
    if (!bucket.work->Done()) return status;  // Interrupted; it may be called again.
    if (first.ok()) first = std::move(status);
  }
  SHEAF_RETURN_IF_ERROR(first);
  for (Bucket& bucket : buckets_) {
    Unpack(bucket);
    bucket.work = nullptr;
    bucket.waiting = bucket.arrays;
  }
  for (Array& array : arrays_) array.ready = false;
  started_ = 0;
  return absl::OkStatus();
}

std::vector<float> GradientReducer::Residual(size_t index) const {
  const Array& array = arrays_[index];
  const std::vector<float>& all = buckets_[array.bucket].residual;
  if (all.empty()) return {};
  const auto begin = all.begin() + static_cast<ptrdiff_t>(array.offset);
  return std::vector<float>(begin, begin + static_cast<ptrdiff_t>(array.count));
}

void GradientReducer::SetResidual(size_t index, const std::vector<float>& values) {
  const Array& array = arrays_[index];
  std::vector<float>& all = buckets_[array.bucket].residual;
  if (all.empty()) return;
  std::copy_n(values.begin(), std::min(values.size(), array.count),
              all.begin() + static_cast<ptrdiff_t>(array.offset));
}

}  // namespace sheaf
