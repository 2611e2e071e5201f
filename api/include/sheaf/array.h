// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Arrays of numbers, read where they lie: in the node's shared memory, without a copy.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sheaf/internal/type_traits.h"

namespace sheaf::inline v1 {

// An immutable array of numbers that keeps its memory: copies share it, and the object that it
// belongs to stays in the store while one of them lives. A value of type std::vector<T> can be read
// as an Array<T>, and the other way round.
template <class T>
class Array {
  static_assert(internal::Number<T>, "sheaf::Array holds numbers");

 public:
  using value_type = T;  // For code that is generic over containers.

  Array() = default;  // Empty.
  // Takes the vector over, without a copy.
  Array(std::vector<T> values) {
    auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    values_ = *kept;
    keep_ = std::move(kept);
  }
  // `keep` holds the memory of `values`.
  Array(std::span<const T> values, std::shared_ptr<const void> keep)
      : values_(values), keep_(std::move(keep)) {}

  // As of a std::span. What they return is valid while this Array, or a copy of it, lives.
  const T* data() const noexcept { return values_.data(); }
  size_t size() const noexcept { return values_.size(); }
  bool empty() const noexcept { return values_.empty(); }
  const T& operator[](size_t index) const noexcept { return values_[index]; }
  const T* begin() const noexcept { return values_.data(); }
  const T* end() const noexcept { return values_.data() + values_.size(); }
  std::span<const T> span() const noexcept { return values_; }
  operator std::span<const T>() const noexcept { return values_; }
  // A copy that may be changed.
  std::vector<T> ToVector() const { return std::vector<T>(begin(), end()); }

 private:
  std::span<const T> values_;
  std::shared_ptr<const void> keep_;
};

}  // namespace sheaf::inline v1
