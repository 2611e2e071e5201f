// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What has happened in the cluster, for people: the last 10,000 events. Soft: a GCS that starts
// again begins anew. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>

#include "base/clock.h"
#include "base/ids.h"
#include "proto/gcs.pb.h"

namespace sheaf {

class ClusterEvents {
 public:
  static constexpr size_t kKept = 10'000;
  static constexpr size_t kMaxMessage = 1024;  // Bytes; what is longer is cut.

  // `clock` and `term` outlive it. `unix_ns_at_zero`: wall time when the clock was 0.
  ClusterEvents(const Clock& clock, int64_t unix_ns_at_zero, const uint64_t& term)
      : clock_(clock), unix_ns_at_zero_(unix_ns_at_zero), term_(term) {}

  // Of what the event is about, what there is.
  struct About {
    NodeNumber node = 0;
    JobNumber job = 0;
    std::string_view id = {};  // An actor's, in hexadecimal, or a submission's.
  };
  void Add(proto::EventRow::Kind kind, proto::EventRow::Severity severity, std::string_view message,
           const About& about);
  // What the raylet of `node` has seen. An event of a kind that it cannot know is dropped.
  void OnReport(NodeNumber node, const proto::EventRow& event);
  // Those that fit, the oldest first: with `after` the first ones behind it, else the last ones.
  void List(const proto::ListEvents& request, proto::EventList* answer) const;

 private:
  const Clock& clock_;
  const int64_t unix_ns_at_zero_;
  const uint64_t& term_;
  uint64_t added_ = 0;
  std::deque<proto::EventRow> events_;
};

}  // namespace sheaf
