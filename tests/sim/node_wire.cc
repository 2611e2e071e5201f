// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/node_wire.h"

#include "tests/sim/node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/link_state.h"
#include "rpc/link_wire.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kAcknowledgeDelay = 20 * kMillisecond;

// Messages are acknowledged some time after they came, so there is room for several.
constexpr uint64_t kRoomFor = 8;

LinkState::Options OptionsOf(const World& world, uint64_t stream) {
  LinkState::Options options;
  options.stream = stream | 1;
  options.max_unacknowledged_bytes = kRoomFor * world.link_bytes;
  options.acknowledge_delay = kAcknowledgeDelay;
  options.ping_period = kForever / 2;  // Nobody looks for silence here.
  return options;
}

// Bytes where frames may lie: at a multiple of 8.
std::shared_ptr<const std::vector<uint64_t>> Aligned(std::string_view bytes) {
  auto words = std::make_shared<std::vector<uint64_t>>((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(words->data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

struct NodeWire::End {
  End(const World& world, uint64_t stream) : state(OptionsOf(world, stream)) {}
  LinkState state;
  Nanos last_at = 0;            // When the last message that it wrote arrives.
  uint64_t sent = 0, came = 0;  // Frames: sent by it, and handed over at the other end.
  bool pump_later = false;
};

NodeWire::NodeWire(World& world, std::function<Nanos()> delay,
                   std::function<void(const LinkFrame&)> deliver)
    : world_(world),
      delay_(std::move(delay)),
      deliver_(std::move(deliver)),
      ends_{std::make_unique<End>(world, world.random.Next()),
            std::make_unique<End>(world, world.random.Next())} {
  Break();
}

NodeWire::~NodeWire() = default;

size_t NodeWire::queued_bytes(int end) const { return ends_[end]->state.queued_bytes(); }

void NodeWire::Close() {
  closed_ = true;
  ++connection_;
}

void NodeWire::CheckAtRest() const {
  for (const auto& end : ends_) {
    if (!closed_ && end->came < end->sent && end->last_at + kSecond < world_.now())
      world_.oracle.Fail("O1", absl::StrCat("of ", end->sent, " frames a link has brought ",
                                            end->came, ", and no more are on their way"));
  }
}

void NodeWire::Send(int end, const LinkFrame& frame) {
  if (closed_) return;
  ends_[end]->state.Queue(frame);
  ends_[end]->state.Flush();
  ++ends_[end]->sent;
  // The frames of one turn travel together.
  if (ends_[end]->pump_later) return;
  ends_[end]->pump_later = true;
  world_.queue.After(kMicrosecond, [this, end] {
    ends_[end]->pump_later = false;
    Pump(end);
  });
}

void NodeWire::Pump(int end) {
  if (closed_) return;
  while (const auto message = ends_[end]->state.NextToWrite(world_.now())) {
    std::string bytes(reinterpret_cast<const char*>(&message->header), sizeof message->header);
    if (message->payload != nullptr) bytes.append(*message->payload);
    Write(end, std::move(bytes));
  }
}

// An acknowledgement with nothing to ride on.
void NodeWire::PumpLater(int end) {
  world_.queue.After(kAcknowledgeDelay + kMicrosecond, [this, end] { Pump(end); });
}

void NodeWire::Write(int end, std::string bytes) {
  Nanos& last_at = ends_[end]->last_at;
  last_at = std::max(last_at, world_.now() + delay_());
  world_.queue.At(last_at, [this, end, connection = connection_, bytes = std::move(bytes)] {
    Arrive(end, connection, bytes);
  });
}

void NodeWire::Arrive(int end, uint64_t connection, const std::string& bytes) {
  if (closed_ || connection != connection_) return;
  MessageHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  Fate fate = Fate::kWhole;
  std::vector<FrameKind> kinds;
  // Of a payload in pieces the last message tells the number of frames, but holds none whole.
  if (header.sequence != 0 && header.more == 0 && header.frame_count > 0) {
    const auto words = Aligned(std::string_view(bytes).substr(sizeof header));
    const std::string_view payload(reinterpret_cast<const char*>(words->data()),
                                   bytes.size() - sizeof header);
    if (CheckFrames(payload, header.frame_count).ok()) {
      PayloadBatch(words, payload).ForEach([&](const LinkFrame& frame) {
        kinds.push_back(frame.kind);
      });
      fate = world_.methods->OfMessage(kinds);
    }
  }
  switch (fate) {
    case Fate::kLost:  // With all that is on its way.
      return Break();
    case Fate::kInFlight:  // It comes all the same, beside the one that is sent again.
      late_.emplace_back(end, bytes);
      return Break();
    case Fate::kReplyLost:
      Take(end, bytes);
      return Break();
    case Fate::kTwice:
      Take(end, bytes);
      if (Take(end, bytes)) world_.oracle.Fail("O5", "a link hands over a message twice");
      return;
    case Fate::kWhole:
      Take(end, bytes);
      return;
  }
}

bool NodeWire::Take(int end, const std::string& bytes) {
  End& writer = *ends_[end];
  LinkState& reader = ends_[1 - end]->state;
  const auto words = Aligned(bytes);
  const std::string_view whole(reinterpret_cast<const char*>(words->data()), bytes.size());
  const auto header = ParseMessageHeader(whole, whole.size());
  auto received = header.ok() ? reader.Receive(*header, words, whole.substr(sizeof(MessageHeader)),
                                               world_.now())
                              : absl::StatusOr<LinkState::Received>(header.status());
  if (!received.ok()) {
    world_.oracle.Fail("O5", absl::StrCat("a link refuses what its other end wrote: ",
                                          received.status().message()));
    return false;
  }
  if (reader.HasSomethingToSend()) Pump(1 - end);  // What was acknowledged has made room.
  if (received->sequence == 0) return !received->duplicate;
  PayloadBatch(received->hold, received->payload).ForEach([&](const LinkFrame& frame) {
    ++writer.came;
    deliver_(frame);
  });
  if (writer.came > writer.sent)
    world_.oracle.Fail("O5", absl::StrCat("a link handed over ", writer.came, " frames of ",
                                          writer.sent, " that were sent"));
  reader.HandedOver(reader.peer_stream(), received->sequence);
  PumpLater(1 - end);
  return true;
}

// The connection ends with all that is on its way, and another one begins.
void NodeWire::Break() {
  ++connection_;
  for (auto& end : ends_) end->state.Disconnected();
  if (std::exchange(connecting_, true)) return;
  world_.queue.After(world_.Between(kMillisecond, 20 * kMillisecond), [this] {
    connecting_ = false;
    if (closed_) return;
    LinkState &a = ends_[0]->state, &b = ends_[1]->state;
    const uint64_t known[2] = {b.peer_stream(), a.peer_stream()};
    const uint64_t has[2] = {b.ReceivedOf(a.stream()), a.ReceivedOf(b.stream())};
    for (int end : {0, 1}) {
      ends_[end]->last_at = world_.now();
      const auto again = ends_[end]->state.Connected(ends_[1 - end]->state.stream(), known[end],
                                                     has[end], world_.now());
      if (!again.ok())
        world_.oracle.Fail("O5", absl::StrCat("a link does not go on: ", again.status().message()));
    }
    for (const auto& [end, bytes] : std::exchange(late_, {})) {
      world_.queue.After(delay_(), [this, end, bytes, connection = connection_] {
        if (!closed_ && connection == connection_) Take(end, bytes);
      });
    }
    for (int end : {0, 1}) Pump(end);
  });
}

// --- Commands that were submitted. ---

void Node::StartEntrypoint(const proto::Entrypoint& entrypoint, const std::vector<uint32_t>&) {
  const std::string& id = entrypoint.submission_id();
  commands_.insert(id);
  world_.oracle.CommandStarts(id, number());
  if (world_.Planted(Plant::kSecondStart)) world_.oracle.CommandStarts(id, number());
  OnLoop(world_.Between(100 * kMicrosecond, 5 * kMillisecond), [this, id] {
    if (!commands_.contains(id)) return;  // It was ended before.
    proto::EntrypointReport::Running running;
    running.set_os_pid(4711);
    raylet_->OnEntrypointRunning(id, running);
  });
  proto::Death death;
  death.set_cause(proto::Death::EXITED);
  death.set_code(world_.random.OneIn(4) ? 3 : 0);
  EndCommand(id, world_.Between(10 * kMillisecond, 200 * kMillisecond), std::move(death));
}

void Node::StopEntrypoint(const std::string& submission_id) {
  proto::Death death;
  death.set_cause(proto::Death::SIGNALLED);
  death.set_code(15);
  EndCommand(submission_id, world_.Between(100 * kMicrosecond, 20 * kMillisecond),
             std::move(death));
}

void Node::EndCommand(const std::string& submission_id, Nanos delay, proto::Death death) {
  OnLoop(delay, [this, submission_id, death = std::move(death)] {
    if (commands_.erase(submission_id) == 0) return;
    if (death.cause() == proto::Death::EXITED)
      world_.oracle.CommandEnds(submission_id, death.code() == 0);
    if (world_.Planted(Plant::kLostEnd)) return;
    proto::EntrypointReport::Ended ended;
    *ended.mutable_death() = death;
    if (death.code() != 0 && world_.Planted(Plant::kWrongEnd)) ended.mutable_death()->set_code(0);
    raylet_->OnEntrypointEnded(submission_id, std::move(ended));
  });
}

}  // namespace sheaf::sim
