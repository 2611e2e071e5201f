// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the threads that bring the chunks of a pull put them: the place in the store, or, until there
// is one, memory of the chunk's own. Both can be taken away while they do, from all or from one: what
// has not begun then is dropped, and what has is broken off, so that no slow source holds the place.
// What one question brings is put nowhere while the answer to another is still written there.
// Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "raylet/objects/block_source.h"

namespace sheaf {

class PullTarget {
 public:
  // Where Write puts what begins after this.
  void PointTo(char* to) {
    const MutexLock lock(mutex_);
    data_ = to;
  }
  // Nothing begins any more. True: nothing is going on.
  bool Close() {
    const MutexLock lock(mutex_);
    CloseNow();
    return coming_.empty();
  }
  void CloseAndWait() {
    const MutexLock lock(mutex_);
    CloseNow();
    while (!coming_.empty()) ended_.Wait(mutex_);
  }
  // What question number `ask` brings is not wanted.
  void Abandon(uint64_t ask) {
    const MutexLock lock(mutex_);
    abandoned_.push_back(ask);
    for (const Coming& coming : coming_) {
      if (coming.ask == ask) coming.block->Interrupt();
    }
    ended_.NotifyAll();
  }
  bool idle() {
    const MutexLock lock(mutex_);
    return coming_.empty();
  }
  struct Progress {
    uint64_t arrived, size;
  };
  // nullopt: nothing of the answer to `ask` is coming now.
  std::optional<Progress> ProgressOf(uint64_t ask) {
    const MutexLock lock(mutex_);
    for (const Coming& coming : coming_) {
      if (coming.ask == ask) return Progress{coming.block->arrived(), coming.block->size()};
    }
    return std::nullopt;
  }

  // kCancelled: nobody wants it. Others: not all of its bytes came.
  absl::Status Keep(uint64_t ask, ReceivedBlock& block) {
    {
      const MutexLock lock(mutex_);
      if (!Wants(ask)) return Unwanted();
      coming_.push_back({ask, kNowhere, &block});
    }
    const absl::Status kept = block.Keep();
    End(block);
    return kept;
  }
  // The same, and kDataLoss: the bytes, which are there now, are not those that were sent.
  absl::Status Write(uint64_t ask, uint64_t offset, ReceivedBlock& block) {
    char* to = nullptr;
    {
      const MutexLock lock(mutex_);
      while (Wants(ask) && IsWritten(offset)) ended_.Wait(mutex_);  // By one that is broken off.
      if (!Wants(ask) || data_ == nullptr) return Unwanted();
      to = data_ + offset;
      coming_.push_back({ask, offset, &block});
    }
    const absl::Status written = block.CopyTo({to, block.size()});
    End(block);
    return written;
  }

 private:
  static constexpr uint64_t kNowhere = UINT64_MAX;
  struct Coming {
    uint64_t ask;
    uint64_t offset;
    ReceivedBlock* block;
  };

  static absl::Status Unwanted() { return absl::CancelledError("nobody wants it any more"); }
  bool Wants(uint64_t ask) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_ && std::find(abandoned_.begin(), abandoned_.end(), ask) == abandoned_.end();
  }
  bool IsWritten(uint64_t offset) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::any_of(coming_.begin(), coming_.end(),
                       [&](const Coming& coming) { return coming.offset == offset; });
  }
  void CloseNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    closed_ = true;
    data_ = nullptr;
    for (const Coming& coming : coming_) coming.block->Interrupt();
    ended_.NotifyAll();
  }
  void End(const ReceivedBlock& block) {
    const MutexLock lock(mutex_);
    std::erase_if(coming_, [&](const Coming& coming) { return coming.block == &block; });
    ended_.NotifyAll();
  }

  Mutex mutex_;
  char* data_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null: there is no place yet.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Coming> coming_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> abandoned_ ABSL_GUARDED_BY(mutex_);
  CondVar ended_;  // One of coming_ did, or is not waited for.
};

}  // namespace sheaf
