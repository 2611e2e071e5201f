// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The traffic of a process's rings, on its metrics page.
#pragma once

#include "metrics/page.h"
#include "shm/mailbox.h"

namespace sheaf::metrics {

inline void PublishMailbox(const MailboxCounts& counts, Page& page) {
  const auto set = [&page](CounterId id, uint64_t value) {
    page.counter(id).store(value, std::memory_order_relaxed);
  };
  set(CounterId::kFramesWork, counts.work_frames);
  set(CounterId::kFramesControl, counts.control_frames);
  set(CounterId::kFrameBytes, counts.bytes);
  set(CounterId::kFramesQueued, counts.waited);
  set(CounterId::kDoorbellWakes, counts.wakes);
}

}  // namespace sheaf::metrics
