// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who waits for slots of the table: processes for pages of them, in turn. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/arena/object_table.h"
#include "object_store/messages.h"
#include "object_store/server/recalls.h"
#include "object_store/server/refusals.h"

namespace sheaf {

class SlotQueue {
 public:
  struct Deps {  // All outlive this.
    const Clock& clock;
    Transport& transport;
    ObjectTable& table;
    Recalls& recalls;
    Refusals& refusals;
  };

  // `longest_wait`: nobody waits longer, whatever it asks for.
  SlotQueue(Nanos longest_wait, Deps deps) : longest_wait_(longest_wait), deps_(deps) {}

  // Is answered once, maybe at once.
  void OnRequest(ProcessId from, const SlotRequest& request);
  void OnProcessDied(ProcessId process);
  // Gives what there is, refuses those who have waited for too long, and asks for pages if somebody
  // waits still.
  void Serve();
  // A slot for a copy or a restored object. kNoSlot: none now; pages are asked for.
  uint32_t TakeOwnSlot();

  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    ProcessId process;
    SlotRequest request;
    Nanos deadline = 0;
  };

  const Nanos longest_wait_;
  const Deps deps_;
  std::deque<Waiting> waiting_;
};

}  // namespace sheaf
