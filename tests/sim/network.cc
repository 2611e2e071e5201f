// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/network.h"

#include <algorithm>

#include "object_store/messages.h"
#include "proto/raylet.pb.h"
#include "worker/owner/back_pressure.h"
#include "worker/wire.h"

namespace sheaf::sim {
namespace {

constexpr uint64_t kPlantOneIn = 20;
constexpr Nanos kPlantedDelay = 60 * kSecond;

int LaneIndex(Lane lane) { return static_cast<int>(lane); }

}  // namespace

Endpoint* Network::Find(ProcessId process) {
  auto found = endpoints_.find(process);
  return found == endpoints_.end() ? nullptr : found->second;
}

Network::Ring* Network::RingOf(ProcessId from, ProcessId to) {
  auto found = rings_.find({from, to});
  return found == rings_.end() ? nullptr : found->second;
}

void Network::Join(ProcessId a, ProcessId b) {
  for (const Key& key : {Key{a, b}, Key{b, a}}) {
    Ring& ring = all_.emplace_back();
    ring.from = key.first;
    ring.to = key.second;
    rings_[key] = &ring;
  }
}

void Network::Open(ProcessId process, ProcessId peer) {
  Ring* ring = RingOf(peer, process);
  if (ring == nullptr || ring->open) return;
  ring->open = true;
  for (int lane : {0, 1}) {
    if (!ring->lanes[lane].empty()) Schedule(*ring, lane);
  }
}

Nanos Network::Delay() {
  SeededRandom& random = world_.random;
  if (world_.faults.slow_frame_one_in != 0 && random.OneIn(world_.faults.slow_frame_one_in)) {
    world_.Count(Fault::kSlowFrame);
    return world_.Between(kMillisecond, 300 * kMillisecond);
  }
  const uint64_t draw = random.Below(100);
  if (draw < 90) return world_.Between(500, 20 * kMicrosecond);
  if (draw < 99) return world_.Between(500, 500 * kMicrosecond);
  return world_.Between(500, 5 * kMillisecond);
}

// True: the ring does not do what rings do, and the frame is dealt with.
bool Network::SpoiltByPlant(Ring& ring, int lane, FrameKind kind, std::string* body) {
  auto drops = [&](Plant plant, FrameKind what) {
    return kind == what && world_.Planted(plant, kPlantOneIn);
  };
  if (drops(Plant::kDropReply, FrameKind::kTaskReply) || drops(Plant::kDropFree, kStoreFree) ||
      drops(Plant::kDropTransitDone, FrameKind::kTransitDone) ||
      drops(Plant::kDropLeaseReturn, FrameKind::kLeaseReturn) ||
      (kind == FrameKind::kCancelTask && world_.Planted(Plant::kDropCancel))) {
    return true;
  }
  if (kind == FrameKind::kProcessDied && world_.Planted(Plant::kLateDeath)) {
    world_.queue.After(kPlantedDelay, [this, &ring, lane, kind, late = *body] {
      ring.lanes[lane].push_back({kind, late, world_.now()});
      ring.bytes[lane] += late.size();
      if (ring.open) Schedule(ring, lane);
    });
    return true;
  }
  if (kind == FrameKind::kActorLease && world_.Planted(Plant::kEndlessLease)) {
    proto::ActorLease lease;
    lease.set_until_ns(kForever);
    *body = lease.SerializeAsString();
  }
  if (kind == FrameKind::kRelayed) {
    const auto* head = FrameHead<RelayHead>(*body);
    if (head->kind == static_cast<uint16_t>(kTaken) && world_.Planted(Plant::kLeakCredits))
      return true;
  }
  if (kind == FrameKind::kPushTask && world_.Planted(Plant::kDuplicatePush, kPlantOneIn)) {
    ring.lanes[lane].push_back({kind, *body, ring.last_at[lane]});
    ring.bytes[lane] += body->size();
  }
  if (kind == FrameKind::kTaskReply && body->size() > sizeof(TaskReplyHead) + sizeof(ReturnHead) &&
      world_.Planted(Plant::kCorruptReply, kPlantOneIn)) {
    (*body)[sizeof(TaskReplyHead) + sizeof(ReturnHead)] ^= 1;
  }
  if (kind == FrameKind::kPushTask && !ring.lanes[lane].empty() &&
      ring.lanes[lane].back().kind == kind && world_.Planted(Plant::kReorderCalls)) {
    std::swap(ring.lanes[lane].back().body, *body);
  }
  return false;
}

bool Network::Publish(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string* body) {
  Ring* ring = RingOf(from, to);
  if (ring == nullptr || ring->closed) return true;
  const int index = LaneIndex(lane);
  if (!ring->lanes[index].empty() && ring->bytes[index] + body->size() > world_.ring_bytes) {
    ring->writer_waits = true;
    return false;
  }
  if (kind == FrameKind::kLeaseBegin) {
    proto::LeaseBegin begin;
    if (begin.ParseFromString(*body) && begin.spec().actor()) {
      world_.oracle.ActorLeased(ActorId::FromBinary(begin.spec().actor_id()).value_or(ActorId()),
                                to);
    }
  }
  if (world_.plant != Plant::kNone && SpoiltByPlant(*ring, index, kind, body)) return true;
  const Nanos at = std::max(ring->last_at[index], world_.now() + Delay());
  ring->last_at[index] = at;
  ring->bytes[index] += body->size();
  ring->lanes[index].push_back({kind, std::move(*body), at});
  if (ring->open) Schedule(*ring, index);
  return true;
}

Network::Sent Network::TakeFirst(Ring& ring, int lane) {
  Sent first = std::move(ring.lanes[lane].front());
  ring.lanes[lane].pop_front();
  ring.bytes[lane] -= first.body.size();
  if (std::exchange(ring.writer_waits, false)) CallWriter(ring.from, ring.to);
  return first;
}

void Network::CallWriter(ProcessId from, ProcessId to) {
  world_.queue.After(Delay(), [this, from, to] {
    Endpoint* writer = Find(from);
    if (writer == nullptr || !writer->alive) return;
    if (writer->paused_until > world_.now()) return CallWriter(from, to);
    writer->OnRoom(to);
    writer->EndTurn();
  });
}

void Network::Schedule(Ring& ring, int lane) {
  if (ring.scheduled[lane]) return;
  ring.scheduled[lane] = true;
  world_.queue.At(ring.lanes[lane].front().at, [this, &ring, lane] {
    ring.scheduled[lane] = false;
    Deliver(ring, lane);
  });
}

void Network::Deliver(Ring& ring, int lane) {
  if (ring.closed || ring.lanes[lane].empty()) return;
  Endpoint* reader = Find(ring.to);
  if (reader == nullptr || !reader->alive) return;
  Sent& front = ring.lanes[lane].front();
  const Nanos not_before = std::max(front.at, reader->paused_until);
  if (not_before > world_.now()) {
    front.at = not_before;
    Schedule(ring, lane);
    return;
  }
  const Sent frame = TakeFirst(ring, lane);
  if (!ring.lanes[lane].empty()) Schedule(ring, lane);
  world_.trace.Frame(world_.now(), ring.from, ring.to, frame.kind, frame.body);
  reader->OnFrame(ring.from, {frame.kind, frame.body});
  reader->EndTurn();
}

void Network::Drain(ProcessId from, ProcessId reader_id) {
  Ring* ring = RingOf(from, reader_id);
  Endpoint* reader = Find(reader_id);
  if (ring == nullptr || !ring->open || reader == nullptr) return;
  for (int lane : {LaneIndex(Lane::kControl), LaneIndex(Lane::kWork)}) {
    while (!ring->closed && !ring->lanes[lane].empty()) {
      const Sent frame = TakeFirst(*ring, lane);
      world_.trace.Frame(world_.now(), from, reader_id, frame.kind, frame.body);
      reader->OnFrame(from, {frame.kind, frame.body});
    }
  }
}

void Network::Close(ProcessId from, ProcessId reader) {
  if (Ring* ring = RingOf(from, reader)) ring->closed = true;
}

Channel& LocalTransport::To(ProcessId peer) {
  auto found = channels_.find(peer);
  if (found != channels_.end()) return *found->second;
  RingChannel& made =
      *channels_.emplace(peer, std::make_unique<RingChannel>(*this, peer)).first->second;
  make_contact_(peer);  // May forget it at once.
  return made;
}

void LocalTransport::Forget(ProcessId peer) {
  auto found = channels_.find(peer);
  if (found == channels_.end()) return;
  found->second->dead = true;
  for (auto& queue : found->second->queued) queue.clear();
  found->second->queued_size = 0;
  forgotten_.push_back(std::move(found->second));
  channels_.erase(found);
  network_.Close(peer, self_);
}

bool LocalTransport::HasRing(ProcessId peer) const {
  auto found = channels_.find(peer);
  return found != channels_.end() && found->second->ring;
}

void LocalTransport::AddRing(ProcessId peer) {
  if (HasRing(peer)) return;
  auto found = channels_.find(peer);
  if (found == channels_.end())
    found = channels_.emplace(peer, std::make_unique<RingChannel>(*this, peer)).first;
  RingChannel& channel = *found->second;
  channel.ring = true;
  network_.Open(self_, peer);
  channel.Flush();
}

void LocalTransport::Flush(ProcessId peer) {
  auto found = channels_.find(peer);
  if (found != channels_.end() && found->second->ring) found->second->Flush();
}

void LocalTransport::RingChannel::Flush() {
  for (Lane lane : {Lane::kControl, Lane::kWork}) {
    std::deque<Queued>& waiting = queued[LaneIndex(lane)];
    while (!waiting.empty()) {
      const size_t size = waiting.front().body.size();
      if (!Put(lane, waiting.front().kind, &waiting.front().body)) break;
      waiting.pop_front();
      queued_size -= size;
    }
  }
}

bool LocalTransport::RingChannel::Put(Lane lane, FrameKind kind, std::string* body) {
  int& left = transport.endpoint_.sends_left;
  if (left == 0) return true;
  if (!transport.network_.Publish(transport.self_, peer, lane, kind, body)) return false;
  if (left > 0) --left;
  return true;
}

void LocalTransport::RingChannel::Send(Lane lane, FrameKind kind, std::string_view head,
                                       std::string_view tail) {
  if (dead || !transport.endpoint_.alive) return;
  std::string body;
  body.reserve(head.size() + tail.size());
  body.append(head).append(tail);
  std::deque<Queued>& waiting = queued[LaneIndex(lane)];
  if (ring && waiting.empty() && Put(lane, kind, &body)) return;
  queued_size += body.size();
  waiting.push_back({kind, std::move(body)});
}

}  // namespace sheaf::sim
