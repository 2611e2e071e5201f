// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/integration/faults/linearizable.h"

#include <algorithm>
#include <set>
#include <utility>

namespace faults {
namespace {

using Kind = KeyOperation::Kind;

// Whether `operation` may take effect on a key that holds `state`; then what it holds afterwards.
bool Apply(const KeyOperation& operation, uint64_t state, uint64_t* after) {
  *after = state;
  const bool answered = operation.answered != KeyOperation::kNever;
  switch (operation.kind) {
    case Kind::kPut:
      *after = operation.value;
      return true;
    case Kind::kPutIfAbsent:
      if (answered && operation.added != (state == 0)) return false;
      if (state == 0) *after = operation.value;
      return true;
    case Kind::kGet:
      return operation.value == state;
  }
  return false;
}

class Search {
 public:
  explicit Search(std::vector<KeyOperation> operations)
      : operations_(std::move(operations)), done_(operations_.size(), false) {
    left_ = static_cast<size_t>(std::count_if(
        operations_.begin(), operations_.end(),
        [](const KeyOperation& operation) { return operation.answered != KeyOperation::kNever; }));
  }

  // `state`: what the key holds after those that are done. `first`: none before it is left.
  bool Run(uint64_t state, size_t first) {
    if (left_ == 0) return true;
    while (first < operations_.size() && done_[first]) ++first;
    if (!seen_.emplace(done_, state).second) return false;
    // Nothing may come before an operation that was answered before its own call.
    int64_t earliest = KeyOperation::kNever;
    for (size_t i = first; i < operations_.size() && operations_[i].called <= earliest; ++i) {
      if (!done_[i]) earliest = std::min(earliest, operations_[i].answered);
    }
    for (size_t i = first; i < operations_.size() && operations_[i].called <= earliest; ++i) {
      uint64_t after = 0;
      if (done_[i] || !Apply(operations_[i], state, &after)) continue;
      const bool answered = operations_[i].answered != KeyOperation::kNever;
      done_[i] = true;
      left_ -= answered ? 1 : 0;
      if (Run(after, first)) return true;
      done_[i] = false;
      left_ += answered ? 1 : 0;
    }
    return false;
  }

 private:
  const std::vector<KeyOperation> operations_;  // By the time of the call.
  std::vector<bool> done_;
  size_t left_ = 0;  // Answered ones that are not done.
  std::set<std::pair<std::vector<bool>, uint64_t>> seen_;
};

}  // namespace

bool IsLinearizable(const std::vector<KeyOperation>& history) {
  std::vector<KeyOperation> operations;
  for (const KeyOperation& operation : history) {
    if (operation.kind != Kind::kGet || operation.answered != KeyOperation::kNever)
      operations.push_back(operation);
  }
  std::stable_sort(
      operations.begin(), operations.end(),
      [](const KeyOperation& a, const KeyOperation& b) { return a.called < b.called; });
  return Search(std::move(operations)).Run(0, 0);
}

}  // namespace faults
