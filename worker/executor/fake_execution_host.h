// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests of what executes calls: a host without a store, which sends nothing anywhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/executor/execution.h"

namespace sheaf {

class FakeExecutionHost : public ExecutionHost {
 public:
  absl::StatusOr<MutableBuffer> CreateValue(ObjectId, uint32_t, size_t,
                                            std::span<const ObjectHandle>) override {
    return absl::ResourceExhaustedError("no store in this test");
  }
  absl::StatusOr<ObjectLocation> StoreValue(ObjectId, uint32_t, std::string_view,
                                            std::span<const ObjectHandle>) override {
    return absl::ResourceExhaustedError("no store in this test");
  }
  std::optional<ObjectLocation> StoreIfBehind(const CallExecution&, ObjectId, std::string_view,
                                              std::span<const ObjectHandle>) override {
    return std::nullopt;
  }
  ObjectLocation SealValue(MutableBuffer) override { return {}; }
  std::vector<NestedReference> Outgoing(std::span<const ObjectHandle>) override { return {}; }
  absl::Status SendItem(CallExecution&, const std::string&,
                        std::span<const ObjectHandle>) override {
    return absl::OkStatus();
  }
  ObjectId NextStoredName() override { return {}; }
  void Ended(CallExecution*) override {}
};

}  // namespace sheaf
