// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The real GcsService on a disk that takes its time, in a process that crashes: of what was not
// acknowledged the disk keeps the first part. Links to raylets lose, repeat and delay frames; both
// ends resend.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "gcs/gcs_service.h"
#include "gcs/memory_storage.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class Node;

class GcsHost final : public Transport {
 public:
  explicit GcsHost(World& world);
  ~GcsHost() override;

  void Start();
  // Dies, now or with its next write, and comes back later.
  void Crash();
  bool up() const { return service_ != nullptr; }
  // Its disk is full for so long: what is vital still gets there, the rest is refused.
  void FillDisk(Nanos duration) { full_until_ = world_.now() + duration; }
  // When it is back, and its disk has room.
  Nanos well_at() const { return std::max(back_at_, full_until_); }
  GcsService& service() { return *service_; }

  // `from`: the raylet of `node`, or {0, k} before it has a number.
  void Connect(Node& node) { nodes_.push_back(&node); }
  // What this node and the GCS send to each other until then is lost.
  void Separate(const Node& node, Nanos until) {
    away_until_[&node] = std::max(away_until_[&node], until);
  }
  void SendToGcs(ProcessId from, FrameKind kind, std::string body);

  Channel& To(ProcessId peer) override;
  void Forget(ProcessId) override {}

 private:
  class Disk;
  class NodeChannel final : public Channel {
   public:
    NodeChannel(GcsHost& host, ProcessId peer) : host_(host), peer_(peer) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override;
    size_t queued_bytes() const override { return 0; }

   private:
    GcsHost& host_;
    const ProcessId peer_;
  };
  void CrashNow();
  // The nodes' links to it are silent, or up again.
  void TellLinks(bool up);
  // What it says of nodes: who is dead stays so.
  void Judge(FrameKind kind, const std::string& body);
  void SaysOf(const proto::NodeInfo& node);
  // Planted: whoever had a name first has it for ever, in the words of the GCS.
  void NameFirstHolder(FrameKind kind, std::string* body);
  // Runs `deliver` after the way of one frame: never, once, or twice.
  void Carry(Fate fate, Nanos* last_at, std::function<void()> deliver);
  void DeliverToNode(ProcessId to, FrameKind kind, const std::string& body);
  void ScheduleTick();
  Node* Find(ProcessId peer) const;
  bool Hears(const Node* node) const;

  World& world_;
  SeededRandom random_;
  MemoryStorage::Disk rows_;
  std::unique_ptr<Disk> disk_;
  std::unique_ptr<GcsService> service_;
  uint64_t life_ = 0;  // Frames and timers of an earlier one are dropped.
  std::deque<Node*> nodes_;
  std::map<ProcessId, NodeChannel> channels_;
  std::map<ProcessId, Nanos> last_to_, last_from_;
  std::map<const Node*, Nanos> away_until_;
  std::set<NodeNumber> said_dead_;
  std::map<std::string, proto::ActorInfo> first_holders_;
  Nanos back_at_ = 0, full_until_ = 0;
};

}  // namespace sheaf::sim
