// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which part of a node reads which frame about objects, and who hears of a death when.
#include "raylet/objects/node_objects.h"

#include <catch2/catch.hpp>

#include "object_store/store_node_for_test.h"
#include "proto/object.pb.h"
#include "raylet/node_parts_for_test.h"
#include "raylet/objects/fake_block_source.h"

namespace sheaf {
namespace node_objects_test {

struct Node : NodeParts {
  Node() {
    AddNode(2, "CPU:1");
    worker = store.Attach(50);
    owner = Attach(ProcessRole::kDriver);
    borrower = Attach(ProcessRole::kDriver);
  }
  StoreNode store{8 * kMiB, {.node = kNode}};
  StoreEvents store_events;
  FakeBlockSource blocks;
  InlineExecutor copier;
  ProcessId worker, owner, borrower;
  std::vector<ProcessId> violators;
  NodeObjects objects{{.node = kNode,
                       .clock = clock,
                       .transport = transport,
                       .store = *store.server,
                       .store_events = store_events,
                       .metrics = page,
                       .blocks = blocks,
                       .loop = store.loop,
                       .copier = copier,
                       .view = view,
                       .deaths = deaths,
                       .is_draining = [](ProcessId) { return false; },
                       .on_violation =
                           [this](ProcessId process, const absl::Status& status) {
                             CHECK_FALSE(status.ok());
                             violators.push_back(process);
                           }}};

  ObjectId Put(uint64_t sequence) {
    const ObjectId id = ObjectId::Make(owner, sequence, 1);
    REQUIRE(store.Put(worker, id, "bytes").ok());
    store.Flush();
    return id;
  }
  void Borrow(ObjectId id) {
    proto::RefsReport report;
    report.set_sequence(1);
    AppendId(report.mutable_held_ids(), id);
    REQUIRE(objects.OnReferenceFrame(borrower, Of(FrameKind::kRefsReport, report)).ok());
  }
  void OwnerDies() {
    processes.erase(owner);
    objects.OnOwnerDied(owner);
    objects.OnDrained(owner);
    Pass();
  }
  void Pass() {  // Longer than other nodes may say that they hold an object of a dead owner.
    for (int i = 0; i < 100; ++i) {
      clock.Advance(100 * kMillisecond);
      objects.Tick();
      Settle();
    }
  }
  void Settle() {
    objects.Settle();
    store.Settle();
    for (const ObjectId id : std::exchange(store.observer.gone, {}))
      store_events.OnObjectGone({.id = id, .writer = {}, .nested = {}}, false);
    objects.Settle();
  }
};

SCENARIO("what is borrowed of a dead owner stays until the last borrower is drained") {
  Node node;
  const ObjectId kept = node.Put(1);
  const ObjectId other = node.Put(2);
  node.Borrow(kept);
  node.OwnerDies();
  CHECK(node.objects.adoption().IsAdopted(kept));
  CHECK_FALSE(node.store.server->Contains(other));
  node.processes.erase(node.borrower);
  node.objects.OnProcessGone(node.borrower);
  node.Pass();
  CHECK(node.store.server->Contains(kept));
  node.objects.OnDrained(node.borrower);
  node.Pass();
  CHECK_FALSE(node.store.server->Contains(kept));
  CHECK(node.objects.adoption().adopted().empty());
  CHECK(node.page.counter(metrics::CounterId::kObjectsFreed) == 2);
}

SCENARIO("an object of another node is fetched once, and its owner frees the copy") {
  Node node;
  const ProcessId far_owner{2, 5};
  const ObjectId id = ObjectId::Make(far_owner, 1, 1);
  const FetchWanted wanted{.id = id, .hint = {.node = 2}, .size = 0};
  for (int i = 0; i < 2; ++i)
    REQUIRE(node.objects.OnStoreFrame(node.worker, {kStoreFetch, AsBytes(wanted)}).ok());
  node.Settle();
  REQUIRE(node.blocks.asked.size() == 1);
  proto::BlockHead head;
  head.set_size_bytes(5);
  node.blocks.Take().done(std::make_unique<OwnedBlock>(head.SerializeAsString(), "bytes"));
  node.Settle();
  CHECK(node.store.server->Contains(id));
  const ObjectName name{.id = id, .location = {}};
  CHECK(node.objects.OnRemoteStoreFrame(far_owner, {kStoreFree, AsBytes(name)}).ok());
  node.Settle();
  CHECK_FALSE(node.store.server->Contains(id));
}

SCENARIO("a frame about objects that cannot be read is refused") {
  Node node;
  CHECK_FALSE(node.objects.OnStoreFrame(node.worker, {kStoreHold, "x"}).ok());
  CHECK_FALSE(node.objects.OnReferenceFrame(node.borrower, {FrameKind::kRefsReport, "\xff"}).ok());
  CHECK_FALSE(node.objects.OnReferenceFrame(node.borrower, {FrameKind::kOrphanRefs, "\xff"}).ok());
}

SCENARIO("who breaks the protocol of the store is named once") {
  Node node;
  node.store_events.OnStoreViolation(node.worker, "it wrote what it must not");
  node.objects.Settle();
  node.objects.Settle();
  CHECK(node.violators == std::vector{node.worker});
}

}  // namespace node_objects_test
}  // namespace sheaf
