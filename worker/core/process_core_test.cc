// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/process_core.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace process_core_test {

// Lets go of `handle`, as the end of a turn does.
void Drop(CoreNode& node, ObjectHandle& handle) {
  handle = {};
  node.core->AfterFrames();
}

SCENARIO("a small value stays in the process, with the references inside it") {
  CoreNode node;
  ObjectHandle inner = node.core->PutValue("inner", {});
  const ObjectId inner_id = inner.id();
  const ObjectHandle outer = node.core->PutValue("outer", {&inner, 1});
  Drop(node, inner);
  ObjectView view;
  REQUIRE(node.core->TryView(outer, &view));
  CHECK(view.bytes == "outer");
  REQUIRE(view.nested.size() == 1);
  CHECK(view.nested[0].id() == inner_id);
  CHECK(node.core->object_counts().puts_private == 2);
  CHECK(node.core->object_counts().put_bytes == 10);
  CHECK(node.core->object_counts().gets_private == 1);
}

SCENARIO("a value of the store is viewed where it lies, and freed with its last handle") {
  CoreNode node;
  const ProcessId other = node.Other();
  const ObjectId id = node.core->NextName();
  const auto location = node.store.Put(other, id, "far away");
  REQUIRE(location.ok());
  node.store.Flush();
  ObjectHandle object = node.core->AddStored(id, *location, 8, {});
  {
    ObjectView view;
    REQUIRE(node.core->TryView(object, &view));
    CHECK(view.bytes == "far away");
    CHECK(node.core->object_counts().gets_store == 1);
  }
  CHECK(!node.core->NeedsFlush());
  Drop(node, object);
  CHECK(node.core->NeedsFlush());
  node.core->Flush();
  node.store.Settle();
  CHECK(node.store.observer.gone == std::vector{id});
}

SCENARIO("an object that there was no room to read back is an error once, and is tried again") {
  CoreNode node;
  const ObjectHandle object =
      node.core->AddStored(node.core->NextName(), {kSelf.node, 3, 1, 0}, 8, {});
  ObjectView view;
  CHECK(!node.core->TryView(object, &view));  // Nothing is there: the raylet is asked.
  const LocatedObject full{object.id(), {}, LookupOutcome::kFull, 0};
  node.core->dispatch.OnFrame(kRaylet, {kStoreLocated, AsBytes(full)});
  REQUIRE(node.core->TryView(object, &view));
  REQUIRE(view.error != nullptr);
  CHECK(view.error->kind == ErrorKind::kObjectStoreFull);
  CHECK(view.error->message.find("cannot be read now") != std::string::npos);
  view = {};
  CHECK(!node.core->TryView(object, &view));
}

SCENARIO("a template says what its lease is called, and that of an actor that it is one") {
  CoreNode node;
  proto::TaskTemplate task, creation, method;
  task.set_name("square");
  creation.set_kind(proto::TaskTemplate::ACTOR_CREATION);
  creation.set_name("Counter");
  method.set_kind(proto::TaskTemplate::ACTOR_METHOD);
  method.set_name("add");
  CHECK(node.core->MakeTemplate(task)->spec.lease().name() == "square");
  CHECK(!node.core->MakeTemplate(task)->spec.lease().actor());
  CHECK(node.core->MakeTemplate(creation)->spec.lease().name() == "Counter");
  CHECK(node.core->MakeTemplate(creation)->spec.lease().actor());
  CHECK(!node.core->MakeTemplate(method)->spec.has_lease());
}

SCENARIO("a call holds its arguments until it has ended") {
  CoreNode node;
  ObjectHandle argument = node.core->PutValue("three", {});
  proto::TaskTemplate spec;
  spec.set_name("square");
  const TemplateHandle square = node.core->MakeTemplate(spec);
  ObjectHandle result;
  {
    ArgumentList arguments;
    arguments.AddReference(argument);
    result = node.core->SubmitOne(square, &arguments, {});
  }
  const size_t before = node.core->owner.references.size();
  Drop(node, argument);
  CHECK(node.core->owner.references.size() == before);
  CHECK(node.core->WhatItWaitsFor(*result.entry()).find("waits for a worker") != std::string::npos);
  node.core->owner.Cancel(*result.entry(), false, false);
  node.core->AfterFrames();
  CHECK(node.core->owner.references.size() == before - 1);
}

SCENARIO("a call that may not start fails, and says whether it may be tried again") {
  CoreNode node;
  std::shared_ptr<CallExecution> call = node.Call({});
  REQUIRE(call != nullptr);
  CHECK(ProcessCore::MayStart(*call, absl::OkStatus()));
  CHECK(!ProcessCore::MayStart(*call, absl::NotFoundError("an argument is lost")));
  CHECK(call->failure().kind == ErrorKind::kObjectLost);
  CHECK(!ProcessCore::MayStart(*call, absl::ResourceExhaustedError("the store has no room")));
  CHECK(call->failure().kind == ErrorKind::kObjectStoreFull);  // Nothing is lost.
  call->cancel_requested = true;
  CHECK(!ProcessCore::MayStart(*call, absl::OkStatus()));
  CHECK(call->failure().kind == ErrorKind::kTaskCancelled);
  call.reset();
  CHECK(node.sent.Count(FrameKind::kTaskReply) == 0);  // Nobody has ended the turn.
  REQUIRE(node.core->executor.has_ended());
  node.core->executor.FinishEnded();
  CHECK(node.sent.Count(FrameKind::kTaskReply) == 1);
}

SCENARIO("the raylet hears of the constructor of a detached actor alone") {
  CoreNode node;
  node.core->EndConstruction({}, /*from_raylet=*/false);
  CHECK(node.sent.Count(FrameKind::kActorReport) == 0);
  node.core->EndConstruction({ErrorKind::kActorDied, "no such file", {}}, /*from_raylet=*/true);
  const auto report = node.Taken<proto::ActorReport>(FrameKind::kActorReport);
  CHECK(report.actor().state() == "DEAD");
  CHECK(report.actor().death() == "no such file");
}

SCENARIO("calls that are queued when a process ends go with it") {
  CoreNode node;
  const std::shared_ptr<CallExecution> running = node.Call({});
  CHECK(running != nullptr);
  CHECK(node.Call({}) == nullptr);  // One at a time.
  CHECK(node.core->executor.queued() == 1);
}

}  // namespace process_core_test
}  // namespace sheaf
