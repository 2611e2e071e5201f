// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// This node as one of a cluster: all that passes between it and the GCS, for itself and for its
// processes, what it knows of the other nodes by that, and what it does when neither is heard. Pure;
// one thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/cluster_follower.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/cluster/gcs_session.h"
#include "raylet/cluster/node_links.h"
#include "raylet/cluster/router.h"
#include "raylet/cluster/silence_watch.h"
#include "raylet/death_register.h"
#include "raylet/node_tables.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class ClusterMembership {
 public:
  // The rest of the node.
  class Node : public ClusterFollower::Observer, public GcsSession::Node {
   public:
    // The GCS wants something of this raylet, other than of its membership.
    virtual void OnGcsEvent(const proto::GcsEvent& event) = 0;
  };
  // All outlive it.
  struct Deps {
    const RayletOptions& options;
    Clock& clock;
    Transport& transport;
    NodeLinks& links;
    LeaseQueue& queue;
    ClusterView& view;
    const AttachedProcesses& processes;
    DeathRegister& deaths;
    Node& node;
  };
  explicit ClusterMembership(const Deps& deps);
  ClusterMembership(const ClusterMembership&) = delete;
  ClusterMembership& operator=(const ClusterMembership&) = delete;

  // Asks the GCS for what it follows of the cluster. Once, at the start.
  void Follow() { follower_.Follow(); }
  // kGcsReply or kGcsEvent, for this raylet or for one of its processes. False: it was not for the
  // raylet, or cannot be read.
  bool OnGcsFrame(const Frame& frame);
  // kGcsRequest of a process of this node. While the GCS is away the process keeps it, and asks
  // again.
  absl::Status OnGcsRequest(ProcessId from, const Frame& frame);
  // The link to the GCS is up, or silent; `term` is that of the GCS at its other end.
  void OnGcsLink(bool up, uint64_t term);
  // The link to `node` is up, or silent.
  void OnNodeLink(NodeNumber node, bool up);
  // `node` has spoken, as ClusterFollower::OnHeard.
  void OnHeard(NodeNumber node) { follower_.OnHeard(node); }
  void OnNodeDead(NodeNumber node) { silence_.OnNodeDead(node); }
  // A process has come: it hears what the others have heard.
  void OnAttached(ProcessId process) { silence_.OnAttached(process); }
  void ReportDeath(ProcessId process, const proto::Death& death) {
    session_.ReportDeath(process, death);
  }
  // The node is over, after an orderly stop: from now on it says no more of itself.
  void Leave() { session_.Leave(); }
  void Tick();

  GcsLink& gcs() { return gcs_; }
  ClusterFollower& follower() { return follower_; }
  // The node takes no new work, and nothing runs there any more: no task, actor, driver or command.
  bool IsDrained() const { return session_.IsDrained(); }
  bool fenced() const { return session_.fenced(); }
  bool has_left() const { return session_.has_left(); }  // The GCS has recorded it.

 private:
  const Deps deps_;
  Router router_;
  GcsLink gcs_;
  ClusterFollower follower_;
  GcsSession session_;
  SilenceWatch silence_;
};

}  // namespace sheaf
