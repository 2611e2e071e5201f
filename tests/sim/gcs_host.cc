// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gcs_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/node.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kPlantedLease = 4 * kSecond;

// The word to a node that it was declared dead becomes a lease.
void Unfence(World& world, FrameKind kind, std::string* body) {
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(*body) || !reply.has_heartbeat() ||
      !reply.heartbeat().fenced() || !world.Planted(Plant::kUnfenced))
    return;
  reply.mutable_heartbeat()->set_fenced(false);
  reply.mutable_heartbeat()->set_lease_ns(kPlantedLease);
  *body = reply.SerializeAsString();
}

}  // namespace

GcsHost::GcsHost(World& world) : world_(world), current_(MakeHead({})) {}
GcsHost::~GcsHost() = default;

GcsHead* GcsHost::MakeHead(MemoryStorage::Disk rows) {
  HeadEvents events;
  const size_t at = heads_.size();
  const auto self = [this, at]() -> GcsHead& { return *heads_[at]; };
  events.out = [this, self](ProcessId to, FrameKind kind, std::string body) {
    OnOut(self(), to, kind, std::move(body));
  };
  events.on_start = [this, self] {
    if (self().life() > 1 && world_.plant == Plant::kEarlyRecovery) TakeAllForReported(self());
  };
  events.on_serving = [this, self] { TellLinks(self(), true); };
  events.on_away = [this, self] {
    world_.queue.After(kSilence, [this, self, life = self().life()] {
      if (life == self().life()) TellLinks(self(), false);
    });
  };
  heads_.push_back(std::make_unique<GcsHead>(world_, at + 1, std::move(rows), std::move(events)));
  return heads_.back().get();
}

void GcsHost::TakeAllForReported(GcsHead& head) {
  proto::GcsRequest nothing;
  nothing.mutable_node_report();
  for (const Node* node : nodes_) {
    if (!node->up() || node->crashed()) continue;
    ++world_.planted;
    nothing.set_client(RayletOf(node->number()).packed());
    head.OnFrame(RayletOf(node->number()), FrameKind::kGcsRequest, nothing.SerializeAsString());
  }
}

// While two heads are there a GCS comes back soon: nobody else may say that its term is the later.
void GcsHost::Crash() { current_->Crash(/*may_be_away=*/old_ == nullptr); }

void GcsHost::TellLinks(GcsHead& head, bool up) {
  for (Node* node : nodes_) {
    if (connections_[node].head != &head) continue;
    if (up) connections_[node].life = head.life();
    node->OnGcsLink(up, up ? head.service().term() : 0);
  }
}

// A report of what there is on a node denies what has come since, so its sender relies on the order of
// a link (GcsLink::Describe).
bool SaysHowThingsAre(FrameKind kind, const std::string& body) {
  proto::GcsRequest request;
  return kind == FrameKind::kGcsRequest && request.ParseFromString(body) &&
         request.has_node_report();
}

void GcsHost::Carry(Fate fate, Nanos* last_at, std::function<void()> deliver, bool keeps_place) {
  const uint64_t one_in = world_.faults.gcs_frame_fault_one_in;
  int copies = 1;
  Nanos delay = world_.Between(2 * kMicrosecond, 60 * kMicrosecond);
  bool in_order = true;
  switch (fate) {
    case Fate::kLost:
    case Fate::kReplyLost:
      world_.Count(Fault::kGcsFrameDropped);
      return;
    case Fate::kTwice:
    case Fate::kInFlight:
      world_.Count(Fault::kGcsFrameDuplicated);
      world_.queue.At(*last_at = std::max(*last_at, world_.now() + delay), deliver);
      if (fate == Fate::kTwice) {
        delay += world_.Between(kMillisecond, 200 * kMillisecond);
        in_order = keeps_place;
      }
      break;
    case Fate::kWhole:
      break;
  }
  if (fate == Fate::kWhole && one_in != 0 && world_.random.OneIn(one_in)) {
    switch (world_.random.Below(3)) {
      case 0:
        world_.Count(Fault::kGcsFrameDropped);
        return;
      case 1:
        world_.Count(Fault::kGcsFrameDuplicated);
        copies = 2;
        break;
      default:
        world_.Count(Fault::kGcsFrameDelayed);
        delay = world_.Between(kMillisecond, 700 * kMillisecond);
        in_order = keeps_place;  // Others overtake it.
    }
  }
  for (; copies > 0; --copies) {
    Nanos at = world_.now() + delay;
    if (in_order) at = *last_at = std::max(*last_at, at);
    world_.queue.At(at, deliver);
    delay += world_.Between(0, 5 * kMillisecond);
  }
}

Node* GcsHost::Find(ProcessId peer) const {
  for (Node* node : nodes_) {
    const bool named = peer.node != 0 && node->number() == peer.node;
    if (named || (peer.node == 0 && peer.process == node->index())) return node;
  }
  return nullptr;
}

bool GcsHost::Hears(const Node* node) const {
  if (node == nullptr || node->crashed()) return false;
  const auto away = away_until_.find(node);
  return away == away_until_.end() || away->second <= world_.now();
}

// --- Frames. ---

void GcsHost::SendToGcs(ProcessId from, FrameKind kind, std::string body) {
  Node* node = Find(from);
  if (!Hears(node)) return;
  // It would lie in the link until the GCS is back, however long that is.
  if (!node->hears_gcs())
    world_.oracle.Fail(
        "O7", absl::StrCat("node ", from.node, " speaks to a GCS that it knows to be away"));
  Connection& connection = connections_[node];
  if (connection.number == 0 && !current_->asleep() &&
      ShakeHands(*current_, connection, /*node_dials=*/true)) {
    Establish(*current_, *node, connection);
  }
  ToHead(connection, {from, kind, std::move(body), false});
}

void GcsHost::ToHead(Connection& connection, Message message) {
  GcsHead* const head = connection.head;
  if (head == nullptr || IsCut(*head, connection))
    return connection.unread.push_back(std::move(message));
  const Fate fate = world_.methods == nullptr || message.kind != FrameKind::kGcsRequest
                        ? Fate::kWhole
                        : world_.methods->OfFrameToGcs(message.body);
  Nanos* const last_at = &last_from_[message.peer];
  const bool keeps_place = SaysHowThingsAre(message.kind, message.body);
  Carry(
      fate, last_at,
      [this, head, life = head->life(), &connection, message = std::move(message)] {
        Arrive(*head, life, connection, message);
      },
      keeps_place);
}

void GcsHost::Arrive(GcsHead& head, uint64_t life, Connection& connection, const Message& message) {
  if (head.asleep()) {  // It lies in the buffers of its machine.
    if (connection.head == &head && !connection.is_local) connection.unread.push_back(message);
    return head.At(head.asleep_until(), [this, &head, life, &connection, message] {
      Arrive(head, life, connection, message);
    });
  }
  // What is on its way when the GCS dies is lost with its connection.
  if (life != head.life()) return;
  world_.trace.Frame(world_.now(), message.peer, kGcs, message.kind, message.body);
  head.OnFrame(message.peer, message.kind, message.body);
}

void GcsHost::OnOut(GcsHead& head, ProcessId to, FrameKind kind, std::string body) {
  Judge(kind, body);
  if (world_.plant == Plant::kUnfenced) Unfence(world_, kind, &body);
  if (world_.plant == Plant::kStaleHolder) NameFirstHolder(kind, &body);
  const bool late = head.woke() && &head != current_;
  if (Node* node = Find(to)) Transmit(head, *node, {to, kind, std::move(body), late});
}

void GcsHost::Transmit(GcsHead& head, Node& node, Message message) {
  Connection& connection = connections_[&node];
  if (connection.head != &head || IsCut(head, connection)) {
    unsent_[{&head, &node}].push_back(std::move(message));
    return Meet(head, node, /*node_dials=*/false, world_.Between(kMillisecond, kDialPeriod));
  }
  const Fate fate = world_.methods == nullptr
                        ? Fate::kWhole
                        : world_.methods->OfFrameFromGcs(message.kind, message.body);
  Nanos* const last_at = &last_to_[message.peer];
  Carry(fate, last_at,
        [this, &head, life = head.life(), &node, number = connection.number,
         message = std::move(message)] { DeliverToNode(head, life, node, number, message); });
}

void GcsHost::DeliverToNode(GcsHead& head, uint64_t life, Node& node, uint64_t number,
                            const Message& message) {
  if (!Hears(&node)) return;
  Connection& connection = connections_[&node];
  // Its connection ended with the life that said it, before another one was made.
  if (connection.head == &head && life < connection.life) return;
  if (connection.number != number) {  // It was not acknowledged: if they meet again it comes again.
    unsent_[{&head, &node}].push_back(message);
    return;
  }
  const auto says = [&] {
    return absl::StrCat("node ", node.number(), " takes ", FrameName(message.kind),
                        FrameWords(message.kind, message.body), " of head ", head.number());
  };
  if (connection.heard > head.number()) {
    world_.oracle.Fail("O8", absl::StrCat(says(), ", though it has heard head ", connection.heard,
                                          ", of a later term"));
  } else if (message.late) {
    world_.oracle.Fail("O8", absl::StrCat(says(), ", which said it when another one led"));
  }
  connection.heard = std::max(connection.heard, head.number());
  world_.trace.Frame(world_.now(), kGcs, message.peer, message.kind, message.body);
  node.OnGcsFrame(message.peer, message.kind, message.body);
}

void GcsHost::Judge(FrameKind kind, const std::string& body) {
  if (kind == FrameKind::kGcsEvent) {
    proto::GcsEvent event;
    if (event.ParseFromString(body) && event.delta().change().has_node())
      SaysOf(event.delta().change().node());
    return;
  }
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(body)) return;
  // Who is refused or fenced is dead, though others may not have heard of it yet.
  const NodeNumber asker = ProcessId::Unpack(reply.client()).node;
  if (asker != 0 &&
      (static_cast<ErrorKind>(reply.error()) == ErrorKind::kNodeDied || reply.heartbeat().fenced()))
    world_.oracle.NodeDied(asker);
  for (const proto::NodeInfo& node : reply.nodes().nodes()) SaysOf(node);
  for (const proto::Change& item : reply.snapshot().items()) {
    if (item.has_node()) SaysOf(item.node());
  }
}

void GcsHost::NameFirstHolder(FrameKind kind, std::string* body) {
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(*body) || reply.actor().name().empty())
    return;
  const proto::ActorInfo& first =
      first_holders_.try_emplace(reply.actor().name(), reply.actor()).first->second;
  if (static_cast<ErrorKind>(reply.error()) != ErrorKind::kActorNameTaken ||
      first.actor_id() == reply.actor().actor_id() || !world_.Planted(Plant::kStaleHolder))
    return;
  *reply.mutable_actor() = first;
  *body = reply.SerializeAsString();
}

void GcsHost::SaysOf(const proto::NodeInfo& node) {
  if (node.state() == proto::NodeInfo::DEAD) {
    said_dead_.insert(node.node());
    world_.oracle.NodeDied(node.node());
  } else if (said_dead_.contains(node.node())) {
    world_.oracle.Fail("O3", absl::StrCat("the GCS has said that node ", node.node(),
                                          " is dead, and says that it lives"));
  }
}

}  // namespace sheaf::sim
