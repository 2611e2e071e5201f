// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// When the loops of a node were last seen at work, for who watches over it from outside: probes
// over HTTP (cli/service/health.h) and the service manager (cli/service/service_notifier.h).
#pragma once

#include <algorithm>
#include <atomic>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace sheaf::cli {

// Both turn, or speak, several times a second; a loaded machine may take seconds.
inline constexpr Nanos kLongestTurn = 10 * kSecond;
inline constexpr Nanos kLongestSilence = 5 * kSecond;  // Of a GCS that serves.
// Of a head's own GCS, which comes back by itself after a crash, with its disk.
inline constexpr Nanos kLongestReturn = 30 * kSecond;

// Thread-safe.
class Pulse {
 public:
  explicit Pulse(const Clock& clock) : clock_(clock) {}

  // After each turn of the raylet's loop.
  void LoopTurned() { turned_.store(clock_.Now(), std::memory_order_relaxed); }
  // At each word of the GCS.
  void GcsSpoke() { spoke_.store(clock_.Now(), std::memory_order_relaxed); }
  // A node that hosts its GCS is not well without it.
  void HostsGcs() { hosts_gcs_.store(true, std::memory_order_relaxed); }

  // For how long the GCS has said nothing; before its first word, since this was made.
  Nanos GcsSilence() const {
    return clock_.Now() - std::max(made_, spoke_.load(std::memory_order_relaxed));
  }

  // Each is OK, or kUnavailable and says what does not work.
  absl::Status Raylet() const {
    const Nanos turned = turned_.load(std::memory_order_relaxed);
    if (turned == 0) return absl::UnavailableError("the node starts");
    const Nanos since = clock_.Now() - turned;
    if (since < kLongestTurn) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("the node's loop has not turned for ", since / kSecond, " s"));
  }
  absl::Status Gcs(Nanos longest = kLongestSilence) const {
    if (spoke_.load(std::memory_order_relaxed) == 0) {
      return absl::UnavailableError("the GCS has not answered yet");
    }
    if (GcsSilence() < longest) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("the GCS was not heard for ", GcsSilence() / kSecond, " s"));
  }
  // What only an end of the node could mend. The GCS of another node is not.
  absl::Status Node() const {
    const absl::Status raylet = Raylet();
    return raylet.ok() && hosts_gcs_.load(std::memory_order_relaxed) ? Gcs(kLongestReturn) : raylet;
  }

 private:
  const Clock& clock_;
  const Nanos made_ = clock_.Now();
  std::atomic<Nanos> turned_ = 0;  // 0: not yet.
  std::atomic<Nanos> spoke_ = 0;
  std::atomic<bool> hosts_gcs_ = false;
};

}  // namespace sheaf::cli
