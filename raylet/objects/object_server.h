// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Gives objects of this node, chunk by chunk, to raylets that pull them: sealed ones (brought back
// from disk if need be), and of those that are arriving here what has come so far. Bytes leave from
// where they lie; they are held until they have left. Tells readers of each other, so that a
// broadcast forms a tree. One thread (the raylet's loop).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "object_store/server/store_server.h"
#include "raylet/objects/object_puller.h"
#include "rpc/links.h"

namespace sheaf {

class ObjectServer {
 public:
  using Respond = std::function<void(absl::StatusOr<Block>)>;
  struct Deps {
    const Clock& clock;
    StoreServer& store;
    ObjectPuller& puller;
  };
  struct Stats {
    uint64_t blocks = 0;
    uint64_t bytes = 0;
    uint64_t refused = 0;  // Not there, or not yet.
  };

  explicit ObjectServer(Deps deps) : deps_(deps) {}

  // `reader` asks for a proto::BlockRequest. Answers once, from any thread, maybe later; whoever
  // asks in vain gets a head that says why. kInvalidArgument: it cannot be read. What was answered
  // must have left before the loop ends.
  void OnFetch(NodeNumber reader, std::string_view request, Respond respond);
  void Tick();  // Forgets readers.

  Stats stats() const { return counts_; }

 private:
  void OnPart(ObjectId id, const proto::BlockRequest& request, Respond respond);
  ObjectLocation HintOf(const proto::BlockRequest& request) const;
  void NameOthers(ObjectId id, NodeNumber reader, proto::BlockHead* head);
  void Send(proto::BlockHead head, std::span<const char> bytes, std::shared_ptr<const void> hold,
            const Respond& respond);
  void SendWhy(proto::BlockHead head, const Respond& respond);

  Deps deps_;
  // Who asked for what, and when last.
  absl::btree_map<ObjectId, absl::btree_map<NodeNumber, Nanos>> readers_;
  Nanos next_sweep_ = 0;
  Stats counts_;
};

}  // namespace sheaf
