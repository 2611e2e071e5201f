// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What people should hear of that happens on this node: told to the GCS as events of the cluster
// (gcs/events/cluster_events.h). Soft, and bounded: the same words once a minute, so many a second. Pure;
// one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "scheduling/lease_spec.h"

namespace sheaf {

class EventReporter {
 public:
  static constexpr Nanos kSameAgain = 60 * kSecond;
  static constexpr size_t kMaxRemembered = 256;
  static constexpr int kMostPerSecond = 20;

  // Both outlive it.
  EventReporter(Clock& clock, GcsLink& gcs) : clock_(clock), gcs_(gcs) {}

  // A process is dead that ran `spec`; nullptr: it had no lease. Ends that somebody wanted are no
  // events.
  void OnDied(const LeaseSpec* spec, int32_t os_pid, const proto::Death& death);
  // Nothing can satisfy a demand now.
  void OnInfeasible(const LeaseSpec* spec, const std::string& words);
  // The store has failed so often to write or read spilled objects, since its start.
  void OnDiskFailures(uint64_t failures);

 private:
  void Report(proto::EventRow::Kind kind, proto::EventRow::Severity severity, std::string words,
              std::string id = "");

  Clock& clock_;
  GcsLink& gcs_;
  absl::flat_hash_map<std::string, Nanos> said_;  // What, and when.
  Nanos second_end_ = 0;
  int in_second_ = 0;
  uint64_t dropped_ = 0;  // Since the last that was told.
  uint64_t disk_failures_ = 0;
};

}  // namespace sheaf
