// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Orphans: references held on this node whose owner is dead and whose object is not in the store
// here. The other nodes are asked which of them have it, all nodes at once about all orphans that
// came since the last Tick. Those that have it keep it from then on, as long as this node holds the
// reference, and are its places. When the last place is lost all are asked anew. Pure: Clock and
// Transport come in by reference. One thread.
//
// To a node goes OrphanRefs, under a version that grows by one: what was dropped, then what is
// asked about. One version is on its way at a time and is sent again until it is answered
// (OrphanRefsAck), so it counts once. A question is settled when all nodes have answered it or are
// dead, at the latest after kAnswerLimit: a node that is silent, or too old to know the message,
// holds nobody up for longer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/transport.h"
#include "proto/raylet.pb.h"

namespace sheaf {

class OrphanLedger {
 public:
  static constexpr size_t kMaxIdsPerVersion = size_t{1} << 16;  // In each of its lists.
  static constexpr Nanos kAnswerLimit = 3 * kSecond;
  static constexpr Nanos kFirstResend = 200 * kMillisecond;
  static constexpr Nanos kLastResend = 2 * kSecond;

  // `others`: the other nodes that are alive.
  OrphanLedger(Clock& clock, Transport& transport, std::function<std::vector<NodeNumber>()> others);

  // Known ones stay as they are.
  void Add(ObjectId id);
  // This node does not hold `id` any more: its places hear so.
  void Remove(ObjectId id);
  // The places of `id` did not have it: they are places no more, and all nodes are asked anew.
  void PlacesFailed(ObjectId id);
  // kInvalidArgument: malformed.
  absl::Status OnAck(NodeNumber node, const proto::OrphanRefsAck& ack);
  void NodeGone(NodeNumber node);
  // Asks about what is new, and again what was not answered.
  void Tick();

  bool Contains(ObjectId id) const { return orphans_.contains(id); }
  bool IsOpen(ObjectId id) const;  // Asked about, and not settled.
  std::vector<NodeNumber> PlacesOf(ObjectId id) const;
  std::vector<ObjectId> ids() const;
  size_t size() const { return orphans_.size(); }
  // Those whose question is settled; where they are, PlacesOf says. Each once for each question.
  std::vector<ObjectId> TakeSettled() { return std::exchange(settled_, {}); }

 private:
  struct Orphan {
    std::vector<NodeNumber> places;
    bool open = true;
    uint64_t question = 0;  // The last that was about it; 0: it is in `wanted_`.
  };
  struct Question {
    uint64_t number = 0;
    std::vector<ObjectId> ids;
    absl::btree_set<NodeNumber> unanswered;
    Nanos until = 0;
    bool settled = false;
  };
  using QuestionPtr = std::shared_ptr<Question>;  // Shared by all who are asked.
  struct Peer {
    uint64_t version = 0;  // The last that was sent.
    std::string message;   // That version; empty: it is answered.
    Nanos resend_at = 0;
    Nanos resend_after = 0;
    std::vector<QuestionPtr> asked;  // In `message`.
    std::deque<QuestionPtr> to_ask;
    std::vector<ObjectId> to_drop;
  };

  void Ask(ObjectId id, Orphan& orphan);
  void MakeQuestions();
  void Answered(Question& question, NodeNumber node);
  void Settle(Question& question);
  void Send(NodeNumber node, Peer& peer);

  Clock& clock_;
  Transport& transport_;
  const std::function<std::vector<NodeNumber>()> others_;
  absl::btree_map<ObjectId, Orphan> orphans_;
  absl::btree_set<ObjectId> wanted_;   // To be asked about.
  std::deque<QuestionPtr> questions_;  // The oldest first; each goes when its time is over.
  absl::btree_map<NodeNumber, Peer> peers_;
  uint64_t last_question_ = 0;
  std::vector<ObjectId> settled_;
};

}  // namespace sheaf
