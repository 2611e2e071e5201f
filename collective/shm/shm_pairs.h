// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Messages from one rank to another over shared memory. The sender describes message n of the pair
// in its sends[receiver] and stores `sequence` = n with release. From an array in its arena the
// receiver copies straight; a private one goes through the pair's slots in chunks, which the sender
// counts in `staged` and the receiver in `taken`. The receiver stores `finished` = n at the end;
// the sender waits for that before it describes n + 1, and before it gives an array in the arena
// back to its caller. So up to two chunks of private memory are sent without waiting for the
// receiver.
#pragma once

#include <cstdint>

#include "collective/shm/shm_group.h"

namespace sheaf {

// One end of one pair; one message at a time: the caller holds a lock.
class ShmSender {
 public:
  ShmSender(ShmGroup& group, int receiver);
  absl::Status Run(const Operation& operation, bool interruptible);

 private:
  ShmGroup& group_;
  const int receiver_;
  CallRecord& record_;
  const ReceiveRecord& answer_;
  WaitLine line_;
  uint64_t sequence_ = 0;
  uint64_t chunks_ = 0;
  bool reserved_ = false;  // The memory of the pair's slots.
};

class ShmReceiver {
 public:
  ShmReceiver(ShmGroup& group, int sender);
  absl::Status Run(const Operation& operation, bool interruptible);

 private:
  ShmGroup& group_;
  const int sender_;
  const CallRecord& record_;
  ReceiveRecord& answer_;
  WaitLine line_;
  uint64_t sequence_ = 0;
  uint64_t chunks_ = 0;
};

}  // namespace sheaf
