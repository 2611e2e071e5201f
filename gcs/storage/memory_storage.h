// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A Storage in memory: for tests and tests/sim, which keep its Disk across a restart of the GCS,
// and for clusters that may forget everything. Faults on request. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/executor.h"
#include "gcs/storage/storage.h"

namespace sheaf {

class MemoryStorage final : public Storage {
 public:
  using Disk = std::map<std::pair<Table, std::string>, std::string>;
  // Both outlive the storage.
  MemoryStorage(Disk& disk, Executor& completions) : disk_(disk), completions_(completions) {}

  void Commit(WriteBatch batch, Done done) override {
    Take({std::move(batch), std::move(done), /*vital=*/false});
  }
  void CommitVital(WriteBatch batch, Done done) override {
    Take({std::move(batch), std::move(done), /*vital=*/true});
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
    Held first = std::move(held_.front());
    held_.pop_front();
    Finish(std::move(first));
    return true;
  }
  void ReleaseAll() {
    while (ReleaseOne()) {
    }
  }

  bool hold = false;        // Batches wait for ReleaseOne.
  bool full = false;        // Batches fail, but for vital ones.
  bool no_reserve = false;  // They too.
  int commits = 0;

 private:
  struct Held {
    WriteBatch batch;
    Done done;
    bool vital;
  };
  void Take(Held held) {
    ++commits;
    if (hold) {
      held_.push_back(std::move(held));
    } else {
      Finish(std::move(held));
    }
  }
  void Finish(Held held) {
    absl::Status status;
    if (full && (!held.vital || no_reserve)) {
      status = absl::ResourceExhaustedError("the disk of the GCS is full");
    } else {
      for (Write& write : held.batch) {
        const auto key = std::make_pair(write.table, std::move(write.key));
        if (write.value) {
          disk_[key] = *std::move(write.value);
        } else {
          disk_.erase(key);
        }
      }
    }
    completions_.Post([done = std::move(held.done), status] { done(status); });
  }

  Disk& disk_;
  Executor& completions_;
  std::deque<Held> held_;
};

}  // namespace sheaf
