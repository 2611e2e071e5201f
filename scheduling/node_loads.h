// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What nodes have free, as the GCS tells it to all of them. With n busy nodes n tell and n hear, so
// what is written for a node is what counts: only amounts that are other than all know, three bytes
// for a CPU count (proto::NodeLoads). Pure; one thread.
#pragma once

#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/resources.h"
#include "proto/gcs.pb.h"

namespace sheaf {

// What a node said to be free, by name; names that are none are left out. Less than nothing, as of
// CPUs that were lent and are taken back, is nothing.
Resources FreeResources(const proto::Resources& available);

// The GCS's side: what all who follow the nodes know of each.
class KnownLoads {
 public:
  // All are being told of all that `node` has.
  void Told(NodeNumber node, const proto::Resources& available) { known_[node] = available; }
  // Some may know what others do not, such as who has just begun to follow; or nobody knows the
  // node. The next time all of it is said.
  void Unsure(NodeNumber node) { known_.erase(node); }
  // What is new since: everybody is told of it now. Of nodes that have not changed is said nothing;
  // none that has: an empty message.
  proto::NodeLoads Changes(const std::map<NodeNumber, const proto::Resources*>& now);

 private:
  std::map<NodeNumber, proto::Resources> known_;
};

// A follower's side. `known(node)`: what is to be changed, nullptr for a node that is none of its
// business. Names that are none are left out. kInvalidArgument: the message contradicts itself;
// what stands before that is applied.
absl::Status ApplyLoads(const proto::NodeLoads& loads,
                        absl::FunctionRef<Resources*(NodeNumber)> known);

}  // namespace sheaf
