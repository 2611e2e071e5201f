// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who wants to hear of which changes. Each subscription counts its own deltas, so a client sees by
// the numbers whether it has missed one, and asks again.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"

namespace sheaf {

class Publisher {
 public:
  static constexpr size_t kMaxSubscriptionsPerClient = 10'000;

  explicit Publisher(Transport& transport) : transport_(transport) {}
  void set_term(uint64_t term) { term_ = term; }

  // Begins the subscription or finds it again. The caller adds the items unless the snapshot is
  // `current`. `via` is the raylet through which events reach the client. False: it has too many.
  bool Subscribe(ProcessId client, ProcessId via, const proto::Subscribe& request,
                 proto::Snapshot* snapshot);
  void Unsubscribe(ProcessId client, uint64_t subscription);
  void ForgetClient(ProcessId client);
  void ForgetNode(NodeNumber node);
  std::set<ProcessId> ClientsOn(NodeNumber node) const;

  // Tells all that subscribed to the channel as a whole or to `key` (KEY_VALUES: to a prefix of it
  // in `name_space`).
  void Publish(proto::Subscribe::Channel channel, std::string_view name_space, std::string_view key,
               const proto::Change& change);
  // The same for many nodes' loads at once, to all that subscribed to NODES as a whole.
  // Returns the bytes that go out for it.
  size_t PublishLoads(const proto::NodeLoads& loads);
  bool HasSubscribers(proto::Subscribe::Channel channel) const { return !wanted_[channel].empty(); }

  size_t subscriptions() const { return subscriptions_.size(); }
  uint64_t deltas() const { return deltas_; }

 private:
  using Id = std::pair<ProcessId, uint64_t>;
  // What is wanted: (name space, key); the empty key is everything.
  using Wanted = std::map<std::pair<std::string, std::string>, std::set<Id>>;
  struct Subscription {
    ProcessId via;
    proto::Subscribe::Channel channel;
    std::string name_space;
    std::string key;
    uint64_t number = 0;  // Of the last delta.
  };
  using Subscriptions = std::map<Id, Subscription>;

  Subscriptions::iterator Remove(Subscriptions::iterator at);
  void Tell(const std::set<Id>& ids, proto::Delta delta);

  Transport& transport_;
  uint64_t term_ = 0;
  Subscriptions subscriptions_;
  Wanted wanted_[proto::Subscribe::Channel_ARRAYSIZE];
  std::map<ProcessId, size_t> counts_;
  uint64_t deltas_ = 0;
};

}  // namespace sheaf
