// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The place in the store into which the threads that bring the chunks of a pull write them. It can be
// taken away while they do: what they have not begun then is dropped, and what they have is broken
// off, so that no slow source holds the place. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "raylet/objects/block_source.h"

namespace sheaf {

class PullTarget {
 public:
  // Where what begins after this is written; null: nothing begins. True: no write is going on.
  bool PointTo(char* to) {
    const MutexLock lock(mutex_);
    data_ = to;
    if (to == nullptr) Interrupt();
    return writing_.empty();
  }
  void CloseAndWait() {
    const MutexLock lock(mutex_);
    data_ = nullptr;
    Interrupt();
    while (!writing_.empty()) written_.Wait(mutex_);
  }
  bool idle() {
    const MutexLock lock(mutex_);
    return writing_.empty();
  }
  // kDataLoss: the bytes, which are there now, are not those that were sent. kCancelled: nobody
  // wants them. Others: not all of them came.
  absl::Status Write(uint64_t offset, ReceivedBlock& block) {
    char* to = nullptr;
    {
      const MutexLock lock(mutex_);
      if (data_ == nullptr) return absl::CancelledError("nobody wants it any more");
      to = data_ + offset;
      writing_.push_back(&block);
    }
    const absl::Status written = block.CopyTo({to, block.size()});
    const MutexLock lock(mutex_);
    std::erase(writing_, &block);
    if (writing_.empty()) written_.NotifyAll();
    return written;
  }

 private:
  void Interrupt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (ReceivedBlock* const block : writing_) block->Interrupt();
  }

  Mutex mutex_;
  char* data_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null: nobody may begin to write.
  std::vector<ReceivedBlock*> writing_ ABSL_GUARDED_BY(mutex_);
  CondVar written_;  // Nobody writes.
};

}  // namespace sheaf
