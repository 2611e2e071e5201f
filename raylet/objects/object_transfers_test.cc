// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who asks for objects of other nodes, how each is answered, and who hears of the copies.
#include "raylet/objects/object_transfers.h"

#include <catch2/catch.hpp>

#include "object_store/store_node_for_test.h"
#include "proto/object.pb.h"
#include "raylet/node_parts_for_test.h"
#include "raylet/objects/fake_block_source.h"

namespace sheaf {
namespace object_transfers_test {

constexpr ProcessId kOwner{2, 5};
const ObjectId kObject = ObjectId::Make(kOwner, 1, 1);
constexpr ObjectLocation kThere{.node = 2};

struct Node : NodeParts {
  Node() {
    AddNode(2, "CPU:1");
    processes[asker];
  }
  StoreNode store{8 * kMiB, {.node = kNode}};
  FakeBlockSource blocks;
  InlineExecutor copier;
  ProcessId asker = store.Attach(50);
  ReferenceLedger references{kNode, clock, transport,
                             [this](ProcessId process) { return deaths.IsDead(process); }};
  Adoption adoption{{.clock = clock,
                     .transport = transport,
                     .store = *store.server,
                     .metrics = page,
                     .view = view,
                     .deaths = deaths,
                     .references = references,
                     .is_draining = [](ProcessId) { return false; }}};
  ObjectTransfers transfers{{.node = kNode,
                             .clock = clock,
                             .transport = transport,
                             .store = *store.server,
                             .blocks = blocks,
                             .loop = store.loop,
                             .copier = copier,
                             .deaths = deaths,
                             .references = references,
                             .adoption = adoption}};

  void Fetch(ProcessId from, ObjectId id, ObjectLocation hint) {
    const FetchWanted wanted{.id = id, .hint = hint, .size = 0};
    REQUIRE(transfers.OnFetch(from, {kStoreFetch, AsBytes(wanted)}).ok());
    Settle();
  }
  // Answers the oldest question for a block: all of the object, or that it is not there.
  void Serve(const std::string& bytes) {
    proto::BlockHead head;
    head.set_size_bytes(bytes.size());
    blocks.Take().done(std::make_unique<OwnedBlock>(head.SerializeAsString(), bytes));
    Settle();
  }
  void Refuse() {
    proto::BlockHead head;
    head.set_outcome(proto::BlockHead::NOT_FOUND);
    blocks.Take().done(std::make_unique<OwnedBlock>(head.SerializeAsString(), ""));
    Settle();
  }
  void Settle() {
    store.Settle();
    transfers.Settle();
    store.Settle();
    for (const ObjectId id : std::exchange(store.observer.gone, {})) transfers.OnGone(id);
  }
  void Pass(Nanos duration) {
    clock.Advance(duration);
    transfers.Tick();
    Settle();
  }
  // What `process` heard of the object, but for where it is: that the store says.
  std::vector<LookupOutcome> Answers(ProcessId process) {
    std::vector<LookupOutcome> outcomes;
    for (const SentFrame& frame : transport.Take(process)) {
      if (frame.kind != kStoreLocated) continue;
      for (const LocatedObject& item : FrameItems<LocatedObject>(frame.body))
        outcomes.push_back(item.outcome);
    }
    return outcomes;
  }
  size_t CopiesTold() {
    size_t told = 0;
    for (const SentFrame& frame : transport.Take(kOwner)) told += frame.kind == kStoreCopied;
    return told;
  }
  bool HasHeardOfPlace(ProcessId process) {
    const auto& located = store.clients.at(process).located;
    return located.contains(kObject) && located.at(kObject).ok();
  }
};

SCENARIO("an object of another node comes once for all who ask, and its owner hears of the copy") {
  Node node;
  const ProcessId other = node.store.Attach(51);
  node.processes[other];
  node.Fetch(node.asker, kObject, kThere);
  node.Fetch(other, kObject, kThere);
  CHECK(node.blocks.asked.size() == 1);
  CHECK(node.Answers(node.asker).empty());
  node.Fetch(node.asker, kObject, kThere);  // Again: it has not been forgotten.
  CHECK(node.Answers(node.asker) == std::vector{LookupOutcome::kComing});
  node.Serve("hello");
  CHECK(node.store.server->Contains(kObject));
  CHECK(node.HasHeardOfPlace(node.asker));
  CHECK(node.HasHeardOfPlace(other));
  CHECK(node.CopiesTold() == 1);
}

SCENARIO("an object that is nowhere is not found") {
  Node node;
  WHEN("nobody says where it is") { node.Fetch(node.asker, kObject, {}); }
  WHEN("its node is dead") {
    node.view.nodes[2].alive = false;
    node.Fetch(node.asker, kObject, kThere);
  }
  WHEN("its node does not have it") {
    node.Fetch(node.asker, kObject, kThere);
    while (!node.blocks.asked.empty()) node.Refuse();
  }
  CHECK(node.Answers(node.asker) == std::vector{LookupOutcome::kNotFound});
}

SCENARIO("when nobody waits any more nothing is fetched") {
  Node node;
  node.Fetch(node.asker, kObject, kThere);
  node.processes.erase(node.asker);
  node.transfers.OnProcessGone(node.asker);
  node.Serve("hello");
  CHECK_FALSE(node.store.server->Contains(kObject));
  CHECK(node.CopiesTold() == 0);
}

SCENARIO("owners hear of their copies again, until the copies are gone") {
  Node node;
  node.Fetch(node.asker, kObject, kThere);
  node.Serve("hello");
  CHECK(node.CopiesTold() == 1);
  node.Pass(9 * kSecond);
  CHECK(node.CopiesTold() == 0);
  node.Pass(kSecond);
  CHECK(node.CopiesTold() == 1);
  node.store.server->Free(kObject);
  node.Settle();
  node.Pass(20 * kSecond);
  CHECK(node.CopiesTold() == 0);
}

SCENARIO("a copy whose owner has died is kept for who holds the reference, or goes") {
  Node node;
  const bool held = GENERATE(true, false);
  node.Fetch(node.asker, kObject, kThere);
  node.deaths.Record(kOwner, proto::Death());
  if (held) node.references.Hold(node.asker, kObject);
  node.Serve("hello");
  CHECK(node.store.server->Contains(kObject) == held);
  CHECK(node.adoption.IsAdopted(kObject) == held);
}

SCENARIO("blocks go to nodes that live") {
  Node node;
  absl::Status answer = absl::OkStatus();
  const auto respond = [&](absl::StatusOr<Block> block) { answer = block.status(); };
  node.transfers.OnBlockRequest(2, "\xff", respond);
  CHECK(absl::IsInvalidArgument(answer));
  node.view.nodes[2].alive = false;
  node.transfers.OnBlockRequest(2, "\xff", respond);
  CHECK(absl::IsUnavailable(answer));
}

}  // namespace object_transfers_test
}  // namespace sheaf
