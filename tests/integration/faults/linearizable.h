// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Whether what clients saw of one key can be explained by a single order of its operations in which
// each takes effect between its call and its answer. Algorithm: Wing and Gong, "Testing and
// Verifying Concurrent Objects" (1993), with the cache of seen configurations of Lowe, "Testing for
// linearizability" (2017).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace faults {

struct KeyOperation {
  enum class Kind : uint8_t { kPut, kPutIfAbsent, kGet };
  static constexpr int64_t kNever = INT64_MAX;

  Kind kind = Kind::kGet;
  uint64_t value = 0;  // Written, or read; 0: nothing was there. No two writes write the same.
  bool added = false;  // kPutIfAbsent: the answer.
  int64_t called = 0;  // On one clock for all clients.
  int64_t answered = kNever;  // kNever: no answer came; it may have taken effect, or may still.
};

// The key is absent at first. Operations without an answer may be left out of the order; reads
// without one say nothing and are ignored.
bool IsLinearizable(const std::vector<KeyOperation>& history);

// A history that threads add to.
class KeyHistory {
 public:
  void Add(const KeyOperation& operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(operation);
  }
  std::vector<KeyOperation> operations() const {
    const std::lock_guard lock(mutex_);
    return operations_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<KeyOperation> operations_;
};

}  // namespace faults
