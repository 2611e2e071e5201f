// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The place in the store into which the threads that bring the chunks of a pull write them. It can be
// taken away while they do: what they have not begun then is dropped. Thread-safe.
#pragma once

#include <cstdint>

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
    return writing_ == 0;
  }
  void CloseAndWait() {
    const MutexLock lock(mutex_);
    data_ = nullptr;
    while (writing_ != 0) written_.Wait(mutex_);
  }
  bool idle() {
    const MutexLock lock(mutex_);
    return writing_ == 0;
  }
  // kDataLoss: the bytes, which are there now, have another checksum than `crc`. kCancelled: nobody
  // wants them. Others: not all of them came.
  absl::Status Write(uint64_t offset, ReceivedBlock& block, uint32_t crc) {
    char* to = nullptr;
    {
      const MutexLock lock(mutex_);
      if (data_ == nullptr) return absl::CancelledError("nobody wants it any more");
      to = data_ + offset;
      ++writing_;
    }
    const absl::StatusOr<uint32_t> written = block.CopyTo({to, block.size()});
    const MutexLock lock(mutex_);
    if (--writing_ == 0) written_.NotifyAll();
    if (!written.ok()) return written.status();
    return *written == crc ? absl::OkStatus() : absl::DataLossError("its checksum is wrong");
  }

 private:
  Mutex mutex_;
  char* data_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null: nobody may begin to write.
  uint32_t writing_ ABSL_GUARDED_BY(mutex_) = 0;
  CondVar written_;  // Nobody writes.
};

}  // namespace sheaf
