// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this raylet believes about the cluster: its nodes and ended jobs, as the GCS streams them.
// Keeps the nodes of the ClusterView, from which the lease queue subtracts what it hands to them.
// Pure; one thread.
//
// The GCS answers a subscription with a snapshot and then sends numbered deltas. When one is
// missing, or the GCS begins another term, the subscription is made anew with what is known: then
// the answer is short.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/resources.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/cluster/node_links.h"
#include "raylet/death_register.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

class ClusterFollower {
 public:
  // Who acts on what has changed. The view says so already.
  class Observer {
   public:
    virtual ~Observer() = default;
    // There may be room where there was none.
    virtual void OnRoom() = 0;
    // Once for each node. `reason` is for people.
    virtual void OnNodeDead(NodeNumber node, const std::string& reason) = 0;
    // This node takes no new work from now on; once.
    virtual void OnDraining() = 0;
    // A job is over; maybe one that is not known here.
    virtual void OnJobOver(const proto::JobInfo& job) = 0;
  };
  // All outlive it.
  struct Deps {
    const RayletOptions& options;
    Clock& clock;
    GcsLink& gcs;
    NodeLinks& links;
    LeaseQueue& queue;
    ClusterView& view;
    DeathRegister& deaths;
    Observer& observer;
  };
  explicit ClusterFollower(const Deps& deps) : deps_(deps) {}
  ClusterFollower(const ClusterFollower&) = delete;
  ClusterFollower& operator=(const ClusterFollower&) = delete;

  // At the start, and whenever the GCS begins another term.
  void Follow();
  void OnDelta(const proto::Delta& delta);
  // The link to `node` is up, or silent: new work then goes elsewhere where it can.
  void OnNodeLink(NodeNumber node, bool up);
  // `node` has spoken. So it is alive, also before the GCS has described it; work waits for that.
  void OnHeard(NodeNumber node);
  // The node takes no new work from now on. A repeat changes nothing.
  void StartDraining();
  void Tick();

 private:
  // A subscription.
  struct Followed {
    uint64_t term = 0;
    uint64_t number = 0;  // Of the last delta that was taken.
    bool asking = false;
  };
  Nanos Now() const { return deps_.clock.Now(); }
  void Subscribe(uint64_t subscription);
  void OnSnapshot(uint64_t subscription, const proto::GcsReply& reply);
  void OnLoads(std::string_view bytes);  // NodeLoads.
  void OnChange(const proto::Change& change);
  void OnNodeInfo(const proto::NodeInfo& info);
  void DropNodesOutside(const proto::Snapshot& snapshot);
  void ForgetOldDead(NodeNumber died);

  const Deps deps_;
  absl::btree_map<uint64_t, Followed> followed_;
  Nanos follow_again_at_ = kForever;  // The GCS refused to say what changes.
  Nanos next_view_check_ = 0;
  std::deque<NodeNumber> dead_;  // In the view, in the order of their deaths.
};

}  // namespace sheaf
