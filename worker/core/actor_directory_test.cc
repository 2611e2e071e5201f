// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/actor_directory.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace actor_directory_test {

constexpr ProcessId kMaker{3, 9};  // Of another node.

struct DirectoryTest {
  TemplateHandle Creation() {
    proto::TaskTemplate spec;
    spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
    spec.set_name("Counter");
    spec.set_num_returns(1);
    spec.mutable_actor()->set_name("counter");
    spec.mutable_actor()->set_max_restarts(3);
    spec.mutable_actor()->set_max_task_retries(2);
    spec.mutable_actor()->set_max_pending_calls(7);
    return node.core->MakeTemplate(spec);
  }
  ObjectHandle CallOf(const ObjectHandle& actor) {
    proto::TaskTemplate spec;
    spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
    spec.set_name("add");
    ArgumentList arguments;
    return node.core->SubmitOneToActor(node.core->owner.actors.ClientOf(*actor.entry()), actor,
                                       node.core->MakeTemplate(spec), &arguments, {});
  }
  proto::GcsRequest TakeRequest() { return node.Taken<proto::GcsRequest>(FrameKind::kGcsRequest); }
  void Answer(const proto::GcsRequest& request, proto::GcsReply reply) {
    reply.set_sequence(request.sequence());
    node.FromRaylet(FrameKind::kGcsReply, reply);
  }

  CoreNode node;
  ActorDirectory& directory = node.core->actor_directory;
};

SCENARIO("a handle made from what the GCS says names the creation of the actor") {
  DirectoryTest test;
  const ActorId id = ActorId::Make(kMaker, 4);
  proto::ActorInfo info;
  info.set_actor_id(id.Binary());
  CHECK(ActorOf(test.directory.HandleOf(info)) == id);
  CHECK(!IsDetachedActorHandle(test.directory.HandleOf(info).id()));
  info.set_detached(true);
  CHECK(ActorOf(test.directory.HandleOf(info)) == id);
  CHECK(IsDetachedActorHandle(test.directory.HandleOf(info).id()));
}

SCENARIO("a registration has all that others must know of the actor") {
  DirectoryTest test;
  const TemplateHandle creation = test.Creation();
  ArgumentList arguments;
  arguments.AddValue("three");
  const ObjectHandle inner = test.node.core->PutValue("inner", {});
  arguments.AddValue("list", {&inner, 1});
  const proto::GcsRequest request = test.directory.Detached(*creation, arguments, "space", 5);
  const proto::RegisterActor& actor = request.register_actor();
  CHECK(actor.detached());
  CHECK(actor.name() == "counter");
  CHECK(actor.name_space() == "space");
  CHECK(actor.job() == 5);
  CHECK(actor.class_name() == "Counter");
  CHECK(actor.max_restarts() == 3);
  CHECK(actor.handle() == creation->wire);
  CHECK(actor.lease().actor());
  CHECK(actor.lease().actor_id() == actor.actor_id());
  // The worker reads the creation as any call.
  test.node.core->executor.OnPush(kRaylet, actor.creation());
  const auto call = test.node.core->executor.Take(test.node.core->executor.default_group());
  REQUIRE(call != nullptr);
  REQUIRE(call->argument_count() == 2);
  CHECK(call->argument(0).bytes == "three");
  CHECK(call->argument(1).bytes == "list");
  REQUIRE(call->nested_references().size() == 1);
  CHECK(call->nested_references()[0].id == inner.id());
}

SCENARIO("where a detached actor is the GCS is asked once, and calls go there") {
  DirectoryTest test;
  const ActorId id = ActorId::Make(kMaker, 4);
  const ObjectHandle actor = test.directory.HandleOf(id, /*detached=*/true);
  const ObjectHandle first = test.CallOf(actor), second = test.CallOf(actor);
  REQUIRE(test.directory.awaits_answers());
  const proto::GcsRequest request = test.TakeRequest();
  CHECK(request.lookup_actor().actor_id() == id.Binary());
  CHECK(test.node.sent.Count(FrameKind::kGcsRequest) == 0);
  proto::GcsReply reply;
  reply.mutable_actor()->set_state(proto::ActorInfo::ALIVE);
  reply.mutable_actor()->set_process(kWorker.packed());
  reply.mutable_actor()->set_handle(test.Creation()->wire);
  test.Answer(request, reply);
  test.node.core->AfterFrames();
  CHECK(!test.directory.awaits_answers());
  CHECK(test.node.sent.Count(FrameKind::kPushTask) == 2);
  const ActorClient& client = test.node.core->owner.actors.ClientOf(*actor.entry());
  CHECK(client.max_task_retries == 2);
  CHECK(client.max_pending_calls == 7);
}

SCENARIO("calls of a detached actor that is dead say how it died, and its arguments go") {
  DirectoryTest test;
  const ActorId id = ActorId::Make(kMaker, 4);
  ObjectHandle kept = test.node.core->PutValue("inside an argument", {});
  test.directory.KeepArguments(id, {&kept, 1});
  kept = {};
  test.node.core->AfterFrames();
  const ObjectHandle actor = test.directory.HandleOf(id, /*detached=*/true);
  const ObjectHandle result = test.CallOf(actor);
  const size_t objects = test.node.core->owner.references.size();
  proto::GcsReply reply;
  reply.mutable_actor()->set_name("counter");
  reply.mutable_actor()->set_state(proto::ActorInfo::DEAD);
  reply.mutable_actor()->mutable_death()->set_cause(proto::Death::SIGNALLED);
  reply.mutable_actor()->mutable_death()->set_code(9);
  test.Answer(test.TakeRequest(), reply);
  test.node.core->AfterFrames();
  REQUIRE(ObjectState{result.entry()->state} == ObjectState::kError);
  const std::string& words = result.entry()->extra->error.message;
  CHECK(words.find("the actor counter is dead: its process was killed by signal 9") !=
        std::string::npos);
  test.node.core->AfterFrames();
  CHECK(test.node.core->owner.references.size() == objects - 1);
}

SCENARIO("an actor of another process is ended at its creator") {
  DirectoryTest test;
  const ActorId id = ActorId::Make(kMaker, 4);
  test.directory.End(id, /*no_restart=*/true, "kill was called");
  const Sent relayed = test.node.sent.Take(FrameKind::kRelay);
  CHECK(relayed.to == kRaylet);
  // One of this process that is not there any more is nobody's.
  test.directory.End(ActorId::Make(kSelf, 4), /*no_restart=*/true, "kill was called");
  CHECK(test.node.sent.sent.empty());
}

SCENARIO("what a process calls of an actor that it has killed ends in that at once") {
  DirectoryTest test;
  const ObjectHandle actor = test.directory.HandleOf(ActorId::Make(kMaker, 4), /*detached=*/true);
  test.directory.NoteKilled(actor);
  const ObjectHandle result = test.CallOf(actor);
  REQUIRE(ObjectState{result.entry()->state} == ObjectState::kError);
  CHECK(result.entry()->extra->error.kind == ErrorKind::kActorDied);
}

SCENARIO("the end of a registration that nobody waits for is said to the GCS") {
  DirectoryTest test;
  const ActorId id = ActorId::Make(kSelf, 4);
  test.directory.Withdraw(id);
  const proto::GcsRequest request = test.TakeRequest();
  CHECK(request.end_actor().actor_id() == id.Binary());
  CHECK(!request.end_actor().restart());
  CHECK(request.end_actor().death().message() == "its creation was given up");
}

}  // namespace actor_directory_test
}  // namespace sheaf
