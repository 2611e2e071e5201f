// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A Storage in memory: for tests and tests/sim, which keep its Disk across a restart of the GCS,
// and for clusters that may forget everything. Faults on request. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/executor.h"
#include "gcs/storage.h"

namespace sheaf {

class MemoryStorage final : public Storage {
 public:
  using Disk = std::map<std::pair<Table, std::string>, std::string>;
  // Both outlive the storage.
  MemoryStorage(Disk& disk, Executor& completions) : disk_(disk), completions_(completions) {}

  void Commit(WriteBatch batch, Done done) override {
    ++commits;
    if (hold) {
      held_.emplace_back(std::move(batch), std::move(done));
    } else {
      Finish(std::move(batch), std::move(done));
    }
  }
  absl::Status LoadAll(const Visitor& visit) override {
    for (const auto& [key, value] : disk_) visit(key.first, key.second, value);
    return absl::OkStatus();
  }
  bool read_only() const override { return full; }

  // Writes the oldest held batch; false: none is held. Destroying the storage instead loses them
  // all, as a crash does.
  bool ReleaseOne() {
    if (held_.empty()) return false;
    auto [batch, done] = std::move(held_.front());
    held_.pop_front();
    Finish(std::move(batch), std::move(done));
    return true;
  }
  void ReleaseAll() {
    while (ReleaseOne()) {
    }
  }

  bool hold = false;  // Batches wait for ReleaseOne.
  bool full = false;  // Batches fail.
  int commits = 0;

 private:
  void Finish(WriteBatch batch, Done done) {
    absl::Status status;
    if (full) {
      status = absl::ResourceExhaustedError("the disk of the GCS is full");
    } else {
      for (Write& write : batch) {
        const auto key = std::make_pair(write.table, std::move(write.key));
        if (write.value) {
          disk_[key] = *std::move(write.value);
        } else {
          disk_.erase(key);
        }
      }
    }
    completions_.Post([done = std::move(done), status] { done(status); });
  }

  Disk& disk_;
  Executor& completions_;
  std::deque<std::pair<WriteBatch, Done>> held_;
};

}  // namespace sheaf
