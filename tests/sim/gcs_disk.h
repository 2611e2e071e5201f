// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The disk of a simulated GCS: batches get to it in order, each after a while; a crash takes those
// that are under way, from some batch on.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "gcs/storage/memory_storage.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class GcsDisk final : public Storage {
 public:
  // Runs something then, or later where the machine stands still.
  using At = std::function<void(Nanos when, std::function<void()> work)>;
  // `rows` and `full_until` (until then only what is vital gets there) outlive it.
  GcsDisk(World& world, At at, MemoryStorage::Disk& rows, const Nanos& full_until)
      : world_(world), at_(std::move(at)), rows_(rows), full_until_(full_until) {}
  ~GcsDisk() override { *alive_ = false; }

  void Commit(WriteBatch batch, Done done) override {
    CommitOne(std::move(batch), std::move(done), /*vital=*/false);
  }
  // What the disk has in reserve is never used up.
  void CommitVital(WriteBatch batch, Done done) override {
    CommitOne(std::move(batch), std::move(done), /*vital=*/true);
  }
  absl::Status LoadAll(const Visitor& visit) override;
  bool read_only() const override { return world_.now() < full_until_; }
  // The machine keeps what it had written when the process died.
  void Crash();

  std::function<void()> on_commit;   // Runs once, in the middle of the next.
  std::function<void()> on_durable;  // Runs once, behind the next.

 private:
  struct Pending {
    WriteBatch batch;
    Done done;
    bool acknowledged;
    bool vital;
  };
  void CommitOne(WriteBatch batch, Done done, bool vital);
  void Write(WriteBatch& batch);
  void FinishOne();

  World& world_;
  const At at_;
  MemoryStorage::Disk& rows_;
  const Nanos& full_until_;
  std::deque<Pending> pending_;
  Nanos last_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sheaf::sim
