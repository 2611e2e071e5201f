// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What stays of the objects of dead owners, on this node and for others.
#include "raylet/objects/adoption.h"

#include <catch2/catch.hpp>

#include "object_store/store_node_for_test.h"
#include "raylet/node_parts_for_test.h"

namespace sheaf {
namespace adoption_test {

struct Node : NodeParts {
  explicit Node(bool alone = false) {
    if (!alone) AddNode(2, "CPU:1");
    worker = store.Attach(50);
    owner = Attach(ProcessRole::kDriver);
    borrower = Attach(ProcessRole::kDriver);
  }
  StoreNode store{8 * kMiB, {.node = kNode}};
  ReferenceLedger references{kNode, clock, transport,
                             [this](ProcessId process) { return deaths.IsDead(process); }};
  bool draining = false;
  Adoption adoption{{.clock = clock,
                     .transport = transport,
                     .store = *store.server,
                     .metrics = page,
                     .view = view,
                     .deaths = deaths,
                     .references = references,
                     .is_draining = [this](ProcessId) { return draining; }}};
  ProcessId worker, owner, borrower;

  // An object of the owner, sealed here.
  ObjectId Put(uint64_t sequence, const std::vector<ObjectId>& nested = {}) {
    const ObjectId id = ObjectId::Make(owner, sequence, 1);
    ObjectSpec spec;
    spec.nested = nested;
    REQUIRE(store.Put(worker, id, "bytes", spec).ok());
    store.Flush();
    return id;
  }
  void Borrow(ObjectId id) { Report({id}, {}); }
  void Drop(ObjectId id) { Report({}, {id}); }
  void Report(const std::vector<ObjectId>& held, const std::vector<ObjectId>& dropped) {
    proto::RefsReport report;
    report.set_sequence(++sequence_);
    for (const ObjectId id : held) AppendId(report.mutable_held_ids(), id);
    for (const ObjectId id : dropped) AppendId(report.mutable_dropped_ids(), id);
    REQUIRE(references.OnReport(borrower, report).ok());
    Settle();
  }
  void OwnerDies() {
    processes.erase(owner);
    adoption.OnOwnerDied(owner);
    adoption.AdoptObjectsOf(owner);
    Settle();
  }
  void Settle() {
    adoption.Settle();
    store.Settle();
    for (const ObjectId id : std::exchange(store.observer.gone, {})) adoption.OnGone(id);
  }
  void Pass(Nanos duration) {
    for (; duration > 0; duration -= 100 * kMillisecond) {
      clock.Advance(100 * kMillisecond);
      adoption.Tick();
      Settle();
    }
  }
  bool IsHere(ObjectId id) const { return store.server->Contains(id); }
  void Ask(const std::vector<ObjectId>& ids) {
    proto::AdoptedQuery query;
    query.set_request(3);
    for (const ObjectId id : ids) AppendId(query.mutable_ids(), id);
    REQUIRE(adoption.OnQuery(borrower, Of(FrameKind::kAdoptedQuery, query)).ok());
  }
  std::vector<proto::AdoptedAnswer> Answers() {
    return Received<proto::AdoptedAnswer>(borrower, FrameKind::kAdoptedAnswer);
  }
  // Node 2 asks for `held`: what is kept for it.
  std::vector<ObjectId> AskedBy2(uint64_t version, const std::vector<ObjectId>& held,
                                 const std::vector<ObjectId>& dropped = {}) {
    proto::OrphanRefs refs;
    refs.set_version(version);
    for (const ObjectId id : held) AppendId(refs.mutable_held_ids(), id);
    for (const ObjectId id : dropped) AppendId(refs.mutable_dropped_ids(), id);
    REQUIRE(adoption.OnOrphanRefs(RayletOf(2), Of(FrameKind::kOrphanRefs, refs)).ok());
    Settle();
    const auto acks = Received<proto::OrphanRefsAck>(RayletOf(2), FrameKind::kOrphanRefsAck);
    return acks.empty() ? std::vector<ObjectId>() : ParseIds(acks[0].kept_ids()).value();
  }

 private:
  uint64_t sequence_ = 0;
};

SCENARIO("what is borrowed stays until the last borrower drops it, what is not goes") {
  Node node(/*alone=*/true);
  const ObjectId borrowed = node.Put(1);
  const ObjectId unwanted = node.Put(2);
  node.Borrow(borrowed);
  node.OwnerDies();
  CHECK(node.IsHere(borrowed));
  CHECK_FALSE(node.IsHere(unwanted));
  CHECK(node.adoption.IsAdopted(borrowed));
  node.Drop(borrowed);
  CHECK_FALSE(node.IsHere(borrowed));
  CHECK(node.adoption.adopted().empty());
}

SCENARIO("an adopted object holds what lies inside it") {
  Node node(/*alone=*/true);
  const ObjectId inner = node.Put(1);
  const ObjectId outer = node.Put(2, {inner});
  node.Borrow(outer);
  node.OwnerDies();
  CHECK(node.adoption.IsAdopted(inner));
  node.Drop(outer);
  CHECK_FALSE(node.IsHere(inner));
  CHECK(node.references.held_references() == 0);
}

SCENARIO("other nodes have a moment to say that they hold what nobody here holds") {
  Node node;
  const ObjectId id = node.Put(1);
  node.OwnerDies();
  CHECK(node.adoption.IsInGrace(node.owner));
  node.Pass(2900 * kMillisecond);
  CHECK(node.IsHere(id));
  WHEN("nobody asks") {
    node.Pass(200 * kMillisecond);
    CHECK_FALSE(node.IsHere(id));
  }
  WHEN("a node asks") {
    CHECK(node.AskedBy2(1, {id}) == std::vector{id});
    CHECK(node.AskedBy2(1, {id}) == std::vector{id});  // A repeat.
    node.Pass(10 * kSecond);
    CHECK(node.IsHere(id));
    WHEN("it lets go") { node.AskedBy2(2, {}, {id}); }
    WHEN("it dies") {
      node.view.nodes[2].alive = false;
      node.adoption.OnNodeDead(2);
      node.Settle();
    }
    CHECK_FALSE(node.IsHere(id));
  }
}

SCENARIO("meanwhile what lies inside them, of owners that are alive, is held") {
  Node node;
  const ObjectId inner = ObjectId::Make(node.borrower, 9, 1);  // Lies elsewhere.
  const ObjectId outer = node.Put(1, {inner});
  node.Put(2, {inner});
  node.OwnerDies();
  CHECK(node.references.IsHeld(inner));
  node.adoption.AdoptObjectsOf(node.owner);  // Again: some came late.
  const bool wanted = GENERATE(false, true);
  if (wanted) CHECK(node.AskedBy2(1, {outer}) == std::vector{outer});
  node.Pass(3 * kSecond);
  CHECK(node.IsHere(outer) == wanted);
  CHECK(node.references.IsHeld(inner) == wanted);
  if (wanted) node.AskedBy2(2, {}, {outer});
  CHECK(node.references.held_references() == 0);
}

SCENARIO("while peers still read what the owner sent nothing of it is adopted for others") {
  Node node;
  const ObjectId id = node.Put(1);
  node.processes.erase(node.owner);
  node.adoption.OnOwnerDied(node.owner);
  node.draining = true;
  CHECK(node.AskedBy2(1, {id}) == std::vector{id});
  CHECK_FALSE(node.adoption.IsAdopted(id));
  node.draining = false;
  node.adoption.AdoptObjectsOf(node.owner);
  CHECK(node.adoption.IsAdopted(id));
}

SCENARIO("a process that asks for an orphan is answered when the other nodes have spoken") {
  Node node;
  const ObjectId id = ObjectId::Make({3, 9}, 1, 1);
  node.deaths.Record(id.maker(), proto::Death());
  node.adoption.OnOwnerDied(id.maker());
  node.Borrow(id);
  node.Ask({id});
  CHECK(node.Answers().empty());
  WHEN("one has it") {
    node.Pass(100 * kMillisecond);
    proto::OrphanRefsAck ack;
    ack.set_version(1);
    AppendId(ack.mutable_kept_ids(), id);
    REQUIRE(
        node.adoption.OnOrphanRefsAck(RayletOf(2), node.Of(FrameKind::kOrphanRefsAck, ack)).ok());
    node.Settle();
    const auto answers = node.Answers();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].nodes(0) == 2);
    CHECK(node.adoption.PlacesOf(id) == std::vector<NodeNumber>{2});
  }
  WHEN("nobody answers") {
    node.Pass(5 * kSecond);
    const auto answers = node.Answers();
    REQUIRE(answers.size() == 1);
    CHECK_FALSE(answers[0].adopted(0));
  }
  WHEN("it dies meanwhile") {
    node.adoption.OnProcessGone(node.borrower);
    node.Pass(5 * kSecond);
    CHECK(node.Answers().empty());
  }
}

SCENARIO("objects that come late, and objects of nobody, go as others do") {
  Node node(/*alone=*/true);
  node.OwnerDies();
  const ObjectId late = node.Put(1);
  const ObjectId unwanted = node.Put(2);
  node.Borrow(late);
  CHECK(node.adoption.FindUnknownMakers().empty());  // They may be on their way.
  node.Pass(10 * kSecond);
  CHECK(node.adoption.FindUnknownMakers() == std::vector{node.owner});
  node.adoption.AdoptLateObjectsOf(node.owner);
  node.Settle();
  CHECK(node.IsHere(late));
  CHECK_FALSE(node.IsHere(unwanted));
  node.Pass(10 * kSecond);
  CHECK(node.adoption.FindUnknownMakers().empty());
}

SCENARIO("malformed questions change nothing") {
  Node node;
  proto::AdoptedQuery query;
  query.set_ids("15 bytes, no id");
  CHECK_FALSE(node.adoption.OnQuery(node.borrower, node.Of(FrameKind::kAdoptedQuery, query)).ok());
  CHECK_FALSE(node.adoption.OnOrphanRefs(RayletOf(2), {FrameKind::kOrphanRefs, "\xff"}).ok());
  CHECK_FALSE(node.adoption.OnOrphanRefsAck(RayletOf(2), {FrameKind::kOrphanRefsAck, "\xff"}).ok());
  CHECK(node.adoption.orphan_count() == 0);
}

}  // namespace adoption_test
}  // namespace sheaf
