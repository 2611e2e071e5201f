// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reads parts of objects that are on disk, for those who want no more of them: into memory of its
// own, while the objects stay where they are. The bytes that are read or held at a time are bounded;
// who comes then waits in line. One thread; the reading happens on the disk's executor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "object_store/arena/object_table.h"
#include "object_store/arena/store_host.h"
#include "object_store/server/object_index.h"
#include "object_store/server/spill_files.h"
#include "object_store/server/store_loop.h"

namespace sheaf {

class RangeReader {
 public:
  struct Deps {  // All outlive this; `spill` is called on `disk`.
    const Clock& clock;
    SpillStorage& spill;
    Executor& disk;
    StoreLoop& loop;
    SpillFiles& files;
    ObjectIndex& index;
  };
  struct Range {
    std::span<const char> bytes;
    std::shared_ptr<const void> hold;  // While it lives `bytes` may be read, on any thread.
  };
  using Done = std::function<void(absl::StatusOr<Range>)>;
  struct Counts {  // Since the start.
    uint64_t reads = 0;
    uint64_t bytes = 0;
    uint64_t lost = 0;  // Objects whose copy on disk was damaged.
  };

  struct Options {
    uint64_t most_bytes = 0;  // Of all ranges that are read or held; a larger one goes alone.
    uint64_t most_waiting_bytes = 0;  // Of those in line.
    Nanos patience = 0;               // Nobody waits longer for an answer.
  };

  RangeReader(Options options, Deps deps) : options_(options), deps_(deps) {}

  // `record` has a copy on disk; the range lies within it. Calls `done` once, on the loop.
  // kNotFound: it was freed meanwhile; kDataLoss: the disk lost it, and so has the index;
  // kUnavailable: ask again, as it is in memory by now, or too much is in line.
  void Read(std::shared_ptr<ObjectRecord> record, uint64_t from, uint64_t bytes, Done done);
  const Counts& counts() const { return counts_; }

 private:
  struct Waiting {
    std::shared_ptr<ObjectRecord> record;
    uint64_t from = 0;
    uint64_t bytes = 0;
    Nanos until = 0;
    Done done;
  };
  void BeginNext();
  void Begin(Waiting read);
  void OnRead(const Waiting& read, std::shared_ptr<std::byte[]> memory,
              const absl::Status& outcome);
  void Release(uint64_t bytes);

  const Options options_;
  const Deps deps_;
  std::deque<Waiting> line_;
  uint64_t waiting_bytes_ = 0;
  uint64_t held_bytes_ = 0;
  Counts counts_;
};

}  // namespace sheaf
