// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The programs of drivers on other nodes, fetched once and kept under the digest of their bytes.
// What lies at the same path here is taken if its bytes are the same.
//
// A file appears under its digest's name by a rename, after all of its bytes were compared with the
// digest: a crash leaves at most one `.partial`, which the next fetch overwrites. One fetch at a
// time, on a thread of its own, which begins with the first one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "proto/object.pb.h"
#include "raylet/objects/block_source.h"

namespace sheaf {

struct ProgramStoreOptions {
  std::string directory;                     // Made (0700) when it is needed.
  uint64_t max_bytes = uint64_t{4} << 30;    // Of all programs kept; the oldest go first.
  uint64_t block_bytes = uint64_t{4} << 20;  // Asked for at once.
  Nanos block_timeout = 10 * kSecond;
};

class ProgramStore {
 public:
  // Called once, on the store's thread: a descriptor to execute, or why there is none, in words
  // that name the program and the node.
  using Done = std::function<void(absl::StatusOr<UniqueFd>)>;

  // `blocks` outlives it.
  ProgramStore(ProgramStoreOptions options, BlockSource& blocks);
  ~ProgramStore() { Stop(); }

  // The program of `driver`, which lies at `path` on the driver's node. If that cannot be asked
  // (its number is 0: it is dead; or it has forgotten the driver), what lies at `path` here. Any
  // thread.
  void Find(ProcessId driver, std::string path, Done done);
  // No Done is running or will be called when it returns. Idempotent.
  void Stop();

 private:
  struct Answer {
    proto::BlockHead head;
    std::string bytes;
  };
  // What one request waits for. Shared with the links, which may answer when nobody waits any more.
  struct Wait;

  absl::StatusOr<UniqueFd> FindOnThread(ProcessId driver, const std::string& path);
  absl::StatusOr<Answer> Ask(ProcessId driver, const std::string& file, uint64_t offset,
                             uint64_t length, Nanos timeout);
  absl::Status Fetch(ProcessId driver, const proto::BlockHead& wanted, const std::string& to);
  absl::Status MakeRoom(uint64_t size_bytes) const;

  const ProgramStoreOptions options_;
  BlockSource& blocks_;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Wait> waiting_ ABSL_GUARDED_BY(mutex_);  // Of the request that is under way.
  std::unique_ptr<ThreadExecutor> thread_;  // Made under the mutex, and never replaced.
};

}  // namespace sheaf
