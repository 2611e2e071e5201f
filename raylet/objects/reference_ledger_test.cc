// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/objects/reference_ledger.h"

#include <catch2/catch.hpp>
#include <set>

#include "base/fake_clock.h"
#include "base/random.h"
#include "base/testing/recording_transport_for_test.h"

namespace sheaf {
namespace reference_ledger_test {

constexpr NodeNumber kNode = 1;
constexpr ProcessId kOwner{1, 1};
constexpr ProcessId kRemoteOwner{2, 1};
constexpr ProcessId kA{1, 2};
constexpr ProcessId kB{1, 3};

std::vector<ObjectId> Ids(const std::string& bytes) { return ParseIds(bytes).value(); }
ObjectId Object(ProcessId owner, uint64_t sequence) { return ObjectId::Make(owner, sequence, 1); }

struct LedgerTest {
  LedgerTest()
      : ledger(kNode, clock, transport, [this](ProcessId owner) { return dead.contains(owner); }) {}

  absl::Status Report(ProcessId holder, uint64_t sequence, const std::vector<ObjectId>& held,
                      const std::vector<ObjectId>& dropped = {}) {
    proto::RefsReport report;
    report.set_sequence(sequence);
    for (const ObjectId id : held) AppendId(report.mutable_held_ids(), id);
    for (const ObjectId id : dropped) AppendId(report.mutable_dropped_ids(), id);
    return ledger.OnReport(holder, report);
  }
  std::vector<proto::NodeRefs> ToOwner(ProcessId owner = kOwner) {
    return transport.Take<proto::NodeRefs>(owner, FrameKind::kNodeRefs);
  }
  std::vector<proto::RefsReported> Answers(ProcessId holder) {
    return transport.Take<proto::RefsReported>(holder, FrameKind::kRefsReported);
  }
  void Ack(ProcessId owner, uint64_t version) {
    proto::NodeRefsAck ack;
    ack.set_node(kNode);
    ack.set_version(version);
    ledger.OnAck(owner, ack);
  }

  FakeClock clock;
  RecordingTransport transport;
  std::set<ProcessId> dead;
  ReferenceLedger ledger;
};

SCENARIO("a report is answered when the owner knows") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1), Object(kOwner, 2)}).ok());
  const auto told = t.ToOwner();
  REQUIRE(told.size() == 1);
  CHECK(told[0].node() == kNode);
  CHECK(told[0].version() == 1);
  CHECK(Ids(told[0].held_ids()).size() == 2);
  CHECK(t.Answers(kA).empty());
  t.Ack(kOwner, 1);
  const auto answers = t.Answers(kA);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].sequence() == 1);
  CHECK(answers[0].orphan_ids().empty());
  CHECK(t.ledger.IsHeld(Object(kOwner, 1)));
}

SCENARIO("the owner hears of a node once, however many of its processes hold the object") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  t.Ack(kOwner, 1);
  t.ToOwner();
  REQUIRE(t.Report(kB, 1, {Object(kOwner, 1)}).ok());
  CHECK(t.ToOwner().empty());
  CHECK(t.Answers(kB).size() == 1);  // At once: the owner knows.
  REQUIRE(t.Report(kA, 2, {}, {Object(kOwner, 1)}).ok());
  CHECK(t.ToOwner().empty());
  REQUIRE(t.Report(kB, 2, {}, {Object(kOwner, 1)}).ok());
  const auto told = t.ToOwner();
  REQUIRE(told.size() == 1);
  CHECK(told[0].version() == 2);
  CHECK(Ids(told[0].dropped_ids()).size() == 1);
}

SCENARIO("one version is on its way at a time, and is sent until it is acknowledged") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  REQUIRE(t.Report(kA, 2, {Object(kOwner, 2)}).ok());
  REQUIRE(t.Report(kB, 1, {Object(kOwner, 3)}).ok());
  CHECK(t.ToOwner().size() == 1);
  for (int i = 0; i < 3; ++i) {
    t.clock.Advance(3 * kSecond);
    t.ledger.Tick();
    const auto again = t.ToOwner();
    REQUIRE(again.size() == 1);
    CHECK(again[0].version() == 1);
  }
  t.Ack(kOwner, 7);  // Nonsense.
  CHECK(t.Answers(kA).empty());
  t.Ack(kOwner, 1);
  CHECK(t.Answers(kA).size() == 1);
  const auto next = t.ToOwner();
  REQUIRE(next.size() == 1);
  CHECK(next[0].version() == 2);
  CHECK(Ids(next[0].held_ids()).size() == 2);  // All that came meanwhile.
  t.Ack(kOwner, 1);                            // A duplicate.
  CHECK(t.Answers(kA).empty());
  t.Ack(kOwner, 2);
  CHECK(t.Answers(kA).size() == 1);
  CHECK(t.Answers(kB).size() == 1);
  t.clock.Advance(10 * kSecond);
  t.ledger.Tick();
  CHECK(t.ToOwner().empty());
}

SCENARIO("a reference gained and lost before it was told is never told") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());  // On its way.
  REQUIRE(t.Report(kA, 2, {Object(kOwner, 2)}).ok());  // Waits.
  REQUIRE(t.Report(kA, 3, {}, {Object(kOwner, 2)}).ok());
  t.ToOwner();
  t.Answers(kA);
  t.Ack(kOwner, 1);
  CHECK(t.ToOwner().empty());
  CHECK(t.Answers(kA).size() == 2);  // Of reports 1 and 2.
  CHECK_FALSE(t.ledger.IsHeld(Object(kOwner, 2)));
}

SCENARIO("dropped and held again before the drop was told: the owner hears nothing") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  t.Ack(kOwner, 1);
  t.ToOwner();
  REQUIRE(t.Report(kA, 2, {Object(kOwner, 9)}).ok());  // Keeps the line busy.
  t.ToOwner();
  REQUIRE(t.Report(kA, 3, {}, {Object(kOwner, 1)}).ok());
  REQUIRE(t.Report(kB, 1, {Object(kOwner, 1)}).ok());
  CHECK(t.Answers(kB).size() == 1);
  t.Ack(kOwner, 2);
  CHECK(t.ToOwner().empty());
  CHECK(t.ledger.IsHeld(Object(kOwner, 1)));
}

SCENARIO("an id in both lists of a report stays as it was") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  REQUIRE(t.Report(kA, 2, {Object(kOwner, 1), Object(kOwner, 2)},
                   {Object(kOwner, 2), Object(kOwner, 1)})
              .ok());
  CHECK(t.ledger.IsHeld(Object(kOwner, 1)));
  CHECK_FALSE(t.ledger.IsHeld(Object(kOwner, 2)));
}

SCENARIO("references to a dead owner are orphans: a report waits until they are settled") {
  LedgerTest t;
  t.dead.insert(kOwner);
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1), Object(kRemoteOwner, 1)}).ok());
  CHECK(t.ToOwner().empty());
  CHECK(t.ledger.TakeOrphans() == std::vector{Object(kOwner, 1)});
  CHECK(t.ledger.TakeOrphans().empty());
  if (GENERATE(true, false)) {
    t.Ack(kRemoteOwner, 1);
    CHECK(t.Answers(kA).empty());
    t.ledger.Settled({Object(kOwner, 1)});
  } else {
    t.ledger.Settled({Object(kOwner, 1), Object(kOwner, 2)});
    CHECK(t.Answers(kA).empty());  // The other owner has still to acknowledge.
    t.Ack(kRemoteOwner, 1);
  }
  const auto answers = t.Answers(kA);
  REQUIRE(answers.size() == 1);
  CHECK(Ids(answers[0].orphan_ids()) == std::vector{Object(kOwner, 1)});
  THEN("the next holder is answered at once") {
    REQUIRE(t.Report(kB, 1, {Object(kOwner, 1)}).ok());
    CHECK(t.Answers(kB).size() == 1);
    CHECK(t.ledger.TakeOrphans().empty());
  }
}

SCENARIO("an orphan that is dropped, or whose holder dies, holds up no report") {
  LedgerTest t;
  t.dead.insert(kOwner);
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  if (GENERATE(true, false)) {
    REQUIRE(t.Report(kA, 2, {}, {Object(kOwner, 1)}).ok());
    CHECK(t.Answers(kA).size() == 2);
  } else {
    t.ledger.DropHolder(kA);
    CHECK(t.Answers(kA).empty());
  }
  CHECK(t.ledger.TakeUnheld() == std::vector{Object(kOwner, 1)});
  CHECK(t.ledger.unanswered_reports() == 0);
  CHECK(t.ledger.OwnersOn(kOwner.node).empty());
  THEN("held again it is a new orphan") {
    t.ledger.TakeOrphans();
    REQUIRE(t.Report(kB, 1, {Object(kOwner, 1)}).ok());
    CHECK(t.ledger.TakeOrphans() == std::vector{Object(kOwner, 1)});
    CHECK(t.Answers(kB).empty());
  }
}

SCENARIO("another node holds what is here for it, as a process would") {
  LedgerTest t;
  t.dead.insert(kOwner);
  t.ledger.Hold(RayletOf(2), Object(kOwner, 1));
  CHECK(t.ledger.Holds(RayletOf(2), Object(kOwner, 1)));
  CHECK(t.ledger.IsHeld(Object(kOwner, 1)));
  CHECK(t.ledger.holders().empty());  // Processes.
  CHECK(t.ledger.HoldersOf(kOwner).empty());
  if (GENERATE(true, false)) {
    t.ledger.Unhold(RayletOf(2), Object(kOwner, 1));
  } else {
    t.ledger.DropHolder(RayletOf(2));
  }
  CHECK(t.ledger.TakeUnheld() == std::vector{Object(kOwner, 1)});
  CHECK(t.ledger.held_references() == 0);
}

SCENARIO("an owner that dies instead of acknowledging leaves orphans") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  REQUIRE(t.Report(kB, 1, {Object(kOwner, 2)}).ok());
  CHECK(t.ledger.OwnersOn(kOwner.node) == std::vector{kOwner});
  t.ledger.OwnerDied(kOwner);
  CHECK(t.Answers(kA).empty());
  CHECK(t.ledger.TakeOrphans() == std::vector{Object(kOwner, 1), Object(kOwner, 2)});
  t.ledger.Settled({Object(kOwner, 1), Object(kOwner, 2)});
  REQUIRE(t.Answers(kA).size() == 1);
  const auto answers = t.Answers(kB);
  REQUIRE(answers.size() == 1);
  CHECK(Ids(answers[0].orphan_ids()) == std::vector{Object(kOwner, 2)});
  CHECK(t.ledger.HoldersOf(kOwner) == std::vector{kA, kB});
  THEN("when the last holder drops one, that is said once") {
    REQUIRE(t.Report(kA, 2, {}, {Object(kOwner, 1)}).ok());
    CHECK(t.ledger.TakeUnheld() == std::vector{Object(kOwner, 1)});
    CHECK(t.ledger.TakeUnheld().empty());
    t.ledger.DropHolder(kB);
    CHECK(t.ledger.TakeUnheld() == std::vector{Object(kOwner, 2)});
    CHECK(t.ledger.held_references() == 0);
  }
}

SCENARIO("a holder's death drops all it held, and nobody answers it") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1), Object(kRemoteOwner, 1)}).ok());
  REQUIRE(t.Report(kB, 1, {Object(kOwner, 1)}).ok());
  t.Ack(kOwner, 1);
  t.Ack(kRemoteOwner, 1);
  t.ToOwner(), t.ToOwner(kRemoteOwner), t.Answers(kA);
  t.ledger.DropHolder(kA);
  CHECK(t.ToOwner().empty());  // B holds it still.
  const auto told = t.ToOwner(kRemoteOwner);
  REQUIRE(told.size() == 1);
  CHECK(Ids(told[0].dropped_ids()).size() == 1);
  CHECK(t.ledger.unanswered_reports() == 0);
}

SCENARIO("a repeated report changes nothing and is answered again") {
  LedgerTest t;
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());  // Unanswered yet: its answer will do.
  t.Ack(kOwner, 1);
  CHECK(t.Answers(kA).size() == 1);
  REQUIRE(t.Report(kA, 2, {}, {Object(kOwner, 1)}).ok());
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1)}).ok());
  CHECK(t.Answers(kA).size() == 2);
  CHECK_FALSE(t.ledger.IsHeld(Object(kOwner, 1)));
}

SCENARIO(
    "a reference that comes and goes several times within one report ends as it did once more") {
  LedgerTest t;
  const ObjectId id = Object(kOwner, 1);
  GIVEN("it was not held") {
    REQUIRE(t.Report(kA, 1, {id, id}, {id}).ok());
    CHECK(t.ledger.IsHeld(id));
  }
  GIVEN("it was held") {
    REQUIRE(t.Report(kA, 1, {id}).ok());
    t.Ack(kOwner, 1);
    t.ToOwner();
    THEN("dropped, held and dropped again it is dropped, and its owner hears so") {
      REQUIRE(t.Report(kA, 2, {id}, {id, id}).ok());
      CHECK_FALSE(t.ledger.IsHeld(id));
      const auto told = t.ToOwner();
      REQUIRE(told.size() == 1);
      CHECK(Ids(told[0].dropped_ids()) == std::vector{id});
    }
    THEN("dropped and held again it is held as before") {
      REQUIRE(t.Report(kA, 2, {id}, {id}).ok());
      CHECK(t.ledger.IsHeld(id));
      CHECK(t.ToOwner().empty());
    }
  }
}

SCENARIO("malformed lists change nothing") {
  LedgerTest t;
  proto::RefsReport report;
  report.set_sequence(1);
  report.set_held_ids(std::string(17, 'x'));
  CHECK(absl::IsInvalidArgument(t.ledger.OnReport(kA, report)));
  CHECK(t.ledger.held_references() == 0);
}

SCENARIO("what the raylet holds itself is told like what a process holds") {
  LedgerTest t;
  t.ledger.Hold(RayletOf(kNode), Object(kOwner, 1));
  CHECK(t.ToOwner().size() == 1);
  t.Ack(kOwner, 1);
  t.ledger.Unhold(RayletOf(kNode), Object(kOwner, 1));
  const auto told = t.ToOwner();
  REQUIRE(told.size() == 1);
  CHECK(Ids(told[0].dropped_ids()).size() == 1);
}

SCENARIO("who dies while an earlier version is on its way: the owner hears of what it held") {
  LedgerTest t;
  REQUIRE(t.Report(kB, 1, {Object(kOwner, 1), Object(kOwner, 2)}).ok());
  t.Ack(kOwner, 1);
  REQUIRE(t.Report(kB, 2, {Object(kOwner, 3)}, {Object(kOwner, 1)}).ok());  // On its way.
  REQUIRE(t.Report(kA, 1, {Object(kOwner, 1), Object(kOwner, 4)}).ok());
  REQUIRE(t.Report(kB, 3, {Object(kOwner, 5)}).ok());
  CHECK(t.ToOwner().size() == 2);
  t.ledger.TellBeforeDeath(kA);
  auto told = t.ToOwner();
  REQUIRE(told.size() == 1);
  CHECK(told[0].version() == 3);
  CHECK(Ids(told[0].held_ids()) ==
        std::vector{Object(kOwner, 3), Object(kOwner, 1), Object(kOwner, 4)});
  CHECK(told[0].dropped_ids().empty());  // It is held again.
  t.ledger.TellBeforeDeath(kA);
  CHECK(t.ToOwner().empty());
  t.Ack(kOwner, 2);
  CHECK(t.ToOwner().empty());
  t.Ack(kOwner, 3);
  CHECK(t.Answers(kB).size() == 2);
  told = t.ToOwner();
  REQUIRE(told.size() == 1);
  CHECK(Ids(told[0].held_ids()) == std::vector{Object(kOwner, 5)});
}

// The owner as the contract has it: it applies what is newer than what it knows. After any history, with frames
// lost and doubled, it believes what is true, and no report was answered before the owner knew.
SCENARIO("owner and node agree after any history") {
  const uint64_t seed = GENERATE(range(1, 40));
  SeededRandom random(seed);
  LedgerTest t;
  struct OwnerSide {
    uint64_t version = 0;
    std::set<ObjectId> held;
  };
  std::map<ProcessId, OwnerSide> owners{{kOwner, {}}, {kRemoteOwner, {}}};
  std::map<ProcessId, std::set<ObjectId>> truth{{kA, {}}, {kB, {}}};
  std::map<ProcessId, uint64_t> sequence;
  std::map<std::pair<ProcessId, uint64_t>, std::vector<ObjectId>> asked;
  std::map<std::pair<ProcessId, ObjectId>, uint64_t> last_said;
  const auto deliver = [&](bool lossy) {
    for (auto& [owner, side] : owners) {
      for (const proto::NodeRefs& refs : t.ToOwner(owner)) {
        if (lossy && random.OneIn(3)) continue;
        if (refs.version() > side.version) {
          side.version = refs.version();
          for (const ObjectId id : Ids(refs.held_ids())) side.held.insert(id);
          for (const ObjectId id : Ids(refs.dropped_ids())) side.held.erase(id);
        }
        CHECK(refs.version() <= side.version);
        if (lossy && random.OneIn(3)) continue;
        t.Ack(owner, refs.version());
        if (random.OneIn(4)) t.Ack(owner, refs.version());
      }
    }
    for (auto& [holder, held] : truth) {
      for (const proto::RefsReported& answer : t.Answers(holder)) {
        for (const ObjectId id : asked[{holder, answer.sequence()}]) {
          if (last_said[{holder, id}] != answer.sequence()) continue;  // It said otherwise since.
          CHECK(owners[id.maker()].held.contains(id));
        }
      }
    }
  };
  for (int step = 0; step < 300; ++step) {
    const ProcessId holder = random.OneIn(2) ? kA : kB;
    std::vector<ObjectId> held, dropped;
    for (uint64_t i = random.Below(4); i > 0; --i) {
      const ObjectId id = Object(random.OneIn(2) ? kOwner : kRemoteOwner, 1 + random.Below(6));
      if (std::count(held.begin(), held.end(), id) +
          std::count(dropped.begin(), dropped.end(), id)) {
        continue;
      }
      if (truth[holder].contains(id)) {
        truth[holder].erase(id);
        dropped.push_back(id);
      } else {
        truth[holder].insert(id);
        held.push_back(id);
      }
    }
    asked[{holder, ++sequence[holder]}] = held;
    for (const ObjectId id : held) last_said[{holder, id}] = sequence[holder];
    for (const ObjectId id : dropped) last_said[{holder, id}] = sequence[holder];
    REQUIRE(t.Report(holder, sequence[holder], held, dropped).ok());
    if (random.OneIn(4)) t.ledger.TellBeforeDeath(holder);
    if (random.OneIn(2)) deliver(true);
    t.clock.Advance(random.Below(kSecond));
    t.ledger.Tick();
  }
  for (int i = 0; i < 10; ++i) {
    deliver(false);
    t.clock.Advance(3 * kSecond);
    t.ledger.Tick();
  }
  CHECK(t.ledger.unanswered_reports() == 0);
  std::set<ObjectId> expected, believed;
  for (const auto& [holder, held] : truth) expected.insert(held.begin(), held.end());
  for (const auto& [owner, side] : owners) believed.insert(side.held.begin(), side.held.end());
  CHECK(believed == expected);
}

}  // namespace reference_ledger_test
}  // namespace sheaf
