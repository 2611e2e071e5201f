// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/publisher.h"

#include <utility>

namespace sheaf {

bool Publisher::Subscribe(ProcessId client, ProcessId via, const proto::Subscribe& request,
                          proto::Snapshot* snapshot) {
  const Id id{client, request.subscription()};
  auto at = subscriptions_.find(id);
  if (at != subscriptions_.end() &&
      (at->second.channel != request.channel() || at->second.key != request.key() ||
       at->second.name_space != request.name_space())) {
    Remove(at);  // The client uses the number for something else now.
    at = subscriptions_.end();
  }
  const bool known = at != subscriptions_.end();
  if (!known) {
    size_t& count = counts_[client];
    if (count >= kMaxSubscriptionsPerClient) return false;
    ++count;
    at = subscriptions_.insert({id, {via, request.channel(), request.name_space(), request.key()}})
             .first;
    wanted_[request.channel()][{request.name_space(), request.key()}].insert(id);
  }
  at->second.via = via;
  snapshot->set_subscription(request.subscription());
  snapshot->set_term(term_);
  snapshot->set_number(at->second.number);
  snapshot->set_current(known && request.known_term() == term_ &&
                        request.known_number() == at->second.number);
  return true;
}

void Publisher::Unsubscribe(ProcessId client, uint64_t subscription) {
  const auto at = subscriptions_.find({client, subscription});
  if (at != subscriptions_.end()) Remove(at);
}

void Publisher::ForgetClient(ProcessId client) {
  auto at = subscriptions_.lower_bound({client, 0});
  while (at != subscriptions_.end() && at->first.first == client) at = Remove(at);
}

void Publisher::ForgetNode(NodeNumber node) {
  auto at = subscriptions_.lower_bound({ProcessId{node, 0}, 0});
  while (at != subscriptions_.end() && at->first.first.node == node) at = Remove(at);
}

std::set<ProcessId> Publisher::ClientsOn(NodeNumber node) const {
  std::set<ProcessId> clients;
  for (auto at = counts_.lower_bound({node, 0}); at != counts_.end() && at->first.node == node;
       ++at)
    clients.insert(at->first);
  return clients;
}

Publisher::Subscriptions::iterator Publisher::Remove(Subscriptions::iterator at) {
  Wanted& wanted = wanted_[at->second.channel];
  const auto entry = wanted.find({at->second.name_space, at->second.key});
  entry->second.erase(at->first);
  if (entry->second.empty()) wanted.erase(entry);
  if (--counts_[at->first.first] == 0) counts_.erase(at->first.first);
  return subscriptions_.erase(at);
}

void Publisher::Publish(proto::Subscribe::Channel channel, std::string_view name_space,
                        std::string_view key, const proto::Change& change) {
  const Wanted& wanted = wanted_[channel];
  if (wanted.empty()) return;
  proto::Delta delta;
  *delta.mutable_change() = change;
  const auto tell = [&](std::string_view part) {
    const auto found = wanted.find({std::string(name_space), std::string(part)});
    if (found != wanted.end()) Tell(found->second, delta);
  };
  if (channel != proto::Subscribe::KEY_VALUES) {
    tell("");
    if (!key.empty()) tell(key);
    return;
  }
  // Every prefix of the key that somebody wants; the map is in order, so those that are none end
  // the search early.
  for (auto at = wanted.lower_bound({std::string(name_space), ""});
       at != wanted.end() && at->first.first == name_space && at->first.second <= key; ++at) {
    if (key.starts_with(at->first.second)) Tell(at->second, delta);
  }
}

size_t Publisher::PublishLoads(const proto::NodeLoads& loads) {
  const Wanted& wanted = wanted_[proto::Subscribe::NODES];
  const auto all = wanted.find({"", ""});
  if (all == wanted.end()) return 0;
  proto::Delta delta;
  delta.set_loads(loads.SerializeAsString());
  const size_t bytes = all->second.size() * delta.loads().size();
  Tell(all->second, std::move(delta));
  return bytes;
}

void Publisher::Tell(const std::set<Id>& ids, proto::Delta delta) {
  proto::GcsEvent event;
  *event.mutable_delta() = std::move(delta);
  event.mutable_delta()->set_term(term_);
  // What is the same for all is written once; a reader of both parts merges them into one delta.
  const std::string shared = event.SerializeAsString();
  proto::GcsEvent own;
  for (const Id& id : ids) {
    Subscription& subscription = subscriptions_.at(id);
    own.set_client(id.first.packed());
    own.mutable_delta()->set_subscription(id.second);
    own.mutable_delta()->set_number(++subscription.number);
    transport_.To(subscription.via)
        .Send(Lane::kControl, FrameKind::kGcsEvent, shared, own.SerializeAsString());
    ++deltas_;
  }
}

}  // namespace sheaf
