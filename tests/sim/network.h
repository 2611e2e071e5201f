// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What lies between the processes of one node: pairs of rings, which lose nothing and keep the
// order of each lane, but take their time and hold only so much; frames in a ring outlive their
// sender. Each process has a LocalTransport, which behaves as shm/mailbox.h does: what finds no
// room waits in it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/transport.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void OnFrame(ProcessId from, const Frame& frame) = 0;
  // After one frame or a drained ring: what the process does before it looks at the next.
  virtual void EndTurn() = 0;
  // `reader` has made room in its ring, which this process asked for.
  virtual void OnRoom(ProcessId reader) = 0;

  bool alive = true;
  Nanos paused_until = 0;
  int sends_left = -1;  // At 0 the process dies in the middle of what it does; below: it does not.
};

class Network {
 public:
  explicit Network(World& world) : world_(world) {}

  void Attach(ProcessId process, Endpoint* endpoint) { endpoints_[process] = endpoint; }
  Endpoint* Find(ProcessId process);

  // A ring pair; each side reads and writes once it has opened it.
  void Join(ProcessId a, ProcessId b);
  // `process` has mapped its ring pair with `peer`.
  void Open(ProcessId process, ProcessId peer);
  // False: there is no room; OnRoom comes when there is some.
  bool Publish(ProcessId from, ProcessId to, Lane lane, FrameKind kind, std::string* body);
  // `reader` reads everything that `from` has published.
  void Drain(ProcessId from, ProcessId reader);
  // `reader` unmaps: what it has not read is gone.
  void Close(ProcessId from, ProcessId reader);

 private:
  struct Sent {
    FrameKind kind;
    std::string body;
    Nanos at;
  };
  struct Ring {
    ProcessId from, to;
    bool open = false;  // At the reader.
    bool closed = false;
    std::deque<Sent> lanes[2];
    size_t bytes[2] = {0, 0};
    bool writer_waits = false;
    bool scheduled[2] = {false, false};
    Nanos last_at[2] = {0, 0};
  };
  using Key = std::pair<ProcessId, ProcessId>;

  Ring* RingOf(ProcessId from, ProcessId to);
  Sent TakeFirst(Ring& ring, int lane);
  void CallWriter(ProcessId from, ProcessId to);
  void Schedule(Ring& ring, int lane);
  void Deliver(Ring& ring, int lane);
  Nanos Delay();
  bool SpoiltByPlant(Ring& ring, int lane, FrameKind kind, std::string* body);

  World& world_;
  absl::btree_map<ProcessId, Endpoint*> endpoints_;
  absl::btree_map<Key, Ring*> rings_;
  std::deque<Ring> all_;  // Addresses are stable: events name them.
};

class LocalTransport final : public Transport {
 public:
  // `make_contact` as in shm/mailbox.h.
  LocalTransport(World& world, Network& network, ProcessId self, Endpoint& endpoint,
                 std::function<void(ProcessId)> make_contact)
      : world_(world),
        network_(network),
        self_(self),
        endpoint_(endpoint),
        make_contact_(std::move(make_contact)) {}

  Channel& To(ProcessId peer) override;
  void Forget(ProcessId peer) override;
  void AddRing(ProcessId peer);
  bool HasRing(ProcessId peer) const;
  // Sends what waits for room with `peer`, as far as there is some.
  void Flush(ProcessId peer);
  // At the end of an event: nobody is left who could use a forgotten channel.
  void BuryForgotten() { forgotten_.clear(); }

 private:
  class RingChannel final : public Channel {
   public:
    RingChannel(LocalTransport& transport, ProcessId peer) : transport(transport), peer(peer) {}
    void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override;
    size_t queued_bytes() const override { return queued_size; }
    struct Queued {
      FrameKind kind;
      std::string body;
    };
    bool Put(Lane lane, FrameKind kind, std::string* body);  // False: there is no room.
    void Flush();
    LocalTransport& transport;
    const ProcessId peer;
    bool ring = false;
    bool dead = false;
    std::deque<Queued> queued[2];  // By lane.
    size_t queued_size = 0;
  };

  World& world_;
  Network& network_;
  const ProcessId self_;
  Endpoint& endpoint_;
  const std::function<void(ProcessId)> make_contact_;
  absl::btree_map<ProcessId, std::unique_ptr<RingChannel>> channels_;
  std::vector<std::unique_ptr<RingChannel>> forgotten_;
};

}  // namespace sheaf::sim
