// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Objects of this process that lie on other nodes: brought here, copied, freed everywhere, lost
// with their nodes.
#include "worker/owner/object_places_for_test.h"

namespace sheaf {
namespace object_places_test {

const Error kGone{ErrorKind::kObjectLost, "not on this node", {}};

TEST_CASE("an object on another node is brought here through the raylet") {
  Places f;
  ObjectHandle object = f.Result();
  f.owner.resolver.Missing(*object.entry());
  const auto [to, wanted] = f.TakeFetch();
  CHECK(to == kRaylet);
  CHECK(wanted.id == object.id());
  CHECK(wanted.hint == kThere);
  CHECK(wanted.size == 1 << 20);
  CHECK(f.looked_up.empty());
  f.owner.resolver.Missing(*object.entry());  // Under way.
  CHECK(f.transport.Count(kStoreFetch) == 0);
  f.clock.Advance(kSecond);
  f.owner.Tick();
  CHECK(f.TakeFetch().first == kRaylet);  // No wait hangs on one frame.
  f.Copied(kRaylet, object.id(), kHere);
  f.owner.resolver.OnLocated(object.id(), &kHere, {});
  CHECK(object.entry()->location == kHere);
  const ObjectId id = object.id();
  object = {};
  f.owner.references.CollectDropped();
  CHECK(f.store.freed == std::vector{id});
  const auto frees = f.TakeFrees();
  REQUIRE(frees.size() == 1);
  CHECK(frees[0].first == kFarRaylet);
  CHECK(frees[0].second.location == kThere);
}

TEST_CASE("an object may take its time to come here") {
  Places f;
  ObjectHandle object = f.Result();
  f.owner.resolver.Missing(*object.entry());
  f.TakeFetch();
  const auto pass = [&](int seconds, bool raylet_answers) {
    for (int i = 0; i < seconds; ++i) {
      f.clock.Advance(kSecond);
      f.owner.Tick();
      REQUIRE(f.transport.Count(kStoreFetch) <= 1);
      while (f.transport.Count(kStoreFetch) != 0) f.TakeFetch();
      if (raylet_answers) f.owner.resolver.OnComing(object.id());
    }
  };
  SECTION("while the raylet of this node says that it is coming") {
    pass(7200, true);
    CHECK(f.TakeFrees().empty());
    CHECK(ObjectState{object.entry()->state} == ObjectState::kStore);
    CHECK(object.entry()->location == kThere);
    f.owner.resolver.OnLocated(object.id(), &kHere, {});
    CHECK(object.entry()->location == kHere);
  }
  SECTION("a raylet that says nothing for a minute ends the wait, but not the object") {
    pass(7200, true);
    pass(62, false);
    CHECK(f.TakeFrees().empty());
    CHECK(ObjectState{object.entry()->state} == ObjectState::kStore);
    REQUIRE(object.entry()->extra->unreachable);
    CHECK(object.entry()->extra->error.message.find("has said nothing") != std::string::npos);
    object.entry()->extra->unreachable = false;  // As a look at it leaves it: the next tries again.
    f.owner.resolver.Missing(*object.entry());
    CHECK(f.TakeFetch().second.hint == kThere);
  }
  SECTION("until the raylet knows that it is not there") {
    pass(100, true);
    f.owner.resolver.OnLocated(object.id(), nullptr, kGone);
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);  // Made again.
  }
}

TEST_CASE("a freed object is freed on every node that has a copy") {
  Places f;
  ObjectHandle object = f.Result();
  const ObjectId id = object.id();
  f.Copied(kThirdRaylet, id, kThird);
  f.Copied(kThirdRaylet, id, kThird);
  f.Copied(kRaylet, id, kHere);
  CHECK(object.entry()->location == kHere);
  CHECK(f.TakeFrees().empty());
  object = {};
  f.owner.references.CollectDropped();
  std::vector<ProcessId> nodes;
  for (const auto& [to, name] : f.TakeFrees()) nodes.push_back(to);
  std::sort(nodes.begin(), nodes.end());
  CHECK(nodes == std::vector{kFarRaylet, kThirdRaylet});
  CHECK(f.store.freed == std::vector{id});
  SECTION("and one that comes too late as well") {
    const ObjectLocation late{4, 1, 1, 0};
    f.Copied({4, 0}, id, late);
    const auto frees = f.TakeFrees();
    REQUIRE(frees.size() == 1);
    CHECK(frees[0].first == ProcessId{4, 0});
    CHECK(frees[0].second.location == late);
  }
}

TEST_CASE("copies of another attempt, or that a wrong node tells of, do not count") {
  Places f;
  ObjectHandle object = f.Result();
  f.Copied(kThirdRaylet, object.id(), {3, 6, 2, 7});
  CHECK(f.TakeFrees().size() == 1);
  f.Copied(kThirdRaylet, object.id(), {4, 6, 2, 0});
  f.Copied({3, 5}, object.id(), kThird);
  CHECK(f.TakeFrees().empty());
  f.owner.OnNodeGone(2);
  CHECK(ObjectState{object.entry()->state} ==
        ObjectState::kPending);  // Made again: there is no copy.
}

TEST_CASE("a node dies") {
  Places f;
  SECTION("another copy takes over") {
    ObjectHandle object = f.Result();
    f.Copied(kThirdRaylet, object.id(), kThird);
    f.owner.OnNodeGone(2);
    CHECK(ObjectState{object.entry()->state} == ObjectState::kStore);
    CHECK(object.entry()->location == kThird);
    f.owner.OnNodeGone(3);
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);
  }
  SECTION("the only copy was there: the task runs again, on another node") {
    ObjectHandle object = f.Result();
    f.Die(kFar, UINT64_MAX);
    f.owner.OnNodeGone(2);
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);
    f.Grant(9, kWorker);
    const PushTaskHead push = f.TakePush();
    CHECK(push.attempt == 1);
    f.ReplyStored(push, {1, 3, 1, 1}, 1 << 20, kWorker);
    CHECK(object.entry()->location == ObjectLocation{1, 3, 1, 1});
  }
  SECTION("what cannot be made again is lost, in words") {
    ObjectHandle object = f.PutThere();
    f.owner.OnNodeGone(2);
    REQUIRE(ObjectState{object.entry()->state} == ObjectState::kError);
    CHECK(object.entry()->extra->error.kind == ErrorKind::kObjectLost);
    CHECK(object.entry()->extra->error.message.find("on node 2, which died") != std::string::npos);
  }
  SECTION("arguments are made again before those who use them") {
    ObjectHandle argument = f.Result();
    auto references = std::make_unique<TaskReferences>();
    f.owner.references.AddUse(*argument.entry());
    references->arguments.push_back({argument.entry(), 0, false});
    TaskRecord* task =
        f.owner.tasks.Add(f.Template(), InlineBytes(AsBytes(ArgumentHead{ArgumentKind::kStore, 0})),
                          std::move(references), {});
    ObjectHandle result(task->first_return);
    f.owner.submitter.Submit(*task);
    f.ReplyStored(f.TakePush(), kThere);
    REQUIRE(ObjectState{result.entry()->state} == ObjectState::kStore);
    f.Die(kFar, UINT64_MAX);
    f.owner.OnNodeGone(2);
    CHECK(ObjectState{argument.entry()->state} == ObjectState::kPending);
    CHECK(ObjectState{result.entry()->state} == ObjectState::kPending);
    f.Grant(9, kWorker);
    const PushTaskHead first = f.TakePush();
    CHECK(first.task_sequence_bits == TaskOf(argument.id()).sequence_bits);
    CHECK(f.transport.Count(FrameKind::kPushTask) == 0);  // The other waits for it.
    f.ReplyStored(first, {1, 3, 1, 1}, 1 << 20, kWorker);
    CHECK(f.TakePush().task_sequence_bits == TaskOf(result.id()).sequence_bits);
  }
  SECTION("a borrowed object is asked for at its owner") {
    const ObjectId id = ObjectId::Make({5, 3}, 1, 1);
    ObjectHandle object(f.owner.references.Incoming({id, kThere}));
    f.owner.resolver.Want(*object.entry());
    f.owner.resolver.Missing(*object.entry());
    f.TakeFetch();
    f.owner.OnNodeGone(2);
    f.owner.resolver.Missing(*object.entry());
    CHECK(f.looked_up == std::vector{id});
    f.owner.resolver.OnLocated(id, nullptr, kGone);
    const Sent query = f.transport.Take(FrameKind::kObjectQuery);
    CHECK(query.to == ProcessId{5, 3});
  }
}

TEST_CASE("a call runs again with the references in its arguments that its first worker kept") {
  Places f;
  ObjectHandle inner = f.PutThere();
  auto references = std::make_unique<TaskReferences>();
  f.owner.references.AddUse(*inner.entry());
  references->nested.push_back(inner.entry());
  TaskRecord* task = f.owner.tasks.Add(f.Template(), {}, std::move(references), {});
  ObjectHandle result(task->first_return);
  f.owner.submitter.Submit(*task);
  f.Grant(1, kFar);
  for (int run = 0; run < 2; ++run) {
    const PushTaskHead push = f.TakePush();
    CHECK(push.nested_count == 1);
    f.ReplyStored(push, kThere, 1 << 20, kFar, true);
    f.owner.references.DropCopy(*result.entry(), 2);
    if (run == 0) REQUIRE(f.owner.tasks.Reconstruct(*result.entry(), f.owner.submitter));
  }
  const uint64_t bits = TaskOf(result.id()).sequence_bits;
  const ObjectId id = inner.id();
  inner = result = {};
  f.owner.references.CollectDropped();
  CHECK(f.owner.references.Find(id) != nullptr);
  f.owner.OnFrame(kFar, {FrameKind::kTransitDone, AsBytes(TransitDone{0, bits, 0, 0})});
  f.owner.references.CollectDropped();
  CHECK(f.owner.references.Find(id) == nullptr);
}

TEST_CASE("a borrower that found nothing is answered when the owner has looked") {
  Places f;
  ObjectHandle object = f.Result();
  const ProcessId borrower{3, 9};
  f.Query(borrower, object.id(), true);
  f.Query(borrower, object.id(), true);
  CHECK(f.transport.Count(FrameKind::kObjectAnswer) == 0);
  const auto [to, wanted] = f.TakeFetch();
  CHECK(to == kFarRaylet);  // Asked whether it is there still; nothing is brought here.
  SECTION("it is there") {
    f.owner.resolver.OnLocated(object.id(), &kThere, {});
    CHECK(f.TakeAnswer().location == kThere);
    CHECK(f.transport.Count(FrameKind::kObjectAnswer) == 0);
  }
  SECTION("it is not, but elsewhere") {
    f.Copied(kThirdRaylet, object.id(), kThird);
    f.owner.resolver.OnLocated(object.id(), nullptr, kGone);
    CHECK(f.TakeFetch().first == kThirdRaylet);
    f.owner.resolver.OnLocated(object.id(), &kThird, {});
    CHECK(f.TakeAnswer().location == kThird);
  }
  SECTION("it is nowhere: it is made again first") {
    f.owner.resolver.OnLocated(object.id(), nullptr, kGone);
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);
    CHECK(f.transport.Count(FrameKind::kObjectAnswer) == 0);
    const ObjectLocation again{2, 9, 4, 1};
    f.ReplyStored(f.TakePush(), again);
    CHECK(f.TakeAnswer().location == again);
  }
  SECTION("its node dies meanwhile") {
    f.owner.OnNodeGone(2);
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);
    f.ReplyStored(f.TakePush(), {1, 9, 4, 1});
    CHECK(f.TakeAnswer().location == ObjectLocation{1, 9, 4, 1});
  }
  SECTION("its node stays silent") {
    for (int i = 0; i < 70; ++i) {
      f.clock.Advance(kSecond);
      f.owner.Tick();
    }
    CHECK(ObjectState{object.entry()->state} == ObjectState::kPending);
  }
}

TEST_CASE("what a dead worker of another node may have sealed is freed there") {
  Places f;
  ObjectHandle object = f.Submit(f.Template());
  f.Grant(1, kFar);
  const PushTaskHead push = f.TakePush();
  f.Die(kFar, push.push);
  const auto frees = f.TakeFrees();
  REQUIRE(frees.size() == 1);
  CHECK(frees[0].first == kFarRaylet);
  CHECK(frees[0].second.id == object.id());
  CHECK(frees[0].second.location.node == 2);
  CHECK(frees[0].second.location.attempt == 0);  // Not the next one, should it run there.
}

TEST_CASE("a task with large arguments goes where they lie") {
  Places f;
  ObjectHandle argument = f.PutThere();
  auto submit = [&] {
    auto references = std::make_unique<TaskReferences>();
    f.owner.references.AddUse(*argument.entry());
    references->arguments.push_back({argument.entry(), 0, false});
    TaskRecord* task =
        f.owner.tasks.Add(f.Template(), InlineBytes(AsBytes(ArgumentHead{ArgumentKind::kStore, 0})),
                          std::move(references), {});
    ObjectHandle result(task->first_return);
    f.owner.submitter.Submit(*task);
    return result;
  };
  const ObjectHandle first = submit();
  proto::LeaseDemand demand;
  demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body);
  REQUIRE(demand.argument_nodes_size() == 1);
  CHECK(demand.argument_nodes(0) == 2);
  CHECK(demand.argument_node_bytes(0) == 1 << 20);
  f.Grant(1, kWorker);
  f.Reply(f.TakePush(), "x", ReplyStatus::kDone, kSecond);
  f.Grant(2, kFar);
  const ObjectHandle second = submit();
  CHECK(f.transport.Take(FrameKind::kPushTask).to == kFar);  // Both leases are idle.
}

}  // namespace object_places_test
}  // namespace sheaf
