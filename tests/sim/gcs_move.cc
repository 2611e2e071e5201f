// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A head that is stopped, the one that takes over with a copy of its disk, and the time in which
// both are there.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/gcs_host.h"
#include "tests/sim/node.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kLongestCut = 300 * kMillisecond;
// A shorter pause is none (gcs/pause_guard.h): who takes over sooner has to end the old head.
constexpr Nanos kShortestSleep = 3200 * kMillisecond, kLongestSleep = 12 * kSecond;
constexpr Nanos kFirstTakeOver = 100 * kMillisecond, kLastTakeOver = 8 * kSecond;
constexpr Nanos kAddressMoves = 200 * kMillisecond;
// The old head hears of the later term before it speaks again.
constexpr Nanos kHeardBy = 1800 * kMillisecond, kSpeaksAgain = 2 * kSecond;
constexpr Nanos kUntilOver = 100 * kMillisecond;

}  // namespace

// --- Connections. ---

void GcsHost::Meet(GcsHead& head, Node& node, bool node_dials, Nanos delay) {
  if (!meeting_.insert({&head, &node}).second) return;
  world_.queue.After(delay, [this, &head, &node, node_dials] { Dial(head, node, node_dials); });
}

void GcsHost::Dial(GcsHead& head, Node& node, bool node_dials) {
  const auto again = [&](Nanos at) {
    world_.queue.At(at, [this, &head, &node, node_dials] { Dial(head, node, node_dials); });
  };
  Connection& connection = connections_[&node];
  const bool is_over = head.deposed() || node.crashed() || connection.head == &head;
  if (!is_over) {
    const GcsHead& there = connection.is_local ? *connection.head : head;
    if (const GcsHead& who = head.asleep() ? head : there; who.asleep())
      return again(who.asleep_until());
    if (!Hears(&node) || node.paused_until > world_.now())
      return again(std::max(world_.now() + kDialPeriod, node.paused_until));
    if (connection.is_local) {
      ShakeHands(head, *connection.head);
    } else if (ShakeHands(head, connection, node_dials)) {
      Establish(head, node, connection);
    }
  }
  meeting_.erase({&head, &node});
}

bool GcsHost::ShakeHands(GcsHead& head, Connection& connection, bool node_dials) {
  const auto node_says = [&]() -> absl::Status {
    const GcsTerm& term = head.fence().term();
    if (connection.fence.term().Replaces(term) && world_.Planted(Plant::kOldHeadObeyed))
      connection.fence.SetTerm(term);
    return connection.fence.Compare(/*gcs_here=*/false, /*peer_is_gcs=*/true, term);
  };
  // The introduction of the node tells the term that it follows.
  const auto head_says = [&] {
    const absl::Status verdict =
        head.fence().Compare(/*gcs_here=*/true, /*peer_is_gcs=*/false, connection.fence.term());
    if (absl::IsAborted(verdict)) Depose(head);
    return verdict;
  };
  if (node_dials) return head_says().ok() && node_says().ok();
  if (const absl::Status refused = node_says(); !refused.ok()) {
    if (absl::IsAborted(TermFence::ForPeer(refused))) Depose(head);
    return false;
  }
  return head_says().ok();
}

void GcsHost::ShakeHands(GcsHead& dialling, GcsHead& accepting) {
  if (dialling.deposed() || accepting.deposed()) return;
  const GcsTerm theirs = dialling.fence().term();
  if (const absl::Status refused = accepting.fence().Compare(true, false, theirs); !refused.ok())
    return Depose(accepting);
  if (!dialling.fence().Compare(true, false, accepting.fence().term()).ok()) Depose(dialling);
}

void GcsHost::Establish(GcsHead& head, Node& node, Connection& connection) {
  const bool first = connection.number++ == 0;
  connection.head = &head;
  connection.life = head.life();
  if (!first) {
    node.OnGcsLink(false, 0);
    node.OnGcsLink(true, head.fence().term().term);
  }
  for (Message& message : std::exchange(connection.unread, {}))
    ToHead(connection, std::move(message));
  const auto unsent = unsent_.extract({&head, &node});
  if (unsent.empty()) return;
  for (Message& message : unsent.mapped()) Transmit(head, node, std::move(message));
}

void GcsHost::Lose(Node& node, Connection& connection) {
  connection.head = nullptr;
  ++connection.number;
  node.OnGcsLink(false, 0);
}

// --- One head in the place of another. ---

void GcsHost::Move(Node* beside) {
  if (!CanMove()) return;
  world_.Count(Fault::kSecondHead);
  old_ = current_;
  moved_at_ = kForever;
  if (beside != nullptr && connections_[beside].head == old_) {
    beside_ = beside;
    connections_[beside].is_local = true;
  }
  // Now and then with words that did not leave any more.
  cable_cut_ = world_.random.OneIn(2);
  world_.queue.After(cable_cut_ ? world_.Between(kMillisecond, kLongestCut) : 0,
                     [this] { StopOld(); });
}

void GcsHost::StopOld() {
  const Nanos sleep = world_.Between(kShortestSleep, kLongestSleep);
  const Nanos until = world_.now() + sleep;
  old_->Stop(until);
  // Before anything else that waits until then: its GCS did not survive that.
  if (world_.random.OneIn(3)) {
    old_->At(until, [old = old_] {
      if (old->up()) old->CrashNow(/*may_be_away=*/false);
    });
  }
  if (beside_ != nullptr) {
    if (world_.random.OneIn(2)) {
      beside_->Stop(until);
    } else {  // The process alone.
      beside_->paused_until = std::max(beside_->paused_until, until);
    }
  }
  std::vector<Node*> known;
  for (Node* node : nodes_) {
    const Connection& connection = connections_[node];
    if (connection.head == old_ && !connection.is_local && node->up()) known.push_back(node);
  }
  world_.queue.After(kSilence, [this, old = old_] {
    for (Node* node : nodes_) {
      Connection& connection = connections_[node];
      if (connection.head == old && !connection.is_local) Lose(*node, connection);
    }
  });
  world_.queue.After(world_.Between(kFirstTakeOver, std::min(kLastTakeOver, sleep)),
                     [this] { TakeOver(); });
  world_.queue.At(until, [this, known] { Wake(known); });
}

void GcsHost::TakeOver() {
  cable_cut_ = false;
  current_ = MakeHead(old_->rows());
  current_->Start();
  for (Node* node : nodes_) {
    // The address by which the head is known is that of another machine from now on; or it is not,
    // and what stands stays.
    if (world_.random.OneIn(2)) {
      world_.queue.After(world_.Between(0, kAddressMoves), [this, node, old = old_] {
        Connection& connection = connections_[node];
        if (connection.head == old && !connection.is_local && Hears(node)) Lose(*node, connection);
      });
    }
    Meet(*current_, *node, world_.random.OneIn(2), world_.Between(kMicrosecond, kDialPeriod));
  }
}

void GcsHost::Wake(const std::vector<Node*>& known) {
  // Its links dial those for whom they have something, at least.
  const bool all = world_.random.OneIn(2);
  for (Node* node : known) {
    if (all || unsent_.contains({old_, node}))
      Meet(*old_, *node, /*node_dials=*/false, world_.Between(0, kDialPeriod));
  }
  // Somebody is led to it once more.
  if (world_.random.OneIn(3) && !known.empty()) {
    Node* const node = known[world_.random.Below(known.size())];
    Connection& connection = connections_[node];
    if (connection.head == current_ && !node->crashed()) {
      Lose(*node, connection);
      Meet(*old_, *node, true, world_.Between(0, kDialPeriod));
      Meet(*current_, *node, true, kDialPeriod);
    }
  }
  // And the machines of both heads hear each other.
  world_.queue.After(world_.Between(0, kHeardBy), [this, old = old_, now = current_] {
    world_.random.OneIn(2) ? ShakeHands(*old, *now) : ShakeHands(*now, *old);
  });
  world_.queue.After(kSpeaksAgain + kUntilOver, [this, old = old_] {
    if (!old->deposed())
      world_.oracle.Fail("O8", absl::StrCat("head ", old->number(), " goes on beside head ",
                                            current_->number(), ", of a later term"));
  });
}

void GcsHost::Depose(GcsHead& head) {
  if (head.deposed()) return;
  if (&head == current_) {
    return world_.oracle.Fail("O8", absl::StrCat("head ", head.number(), ", which took over, ends",
                                                 " for one that it took the place of"));
  }
  head.Depose();
  world_.queue.After(kUntilOver, [this] { EndOld(); });
}

// Its node, and what runs there, ends with it.
void GcsHost::EndOld() {
  for (Node* node : nodes_) {
    Connection& connection = connections_[node];
    if (connection.head != old_ || connection.is_local || node->crashed()) continue;
    Lose(*node, connection);
    Meet(*current_, *node, true, world_.Between(0, kDialPeriod));
  }
  if (beside_ != nullptr) beside_->Vanish();
  beside_ = nullptr;
  old_ = nullptr;
  moved_at_ = world_.now();
}

}  // namespace sheaf::sim
