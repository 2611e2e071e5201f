// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the store said, kept until the raylet has time for it: the store calls from inside its own
// calls, where the raylet must not call back.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "object_store/arena/store_host.h"

namespace sheaf {

class StoreEvents final : public StoreObserver {
 public:
  void OnObjectSealed(const StoreObjectInfo&) override { ++sealed_; }
  void OnObjectGone(const StoreObjectInfo& object, bool) override { gone_.push_back(object.id); }
  void OnStoreViolation(ProcessId process, const std::string& what) override {
    violations_.emplace_back(process, what);
  }

  std::vector<ObjectId> TakeGone() { return std::exchange(gone_, {}); }
  std::vector<std::pair<ProcessId, std::string>> TakeViolations() {
    return std::exchange(violations_, {});
  }
  uint64_t sealed() const { return sealed_; }

 private:
  uint64_t sealed_ = 0;
  std::vector<ObjectId> gone_;
  std::vector<std::pair<ProcessId, std::string>> violations_;
};

}  // namespace sheaf
