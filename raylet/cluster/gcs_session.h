// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// This node as a member of the cluster: it says to the GCS that it is there, by heartbeats with what
// is free and wanted here, until the GCS declares it dead or it leaves; and when the GCS begins
// another term, or its link is back, it says anew how things stand. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/resources.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/node_tables.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class GcsSession {
 public:
  // The rest of the node.
  class Node {
   public:
    virtual ~Node() = default;
    // All that a GCS has to know that has forgotten what is not durable.
    virtual void FillReport(proto::NodeReport* report) const = 0;
    // A submitted command runs here.
    virtual bool HasEntrypoints() const = 0;
    // The GCS counts on this node until `until`; it gave it `length` more.
    virtual void OnNodeLease(Nanos until, Nanos length) = 0;
    // The GCS has declared this node dead.
    virtual void OnFenced() = 0;
  };
  // All outlive it.
  struct Deps {
    const RayletOptions& options;
    Clock& clock;
    Transport& transport;
    GcsLink& gcs;
    const ClusterView& view;
    const LeaseQueue& queue;
    const AttachedProcesses& processes;
    Node& node;
    std::function<void()> follow_again;  // What is followed has to be asked for anew.
  };
  explicit GcsSession(Deps deps) : deps_(std::move(deps)), term_(deps_.options.gcs_term) {}
  GcsSession(const GcsSession&) = delete;
  GcsSession& operator=(const GcsSession&) = delete;

  // The link to the GCS is up, or silent; `term` is that of the GCS at its other end. While it is
  // down nothing is sent; what the link itself had taken by then arrives when it is back.
  void OnLink(bool up, uint64_t term);
  // The GCS has begun `term`. A repeat changes nothing.
  void OnRestarted(uint64_t term);
  void OnHeartbeatReply(const proto::HeartbeatReply& reply);
  // `process` of this node is dead.
  void ReportDeath(ProcessId process, const proto::Death& death);
  // The node is over, after an orderly stop: from now on it says no more of itself.
  void Leave();
  void Tick();

  // The node takes no new work, and nothing runs there any more.
  bool IsDrained() const;
  bool fenced() const { return fenced_; }
  bool has_left() const { return has_left_; }  // The GCS has recorded it.

 private:
  void AskAgain(bool report);
  void SendHeartbeat(Nanos now);
  Resources Demand() const;

  const Deps deps_;
  uint64_t term_;
  bool report_due_ = false;  // Deaths while the GCS was away, too many to be kept one by one.
  uint64_t last_heartbeat_ = 0;
  absl::btree_map<uint64_t, Nanos> heartbeats_sent_;  // Not answered yet.
  Nanos next_heartbeat_ = 0;
  Resources last_available_;  // As the last heartbeat said.
  bool leaving_ = false;
  bool has_left_ = false;
  bool fenced_ = false;
};

}  // namespace sheaf
