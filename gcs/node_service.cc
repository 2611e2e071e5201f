// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/node_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gcs/reply.h"
#include "gcs/row_key.h"
#include "scheduling/cluster_view.h"

namespace sheaf {
namespace {

constexpr char kLastNodeKey[] = "last_node";
constexpr char kLeft[] = "left";
constexpr size_t kNonceBytes = 16;
constexpr size_t kMaxLabels = 1000;
// Every node hears of every other's load: the more nodes there are, the more changes share a delta,
// so that this many deltas go out in a second at most. Three nodes hear of each at once.
constexpr Nanos kLoadsPeriodPerNode = kSecond / 10'000;
// Nor more bytes than these: with a thousand busy nodes each delta has all of them.
constexpr int64_t kLoadBytesPerSecond = 10'000'000;

// False: it was so before.
bool Update(const proto::Resources& from, proto::Resources* to) {
  const auto& amounts = from.amounts();
  bool same = amounts.size() == to->amounts().size();
  for (auto at = amounts.begin(); same && at != amounts.end(); ++at) {
    const auto known = to->amounts().find(at->first);
    same = known != to->amounts().end() && known->second == at->second;
  }
  if (!same) *to = from;
  return !same;
}

// On disk a node has no soft state.
std::string Row(proto::NodeInfo info) {
  info.clear_available();
  info.clear_demand();
  info.clear_suspect();
  info.clear_drained();
  return info.SerializeAsString();
}

}  // namespace

NodeService::NodeService(const GcsContext& context, std::function<void(NodeNumber)> on_dead)
    : context_(context),
      on_dead_(std::move(on_dead)),
      health_({.suspect_after = context.options.suspect_after,
               .dead_after = context.options.dead_after},
              context.clock) {}

void NodeService::LoadNode(std::string_view value) {
  proto::NodeInfo info;
  if (!info.ParseFromArray(value.data(), static_cast<int>(value.size()))) return;
  // A member has from now on at least as long as any to be heard of, so every lease that an earlier
  // GCS gave has ended by then.
  if (info.state() != proto::NodeInfo::DEAD)
    health_.Add(info.node(), context_.options.return_within);
  table_.Put(std::move(info));
}

void NodeService::LoadLastNumber(std::string_view value) {
  last_number_ = NumberFromRowKey<uint32_t>(value).value_or(0);
}

void NodeService::Register(CallPtr call, const proto::RegisterNode& request,
                           const std::string& cluster_id) {
  if (request.nonce().size() != kNonceBytes) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument, "a nonce has 16 bytes"));
  }
  if (request.version() != context_.options.version) {
    return context_.pipeline.Answer(
        call, ErrorReply(
                  ErrorKind::kInvalidArgument,
                  absl::StrCat("version ", request.version(), " of the node is not the cluster's, ",
                               context_.options.version, "; install the same on both")));
  }
  if (request.labels_size() > static_cast<int>(kMaxLabels)) {
    return context_.pipeline.Answer(
        call, ErrorReply(ErrorKind::kInvalidArgument, "more than 1000 labels"));
  }
  const auto plan = [this, request, cluster_id]() -> Outcome {
    Outcome outcome;
    proto::NodeRegistered* registered = outcome.reply.mutable_node_registered();
    registered->set_cluster_id(cluster_id);
    registered->set_term(context_.term);
    registered->set_heartbeat_period_ns(context_.options.heartbeat_period);
    registered->set_lease_ns(context_.options.lease);
    if (const proto::NodeInfo* known = table_.FindByNonce(request.nonce())) {
      if (known->state() == proto::NodeInfo::DEAD) {
        return {{},
                nullptr,
                ErrorReply(ErrorKind::kNodeDied,
                           absl::StrCat("node ", known->node(), " was declared dead: ",
                                        known->death(), "; start it anew"))};
      }
      registered->set_node(known->node());
      return outcome;
    }
    proto::NodeInfo info;
    info.set_node(++last_number_);  // Used up even if the write fails.
    info.set_nonce(request.nonce());
    info.set_version(request.version());
    info.set_address(request.address());
    info.set_host_name(request.host_name());
    info.set_metrics_url(request.metrics_url());
    *info.mutable_total() = request.total();
    *info.mutable_available() = request.total();
    *info.mutable_labels() = request.labels();
    (*info.mutable_labels())[kNodeIdLabel] = NodeIdText(info.node());
    info.set_start_time_unix_s(request.start_time_unix_s());
    registered->set_node(info.node());
    outcome.writes = {{Table::kMeta, kLastNodeKey, RowKey(last_number_)},
                      {Table::kNodes, RowKey(info.node()), Row(info)}};
    outcome.apply = [this, info, replaces = request.replaces()] {
      table_.Put(info);
      health_.Add(info.node());
      Publish(info);
      context_.events.Add(proto::EventRow::NODE_JOINED, proto::EventRow::INFO,
                          absl::StrCat("node ", info.node(), " on ", info.host_name(), " joined"),
                          {.node = info.node()});
      const proto::NodeInfo* old = table_.Find(replaces);
      if (old != nullptr && old->node() != info.node() && old->host_name() == info.host_name()) {
        Move(nullptr, replaces, NodeEvent::kEnd, absl::StrCat("replaced by node ", info.node()));
      }
    };
    return outcome;
  };
  context_.pipeline.Run(std::move(call), {"nonce/" + request.nonce()}, plan);
}

void NodeService::OnHeard(NodeNumber node) {
  if (condemned_.contains(node) || !health_.OnHeard(node)) return;
  proto::NodeInfo* info = table_.FindSoft(node);
  if (info == nullptr) return;
  info->set_suspect(false);
  Publish(*info);
}

void NodeService::OnHeartbeat(const CallPtr& call, NodeNumber node,
                              const proto::Heartbeat& request) {
  proto::GcsReply reply;
  proto::HeartbeatReply* heartbeat = reply.mutable_heartbeat();
  heartbeat->set_number(request.number());
  heartbeat->set_term(context_.term);
  // A node whose death waits for the disk has no lease either: the death is decided.
  const bool member =
      table_.IsMember(node) && !unburied_.contains(node) && !condemned_.contains(node);
  heartbeat->set_fenced(!member);
  if (member) {
    heartbeat->set_lease_ns(context_.options.lease);
    proto::NodeInfo* info = table_.FindSoft(node);
    const bool load =
        request.has_available() && Update(request.available(), info->mutable_available());
    if (request.has_demand()) *info->mutable_demand() = request.demand();  // Listed, not published.
    info->set_drained(request.drained());
    if (load) LoadChanged(node);
  }
  context_.pipeline.Answer(call, std::move(reply));
}

void NodeService::SetAvailable(NodeNumber node, const proto::Resources& available) {
  proto::NodeInfo* info = table_.FindSoft(node);
  if (info == nullptr) return;
  *info->mutable_available() = available;
  LoadChanged(node);
}

void NodeService::LoadChanged(NodeNumber node) {
  loads_changed_.insert(node);
  if (context_.clock.Now() >= next_loads_) PublishLoads();
}

void NodeService::PublishLoads() {
  std::map<NodeNumber, const proto::Resources*> now;
  for (const NodeNumber node : loads_changed_) {
    const proto::NodeInfo* info = table_.Find(node);
    if (info != nullptr && info->state() != proto::NodeInfo::DEAD) now[node] = &info->available();
  }
  loads_changed_.clear();
  const proto::NodeLoads loads = known_loads_.Changes(now);
  const bool empty = loads.anew().empty() && loads.columns().empty();
  const size_t bytes = empty ? 0 : context_.publisher.PublishLoads(loads);
  const Nanos of_nodes = static_cast<Nanos>(table_.members()) * kLoadsPeriodPerNode;
  const Nanos of_bytes = static_cast<Nanos>(bytes) * kSecond / kLoadBytesPerSecond;
  next_loads_ = Deadline(context_.clock.Now(), std::max(of_nodes, of_bytes));
}

void NodeService::Unregister(CallPtr call, NodeNumber node, const proto::UnregisterNode& request) {
  if (request.node() == 0 || request.node() == node) {
    const auto condemned = condemned_.find(node);
    return Move(std::move(call), node, request.drain_only() ? NodeEvent::kDrain : NodeEvent::kEnd,
                condemned == condemned_.end() ? kLeft : condemned->second.reason);
  }
  if (!table_.IsMember(request.node())) {
    return context_.pipeline.Answer(
        call,
        ErrorReply(ErrorKind::kInvalidArgument,
                   absl::StrCat("no node ", request.node(),
                                " is in the cluster; sheaf list nodes shows those that are")));
  }
  if (!request.drain_only()) {  // The two have not heard each other for long. One of them goes.
    const auto goes = [this](NodeNumber which) {
      return condemned_.contains(which) || unburied_.contains(which);
    };
    // Who is silent towards the GCS too, such as a node that died before this GCS began, is not one
    // of a pair: nobody else has to go for it.
    if (!goes(node) && !goes(request.node()) && health_.IsHealthy(request.node()))
      unheard_.Report(node, request.node(), context_.clock.Now());
    return context_.pipeline.Answer(call, {});
  }
  Move(std::move(call), request.node(), NodeEvent::kDrain, kLeft);
}

void NodeService::Move(CallPtr call, NodeNumber node, NodeEvent event, std::string reason) {
  if (event == NodeEvent::kEnd && table_.IsMember(node)) unburied_.insert(node);
  context_.pipeline.Run(
      std::move(call), {absl::StrCat("node/", node)},
      [this, node, event, reason = std::move(reason)]() -> Outcome {
        const proto::NodeInfo* known = table_.Find(node);
        const auto next = known == nullptr ? std::nullopt : Next(known->state(), event);
        if (!next) {
          unburied_.erase(node);
          return {};
        }
        proto::NodeInfo row = *known;
        row.set_state(*next);
        if (*next == proto::NodeInfo::DEAD) row.set_death(reason);
        Outcome outcome;
        outcome.writes = {{Table::kNodes, RowKey(node), Row(row)}};
        outcome.vital = *next == proto::NodeInfo::DEAD;
        outcome.apply = [this, node, event, state = *next, death = row.death()] {
          proto::NodeInfo info = *table_.Find(node);  // With the soft state of now.
          info.set_state(state);
          info.set_death(death);
          table_.Put(info);
          if (state == proto::NodeInfo::DEAD) {
            unburied_.erase(node);
            unheard_.Remove(node);
            condemned_.erase(node);
            health_.Remove(node);
          }
          Publish(info);
          Tell(info, event);
          if (state == proto::NodeInfo::DEAD) on_dead_(node);
        };
        return outcome;
      });
}

void NodeService::Tell(const proto::NodeInfo& info, NodeEvent event) {
  using E = proto::EventRow;
  const std::string name = absl::StrCat("node ", info.node(), " on ", info.host_name());
  if (event == NodeEvent::kDrain) {
    context_.events.Add(E::NODE_DRAINING, E::INFO, name + " takes no new work",
                        {.node = info.node()});
  } else if (info.state() == proto::NodeInfo::DEAD) {
    const bool left = info.death() == kLeft;
    if (!left) ++deaths_;
    context_.events.Add(left ? E::NODE_LEFT : E::NODE_DIED, left ? E::INFO : E::ERROR,
                        left ? name + " left" : absl::StrCat(name, " died: ", info.death()),
                        {.node = info.node()});
  }
}

proto::NodeInfo NodeService::Public(const proto::NodeInfo& info) const {
  proto::NodeInfo copy = info;
  copy.clear_nonce();
  copy.set_is_head(info.state() != proto::NodeInfo::DEAD &&
                   info.address() == context_.options.address);
  return copy;
}

void NodeService::List(const CallPtr& call) const {
  proto::GcsReply reply;
  for (const auto& [node, info] : table_.all()) *reply.mutable_nodes()->add_nodes() = Public(info);
  reply.mutable_nodes();
  context_.pipeline.Answer(call, std::move(reply));
}

void NodeService::AddSnapshot(proto::Snapshot* snapshot) {
  for (const NodeNumber node : loads_changed_) known_loads_.Unsure(node);
  for (const auto& [node, info] : table_.all())
    *snapshot->add_items()->mutable_node() = Public(info);
}

void NodeService::Tick() {
  const std::set<NodeNumber> again = unburied_;
  if (!loads_changed_.empty() && context_.clock.Now() >= next_loads_) PublishLoads();
  for (const HealthMonitor::Change& change : health_.Tick()) {
    proto::NodeInfo* info = table_.FindSoft(change.node);
    if (info == nullptr) continue;
    if (change.health == Health::kSuspect) {
      info->set_suspect(true);
      Publish(*info);
    } else if (change.health == Health::kDead) {
      Move(nullptr, change.node, NodeEvent::kEnd, "no heartbeat");
    }
  }
  EndUnheard();
  for (const NodeNumber node : again) Move(nullptr, node, NodeEvent::kEnd, "no heartbeat");
  if (table_.Surplus(context_.options.max_remembered).empty()) return;
  context_.pipeline.Run(nullptr, {"nodes/trim"}, [this]() -> Outcome {
    Outcome outcome;
    std::vector<NodeNumber> surplus = table_.Surplus(context_.options.max_remembered);
    for (const NodeNumber node : surplus)
      outcome.writes.push_back({Table::kNodes, RowKey(node), std::nullopt});
    outcome.apply = [this, surplus = std::move(surplus)] {
      for (const NodeNumber node : surplus) table_.Erase(node);
    };
    return outcome;
  });
}

// The node of the GCS stays: without it there is no cluster. What takes no work is there for a
// driver, or leaves anyhow.
void NodeService::EndUnheard() {
  const auto worth = [this](NodeNumber node) {
    const proto::NodeInfo* info = table_.Find(node);
    if (info == nullptr ||
        (!info->address().empty() && info->address() == context_.options.address))
      return -1;
    return info->state() == proto::NodeInfo::DRAINING ? 1 : 0;
  };
  while (const auto verdict = unheard_.Next(context_.clock.Now(), worth)) {
    Log(LogLevel::kWarning, "node ", verdict->node, " is ended: ", verdict->reason);
    unheard_.Remove(verdict->node);
    condemned_.emplace(
        verdict->node,
        Condemned{Deadline(context_.clock.Now(), context_.options.lease), verdict->reason});
  }
  std::vector<std::pair<NodeNumber, std::string>> over;
  for (const auto& [node, condemned] : condemned_) {
    if (context_.clock.Now() >= condemned.dead_at && !unburied_.contains(node))
      over.emplace_back(node, condemned.reason);
  }
  for (const auto& [node, reason] : over) Move(nullptr, node, NodeEvent::kEnd, reason);
}

void NodeService::Publish(const proto::NodeInfo& info) {
  if (info.state() == proto::NodeInfo::DEAD) {
    known_loads_.Unsure(info.node());
  } else {
    known_loads_.Told(info.node(), info.available());
  }
  if (!context_.publisher.HasSubscribers(proto::Subscribe::NODES)) return;
  proto::Change change;
  *change.mutable_node() = Public(info);
  context_.publisher.Publish(proto::Subscribe::NODES, "", "", change);
}

}  // namespace sheaf
