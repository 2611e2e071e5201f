// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Named places where a test may kill, delay or fail a real process. Unset they cost one relaxed
// load.
//   SHEAF_FAILPOINT=store.seal:kill@3,gcs.commit:error@1,raylet.grant:sleep(200)@2,store.seal:kill%0.01:4711
// NAME:ACTION@N acts at the N-th time (from 1) that this process passes NAME, once;
// NAME:ACTION%P:SEED each time with probability P, drawn from SEED and the salt of the process, so
// that equal seeds repeat a run. Actions: kill (SIGKILL to itself), exit (_exit(77), no
// destructors), sleep(MS), error (the site's own error path). A name may have several entries.
// Thread-safe after ArmFailpoints.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// Sets what the text above describes; empty disarms. `salt`: what tells this process from others
// started with the same text, its process number for example. kInvalidArgument: not of this form;
// nothing changes. Call it before other threads pass failpoints.
absl::Status ArmFailpoints(std::string_view text, uint64_t salt);

namespace internal {
inline std::atomic<bool> failpoints_armed{false};
absl::Status PassFailpoint(std::string_view name);
}  // namespace internal

}  // namespace sheaf

// As a statement; an `error` entry does nothing here.
#define SHEAF_FAILPOINT(name)                                                  \
  do {                                                                         \
    if (::sheaf::internal::failpoints_armed.load(std::memory_order_relaxed)) { \
      ::sheaf::internal::PassFailpoint(name).IgnoreError();                    \
    }                                                                          \
  } while (false)

// As an expression of type absl::Status: kUnavailable when an `error` entry acts.
#define SHEAF_FAILPOINT_STATUS(name)                                   \
  (::sheaf::internal::failpoints_armed.load(std::memory_order_relaxed) \
       ? ::sheaf::internal::PassFailpoint(name)                        \
       : ::absl::OkStatus())
