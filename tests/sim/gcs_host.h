// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The heads of a cluster, one after the other, and the connections of nodes to them. Links to
// raylets lose, repeat and delay frames; both ends resend. A connection leads to one head: when it
// is made both ends compare the terms that they follow, with what real links compare them with
// (rpc/term_fence.h), and what was sent over an earlier one does not arrive.
//
// A head may be stopped while one with a copy of its disk takes over: nodes go over to that, and
// the old one wakes with all that was sent to it in its sleep. From then on nobody takes anything
// of it that it says, and it ends when it hears of the later term; anything else fails the run.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/gcs_head.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

class Node;

class GcsHost {
 public:
  static constexpr Nanos kDialPeriod = kSecond;  // Of links that are down.

  explicit GcsHost(World& world);
  ~GcsHost();

  void Start() { current_->Start(); }
  // The GCS dies, now or with its next write, and comes back later.
  void Crash();
  // The head is stopped, and another one takes over. `beside`, if there is one, is the node of the
  // old head: it stands still with it, and ends with it. Nothing, while another head is being left.
  void Move(Node* beside);
  bool CanMove() const { return old_ == nullptr && current_->up(); }
  bool up() const { return current_->up(); }
  // The disk of the head is full for so long: what is vital still gets there, the rest is refused.
  void FillDisk(Nanos duration) { current_->FillDisk(duration); }
  // When it is back, its disk has room, and it is alone.
  Nanos well_at() const { return std::max(current_->well_at(), moved_at_); }
  GcsService& service() { return current_->service(); }

  // `from`: the raylet of `node`, or {0, k} before it has a number.
  void Connect(Node& node) { nodes_.push_back(&node); }
  // What this node and any head send to each other until then is lost.
  void Separate(const Node& node, Nanos until) {
    away_until_[&node] = std::max(away_until_[&node], until);
  }
  void SendToGcs(ProcessId from, FrameKind kind, std::string body);

 private:
  struct Message {
    ProcessId peer;  // The raylet.
    FrameKind kind;
    std::string body;
    bool late = false;  // Said by a head that woke when another one led.
  };
  // Of one node.
  struct Connection {
    TermFence fence;          // As the links of the node have it.
    GcsHead* head = nullptr;  // Null: there is none, until a head is met.
    uint64_t number = 0;      // Of what was sent over an earlier one nothing arrives.
    uint64_t life = 0;        // Of the head, when it served last: nothing arrives of earlier ones.
    bool is_local = false;    // The node is that of the head.
    uint64_t heard = 0;       // The last of the heads of which it has taken something.
    // What has not arrived at a head, or lies before it and is not read: sent again to the next.
    std::vector<Message> unread;
  };
  GcsHead* MakeHead(MemoryStorage::Disk rows);
  // Of `head`: a frame leaves it.
  void OnOut(GcsHead& head, ProcessId to, FrameKind kind, std::string body);
  void Transmit(GcsHead& head, Node& node, Message message);
  void DeliverToNode(GcsHead& head, uint64_t life, Node& node, uint64_t number,
                     const Message& message);
  void ToHead(Connection& connection, Message message);
  void Arrive(GcsHead& head, uint64_t life, Connection& connection, const Message& message);
  // The links of nodes that are connected to `head` are silent, or up again.
  void TellLinks(GcsHead& head, bool up);
  // What this node and the head send to each other does not leave.
  bool IsCut(const GcsHead& head, const Connection& connection) const {
    return cable_cut_ && &head == current_ && !connection.is_local;
  }

  // gcs_move.cc: how heads and nodes meet, and how one head takes the place of another.
  // In `delay`: one of them dials, and again until they are connected, one of them refuses, or one
  // is over.
  void Meet(GcsHead& head, Node& node, bool node_dials, Nanos delay);
  void Dial(GcsHead& head, Node& node, bool node_dials);
  // Both compare terms; who hears that its own is over ends. False: there is no connection.
  bool ShakeHands(GcsHead& head, Connection& connection, bool node_dials);
  void ShakeHands(GcsHead& dialling, GcsHead& accepting);  // The nodes of two heads.
  void Establish(GcsHead& head, Node& node, Connection& connection);
  void Lose(Node& node, Connection& connection);
  void StopOld();
  void TakeOver();
  void Wake(const std::vector<Node*>& known);
  void Depose(GcsHead& head);
  void EndOld();

  // What it says of nodes: who is dead stays so.
  void Judge(FrameKind kind, const std::string& body);
  void SaysOf(const proto::NodeInfo& node);
  // Planted: whoever had a name first has it for ever, in the words of the GCS.
  void NameFirstHolder(FrameKind kind, std::string* body);
  void TakeAllForReported(GcsHead& head);
  // Runs `deliver` after the way of one frame: never, once, or twice.
  // `keeps_place`: no later frame overtakes it, as on real links none does any.
  void Carry(Fate fate, Nanos* last_at, std::function<void()> deliver, bool keeps_place = false);
  Node* Find(ProcessId peer) const;
  bool Hears(const Node* node) const;

  World& world_;
  std::vector<std::unique_ptr<GcsHead>> heads_;
  GcsHead* current_;
  GcsHead* old_ = nullptr;  // Beside it, or stopped before it takes over.
  Node* beside_ = nullptr;  // The node of that one.
  bool cable_cut_ = false;  // Of the head that is about to stop.
  Nanos moved_at_ = 0;
  std::deque<Node*> nodes_;
  std::map<const Node*, Connection> connections_;
  std::map<std::pair<const GcsHead*, const Node*>, std::vector<Message>> unsent_;
  std::set<std::pair<const GcsHead*, const Node*>> meeting_;
  std::map<ProcessId, Nanos> last_to_, last_from_;
  std::map<const Node*, Nanos> away_until_;
  std::set<NodeNumber> said_dead_;
  std::map<std::string, proto::ActorInfo> first_holders_;
};

}  // namespace sheaf::sim
