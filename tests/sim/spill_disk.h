// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The disk on which a simulated node spills: it keeps what was written, is full for a while, and
// now and then a write or a read fails. How long it takes is the matter of the executor that asks
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "object_store/arena/store_host.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class SpillDisk final : public SpillStorage {
 public:
  explicit SpillDisk(World& world) : world_(world) {}

  void Fill(Nanos until) { full_until_ = until; }
  absl::StatusOr<std::vector<SpillRecord>> Write(
      uint64_t file, std::span<const std::span<const std::byte>> pieces) override;
  absl::Status Read(const SpillRecord& record, uint64_t from, std::span<std::byte> to) override;
  void Remove(uint64_t file) override { files_.erase(file); }

 private:
  World& world_;
  Nanos full_until_ = 0;
  std::map<uint64_t, std::string> files_;
};

// Tells the oracle what a disk has lost, and hands all on to the raylet.
class LossObserver final : public StoreObserver {
 public:
  LossObserver(World& world, StoreObserver& next) : world_(world), next_(next) {}
  void OnObjectSealed(const StoreObjectInfo& object) override { next_.OnObjectSealed(object); }
  void OnObjectGone(const StoreObjectInfo& object, bool lost) override {
    if (lost) {
      world_.trace.Note(world_.now(), object.id.maker(), "loses", object.id.ToHex());
      world_.oracle.LostOnDisk(object.id);
    }
    next_.OnObjectGone(object, lost);
  }
  void OnStoreViolation(ProcessId process, const std::string& what) override {
    next_.OnStoreViolation(process, what);
  }

 private:
  World& world_;
  StoreObserver& next_;
};

}  // namespace sheaf::sim
