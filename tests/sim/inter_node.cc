// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/inter_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "raylet/objects/fake_block_source.h"
#include "tests/sim/node.h"
#include "worker/wire.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kUnheardLimit = 2 * kSecond;  // So long after kSilence the GCS is told,
constexpr Nanos kUnheardPeriod = kSecond;     // so often.

}  // namespace

void InterNode::Separate(NodeNumber a, NodeNumber b, Nanos until) {
  Nanos& known = separate_until_[std::minmax(a, b)];
  known = std::max(known, until);
  world_.queue.After(kSilence, [this, a, b] { LookAtLink(a, b); });
}

void InterNode::LookAtLink(NodeNumber a, NodeNumber b) {
  const Nanos until = SeparateUntil(a, b);
  const bool heard = until <= world_.now();
  for (const auto& [node, about] : {Key{a, b}, Key{b, a}}) {
    if (IsLive(node)) nodes_.at(node)->OnNodeLink(about, heard);
  }
  if (!heard && until != kForever)
    world_.queue.After(until - world_.now(), [this, a, b] { LookAtLink(a, b); });
}

void InterNode::LoseLink(NodeNumber a, NodeNumber b) {
  if (SeparateUntil(a, b) == kForever) return;
  Separate(a, b, kForever);
  lost_links_.push_back(std::minmax(a, b));
  for (const auto& [node, about] : {Key{a, b}, Key{b, a}}) {
    const Nanos first = kSilence + kUnheardLimit + world_.Between(0, kUnheardPeriod);
    world_.queue.After(first, [this, node, about] { ReportUnheard(node, about); });
  }
}

void InterNode::ReportUnheard(NodeNumber node, NodeNumber about) {
  if (!IsLive(node) || forgotten_.contains({node, about})) return;
  nodes_.at(node)->ReportUnheard(about);
  world_.queue.After(kUnheardPeriod, [this, node, about] { ReportUnheard(node, about); });
}

Nanos InterNode::SeparateUntil(NodeNumber a, NodeNumber b) const {
  const auto found = separate_until_.find(std::minmax(a, b));
  return found == separate_until_.end() ? 0 : found->second;
}

bool InterNode::IsForgotten(NodeNumber node, NodeNumber dead) {
  return forgotten_.contains({node, dead}) && !world_.Planted(Plant::kUnfenced);
}

bool InterNode::IsLive(NodeNumber node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && !found->second->crashed();
}

void InterNode::Crashed(NodeNumber node) {
  for (auto& [key, wire] : wires_) {
    if (key.first == node || key.second == node) wire->Close();
  }
  for (auto& [key, stream] : streams_) {
    if (key.first != node) continue;
    stream.waiting.clear();
    if (stream.sent.empty()) continue;
    const size_t kept = world_.random.Below(stream.sent.size() + 1);
    stream.sent.erase(stream.sent.begin() + static_cast<ptrdiff_t>(kept), stream.sent.end());
  }
}

Nanos InterNode::Delay(NodeNumber from, NodeNumber to) {
  Nanos delay = world_.Between(50 * kMicrosecond, kMillisecond);
  if (world_.random.OneIn(200)) delay += world_.Between(kMillisecond, 50 * kMillisecond);
  for (const NodeNumber node : {from, to}) {
    if (const auto slow = slow_.find(node); slow != slow_.end()) {
      if (world_.now() < slow->second.second) delay += slow->second.first;
    }
  }
  return delay;
}

void InterNode::Send(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string body) {
  const Key key{from.node, to.node};
  if (IsForgotten(key.first, key.second) || !IsLive(from.node)) return;
  if (kind == FrameKind::kReturnBundles && world_.Planted(Plant::kKeptBundle)) return;
  if (kind == FrameKind::kPushTask) {
    if (const auto* push = FrameHead<PushTaskHead>(body))
      world_.oracle.SentTo(TaskId{from.packed(), push->task_sequence_bits}, to.node);
  }
  if (world_.methods != nullptr) {
    // Not to who has crashed. Who is registered, and has not heard its number yet, gets it later.
    const auto found = nodes_.find(to.node);
    if (found != nodes_.end() && found->second->crashed()) return;
    return WireOf(key).Send(from.node < to.node ? 0 : 1, {from, to, lane, kind, body});
  }
  if (kind == FrameKind::kStateQuery || kind == FrameKind::kStateAnswer)
    state_bytes_ += body.size();
  Settle(key);
  Stream& stream = streams_[key];
  CheckBackPressure(stream, from, to, kind, body);
  const size_t size = body.size();
  Sent frame{from, to, lane, kind, std::move(body), 0};
  if (stream.waiting.empty() &&
      (stream.unacknowledged == 0 || stream.unacknowledged + size <= world_.link_bytes))
    return Depart(key, stream, std::move(frame));
  stream.waiting_bytes += size;
  stream.waiting.push_back(std::move(frame));
  Settle(key);
}

void InterNode::Depart(Key key, Stream& stream, Sent frame) {
  stream.unacknowledged += frame.body.size();
  stream.last_at = std::max(stream.last_at, world_.now() + Delay(key.first, key.second));
  frame.at = stream.last_at;
  stream.sent.push_back(std::move(frame));
  Schedule(key);
}

void InterNode::Settle(Key key) {
  Stream& stream = streams_[key];
  std::deque<std::pair<Nanos, size_t>>& acknowledged = stream.acknowledged;
  for (; !acknowledged.empty() && acknowledged.front().first <= world_.now();
       acknowledged.pop_front())
    stream.unacknowledged -= acknowledged.front().second;
  while (!stream.waiting.empty()) {
    const size_t size = stream.waiting.front().body.size();
    if (stream.unacknowledged != 0 && stream.unacknowledged + size > world_.link_bytes) break;
    Sent frame = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    stream.waiting_bytes -= size;
    Depart(key, stream, std::move(frame));
  }
  if (stream.waiting.empty() || acknowledged.empty() || stream.will_settle) return;
  stream.will_settle = true;
  world_.queue.At(acknowledged.front().first, [this, key] {
    streams_[key].will_settle = false;
    Settle(key);
  });
}

size_t InterNode::QueuedBytes(NodeNumber from, NodeNumber to) {
  const Key key{from, to};
  if (forgotten_.contains(key)) return 0;
  if (world_.methods != nullptr) return WireOf(key).queued_bytes(from < to ? 0 : 1);
  Settle(key);
  return streams_[key].unacknowledged + streams_[key].waiting_bytes;
}

// What a link holds of calls and items from one process to another, sent while there was room
// (worker/owner/back_pressure.h).
void InterNode::CheckBackPressure(const Stream& stream, ProcessId from, ProcessId to,
                                  FrameKind kind, std::string_view body) {
  if (world_.oracle.IsDead(to)) return;  // It is not there to take them.
  if (kind == FrameKind::kPushTask) {
    const auto* push = FrameHead<PushTaskHead>(body);
    const CallRecord* call =
        push == nullptr ? nullptr
                        : world_.oracle.Find(TaskId{from.packed(), push->task_sequence_bits});
    // Of tasks a worker gets few, and an actor's constructor goes first.
    if (call == nullptr || call->actor.is_nil() || call->arguments.op == Op::kConstruct ||
        call->arguments.op == Op::kConstructFails)
      return;
  } else if (kind != FrameKind::kStreamItem) {
    return;
  }
  size_t bytes = 0;
  for (const std::deque<Sent>* frames : {&stream.sent, &stream.waiting}) {
    for (const Sent& other : *frames) {
      if (other.kind == kind && other.from == from && other.to == to) bytes += other.body.size();
    }
  }
  if (bytes >= world_.limits.max_untaken) {
    world_.oracle.Fail("O9", absl::StrCat(from.ToString(), " sends ", FrameName(kind), " to ",
                                          to.ToString(), ", which has not taken ", bytes,
                                          " bytes of them, of ", world_.limits.max_untaken));
  }
}

NodeWire& InterNode::WireOf(Key key) {
  const auto [low, high] = std::minmax(key.first, key.second);
  std::unique_ptr<NodeWire>& wire = wires_[{low, high}];
  if (wire == nullptr) {
    wire = std::make_unique<NodeWire>(
        world_, [this, low, high] { return Delay(low, high); },
        [this](const LinkFrame& frame) { Arrive(frame); });
  }
  return *wire;
}

void InterNode::Arrive(const LinkFrame& frame) {
  const Key key{frame.from.node, frame.to.node};
  streams_[key].unacknowledged += frame.body.size();
  streams_[key].sent.push_back(
      {frame.from, frame.to, frame.lane, frame.kind, std::string(frame.body), world_.now()});
  Schedule(key);
}

void InterNode::CheckAtRest() const {
  for (const auto& [key, wire] : wires_) wire->CheckAtRest();
  for (const auto& [a, b] : lost_links_) {
    if (IsLive(a) && IsLive(b))
      world_.oracle.Fail("O1", absl::StrCat("nodes ", a, " and ", b,
                                            " do not hear each other, and neither has ended"));
  }
}

void InterNode::Fetch(NodeNumber reader, NodeNumber node, std::string request,
                      BlockSource::Done done) {
  const Fate fate = world_.methods == nullptr ? Fate::kWhole : world_.methods->OfFetch();
  const auto delay = [this, reader, node] {
    return world_.Between(100 * kMicrosecond, 5 * kMillisecond) + Delay(reader, node);
  };
  world_.queue.After(delay(), [this, reader, node, delay, fate, request = std::move(request),
                               done = std::move(done)] {
    const auto found = nodes_.find(node);
    if (fate == Fate::kLost) return done(absl::UnavailableError("the question is lost"));
    if (found != nodes_.end() && !found->second->crashed() &&
        (fate == Fate::kTwice || fate == Fate::kInFlight))
      found->second->raylet().OnFetch(reader, request, [](const absl::StatusOr<Block>&) {});
    if (found == nodes_.end() || found->second->crashed() ||
        SeparateUntil(reader, node) > world_.now()) {
      return done(absl::UnavailableError("the node does not answer"));
    }
    found->second->raylet().OnFetch(
        reader, request, [this, delay, fate, done](absl::StatusOr<Block> block) {
          absl::StatusOr<std::unique_ptr<ReceivedBlock>> received =
              absl::UnavailableError("not served");
          if (fate == Fate::kReplyLost) {
            received = absl::UnavailableError("the answer is lost");
          } else if (!block.ok()) {
            received = block.status();
          } else {
            received = std::make_unique<OwnedBlock>(
                block->head, std::string(block->bytes.begin(), block->bytes.end()));
          }
          auto shared =
              std::make_shared<absl::StatusOr<std::unique_ptr<ReceivedBlock>>>(std::move(received));
          world_.queue.After(delay(), [shared, done] { done(std::move(*shared)); });
        });
    found->second->EndTurn();
  });
}

void InterNode::Schedule(Key key) {
  Stream& stream = streams_[key];
  if (stream.scheduled || stream.sent.empty()) return;
  stream.scheduled = true;
  world_.queue.At(stream.sent.front().at, [this, key] {
    streams_[key].scheduled = false;
    Deliver(key);
  });
}

void InterNode::Deliver(Key key) {
  Stream& stream = streams_[key];
  const auto found = nodes_.find(key.second);
  if (IsForgotten(key.second, key.first) || (found != nodes_.end() && found->second->crashed())) {
    stream = Stream();
    return;
  }
  if (stream.sent.empty()) return;  // Lost in a crash.
  // Registered, but it has not heard its number yet: a link keeps what it cannot deliver.
  if (found == nodes_.end()) {
    stream.sent.front().at = world_.now() + kMillisecond;
    return Schedule(key);
  }
  const Nanos until = SeparateUntil(key.first, key.second);
  if (until == kForever) return;
  if (until > world_.now()) {
    stream.sent.front().at = until;
    return Schedule(key);
  }
  Node& node = *found->second;
  if (node.paused_until > world_.now()) {
    stream.sent.front().at = node.paused_until;
    return Schedule(key);
  }
  const Sent frame = std::move(stream.sent.front());
  stream.sent.pop_front();
  const Nanos known_at = world_.now() + Delay(key.second, key.first);
  stream.acknowledged.emplace_back(
      stream.acknowledged.empty() ? known_at : std::max(known_at, stream.acknowledged.back().first),
      frame.body.size());
  Settle(key);
  Schedule(key);
  world_.trace.Frame(world_.now(), frame.from, frame.to, frame.kind, frame.body);
  node.raylet().OnRemoteFrame(frame.from, frame.to, frame.lane, {frame.kind, frame.body});
  node.EndTurn();
}

}  // namespace sheaf::sim
