// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the parts of the GCS share: the settings, and what they speak through.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/transport.h"
#include "base/version.h"
#include "gcs/command_pipeline.h"
#include "gcs/events/cluster_events.h"
#include "gcs/publisher.h"

namespace sheaf {

// GcsOptions::return_within of a head that was away: its nodes may have to find its new address.
constexpr Nanos kReturnToHead = 15 * kSecond;

struct GcsOptions {
  // Raylets of another are refused.
  std::string version = std::string(kSheafVersion);
  std::string cluster_id = {};  // 16 bytes; empty: the one on disk, or a new one.
  // The term is this, or one more than that on disk if that is larger (gcs/head_terms.h). By the
  // wall clock, in milliseconds, a database that was brought back from a backup has a later term
  // than those that the cluster has seen since.
  uint64_t least_term = 0;
  int64_t unix_ns_at_zero = 0;  // Wall time when the monotonic clock was 0; only a label.
  std::string address = {};     // Of the node that hosts the GCS; empty: a cluster of one.
  Nanos heartbeat_period = 250 * kMillisecond;
  Nanos suspect_after = kSecond;
  Nanos dead_after = 5 * kSecond;
  // Not shorter than dead_after: what a node has, that is on disk when the GCS starts, until it is
  // heard for the first time. It may have to find the way to another address.
  Nanos return_within = 5 * kSecond;
  // Shorter than dead_after: what a node hosts has stopped before it is replaced.
  Nanos lease = 4 * kSecond;
  Nanos repeat_after = kSecond;  // Orders to raylets that nobody has answered are given again.
  // Of each kind: dead nodes, ended jobs, dead actors, for listings and late questions.
  size_t max_remembered = 1000;
  size_t max_ended_submissions = 10'000;
  Nanos unused_package_after = 3600 * kSecond;
  // Users' keys, functions and packages, all together: they are in memory.
  uint64_t max_key_value_bytes = uint64_t{1} << 30;
};

// References to what GcsService owns or was given; all outlive its parts.
struct GcsContext {
  const GcsOptions& options;
  const Clock& clock;
  Transport& transport;
  CommandPipeline& pipeline;
  Publisher& publisher;
  const uint64_t& term;
  ClusterEvents& events;
};

}  // namespace sheaf
