// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors as their creator and their callers see them.
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace {

struct ActorFixture : Fixture {
  const TemplateRecord& Creation(int max_restarts = 0) {
    TemplateRecord& record = const_cast<TemplateRecord&>(Template());
    record.spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
    record.spec.mutable_actor()->set_max_restarts(max_restarts);
    return record;
  }
  const TemplateRecord& Method() {
    TemplateRecord& record = const_cast<TemplateRecord&>(Template(0));
    record.spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
    return record;
  }
  ObjectHandle Create(const TemplateRecord& creation) {
    TaskRecord* task = owner.tasks.Add(creation, {}, nullptr, {});
    ObjectHandle handle(task->first_return);
    owner.references.List(*handle.entry());
    owner.actor_manager.Create(*task);
    REQUIRE(demand.ParseFromString(transport.Take(FrameKind::kLeaseDemand).body));
    return handle;
  }
  ObjectHandle Call(const ObjectHandle& actor) {
    TaskRecord* task = owner.tasks.Add(Method(), {}, nullptr, {});
    ObjectHandle result(task->first_return);
    owner.actors.Submit(owner.actors.ClientOf(*actor.entry()), *actor.entry(), *task);
    return result;
  }
  void GrantActor() {
    proto::LeaseGrant grant;
    grant.set_key(demand.key());
    grant.set_lease(5);
    grant.set_worker(kWorker.packed());
    owner.OnFrame(kRaylet, {FrameKind::kLeaseGrant, grant.SerializeAsString()});
  }
  proto::LeaseDemand demand;  // The last actor's.
};

}  // namespace

SCENARIO("an actor that is killed to restart while it waits for a worker goes on waiting") {
  ActorFixture f;
  const ObjectHandle actor = f.Create(f.Creation(1));
  f.owner.actor_manager.Kill(ActorOf(actor), /*no_restart=*/false, "kill was called");
  CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 0);  // What it asked for stands.
  f.GrantActor();
  CHECK(f.TakePush().lease == 5);
}

SCENARIO("a constructor fails when nobody but pending calls holds the actor") {
  ActorFixture f;
  ObjectHandle actor = f.Create(f.Creation());
  const ObjectHandle first = f.Call(actor);
  const ObjectHandle second = f.Call(actor);
  f.GrantActor();
  const PushTaskHead creation = f.TakePush();
  actor = {};
  f.owner.references.CollectDropped();
  f.Reply(creation, "no such file", ReplyStatus::kFailed);
  for (const ObjectHandle& result : {first, second}) {
    REQUIRE(result.entry()->state == ObjectState::kError);
    CHECK(result.entry()->extra->error.kind == ErrorKind::kActorDied);
  }
}

SCENARIO("with its last handle an actor ends, and nothing of it is kept") {
  ActorFixture f;
  const size_t before = f.owner.references.size();
  {
    const ObjectHandle actor = f.Create(f.Creation());
    f.GrantActor();
    f.Reply(f.TakePush(), "");
    const ObjectHandle result = f.Call(actor);
    f.Reply(f.TakePush(), "1");
    CHECK(result.entry()->value == "1");
  }
  f.owner.references.CollectDropped();
  f.transport.Take(FrameKind::kKillWorker);
  CHECK(f.owner.references.size() == before);
  CHECK(f.owner.tasks.size() == 0);
}

SCENARIO("the handle of a detached actor is counted nowhere, wherever it comes from") {
  ActorFixture f;
  const ActorId id = ActorId::Make({1, 30}, 4);  // Its creator, perhaps long gone.
  ObjectEntry* entry = f.owner.references.Incoming({DetachedActorHandle(id), {}});
  const ObjectHandle handle(entry);
  CHECK(entry->ready());
  CHECK(ActorOf(handle) == id);
  CHECK(f.owner.actors.ClientOf(*entry).detached);
  f.owner.references.Outgoing(*entry);
  CHECK(f.store.next == 0);  // It has no value that would have to outlive this process.
  f.owner.references.Flush();
  CHECK(f.transport.Count(FrameKind::kRefsReport) == 0);
}

}  // namespace sheaf
