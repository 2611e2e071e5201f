// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/loopback.h"

#include "worker/core/core_node_for_test.h"

namespace sheaf {

SCENARIO("a process hears what it says to itself when it looks, control before work") {
  std::vector<Lane> calls;
  Loopback loop([&](Lane lane) { calls.push_back(lane); });
  CHECK(loop.empty());
  loop.Send(Lane::kWork, FrameKind::kPushTask, "wo", "rk");
  loop.Send(Lane::kControl, FrameKind::kCancelTask, "first", {});
  loop.Send(Lane::kControl, FrameKind::kCancelTask, "second", {});
  CHECK(calls == std::vector{Lane::kWork, Lane::kControl, Lane::kControl});
  CHECK(loop.queued_bytes() > 15);
  std::vector<std::string> heard;
  loop.HandOver([&](const Frame& frame) {
    heard.emplace_back(frame.body);
    if (heard.size() == 1) loop.Send(Lane::kControl, FrameKind::kCancelTask, "sent meanwhile", {});
  });
  CHECK(heard == std::vector<std::string>{"first", "second", "sent meanwhile"});
  CHECK_FALSE(loop.empty());  // As many as lay there; the rest is for the next look.
  loop.HandOver([&](const Frame& frame) { heard.emplace_back(frame.body); });
  CHECK(heard.back() == "work");
  CHECK(loop.empty());
  CHECK(loop.queued_bytes() == 0);
}

SCENARIO("a process that always answers itself looks at its peers in between") {
  size_t sent = 0, heard = 0;
  Loopback loop([&](Lane) { ++sent; });
  loop.Send(Lane::kWork, FrameKind::kPushTask, "again", {});
  for (size_t look = 1; look <= 3; ++look) {
    loop.HandOver([&](const Frame&) {
      if (++heard < 1000) loop.Send(Lane::kWork, FrameKind::kPushTask, "again", {});
    });
    CHECK(heard == look);
    CHECK(sent == look + 1);  // Somebody is told to look again.
    CHECK_FALSE(loop.empty());
  }
}

SCENARIO("an actor that calls itself runs the call and has its result") {
  CoreNode node;
  ProcessCore& core = *node.core;
  proto::ActorAnswer here;
  const TaskId creation = TaskId::Make(kWorker, 7);
  const ActorId actor{creation.maker_bits, creation.sequence_bits};
  proto::ActorInfo info;
  info.set_actor_id(actor.Binary());
  const ObjectHandle handle = core.actor_directory.HandleOf(info);
  ActorClient& client = core.owner.actors.ClientOf(*handle.entry());
  here.set_actor_id(actor.Binary());
  here.set_state(proto::ActorAnswer::ALIVE);
  here.set_incarnation(1);
  here.set_process(kSelf.packed());
  core.owner.actors.OnAnswer(here);

  proto::TaskTemplate spec;
  spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
  spec.set_num_returns(1);
  const TemplateHandle method = core.MakeTemplate(spec);
  ArgumentList arguments;
  arguments.AddValue("21");
  const ObjectHandle result = core.SubmitOneToActor(client, handle, method, &arguments, {});
  CHECK(node.own_frames > 0);
  CHECK(core.has_own_frames());
  CHECK(core.executor.queued() == 0);  // Never inside the call.

  core.EndConstruction({}, /*from_raylet=*/false);
  core.HandleOwnFrames();
  std::shared_ptr<CallExecution> call = core.executor.Take(core.executor.default_group());
  REQUIRE(call != nullptr);
  CHECK(call->owner == kSelf);
  CHECK(call->argument(0).bytes == "21");
  CHECK(call->Return(0, "42", {}).ok());
  call.reset();
  core.executor.FinishEnded();
  ObjectView view;
  CHECK(!core.TryView(result, &view));
  core.HandleOwnFrames();
  REQUIRE(core.TryView(result, &view));
  CHECK(view.bytes == "42");
  CHECK(node.sent.Count(FrameKind::kPushTask) == 0);
  CHECK(node.sent.Count(FrameKind::kTaskReply) == 0);

  // One that it cancels is cancelled where it runs, and no owner is asked.
  ArgumentList none;
  const ObjectHandle second = core.SubmitOneToActor(client, handle, method, &none, {});
  core.owner.Cancel(*second.entry(), false, false);
  core.HandleOwnFrames();
  core.executor.FinishEnded();
  core.HandleOwnFrames();
  REQUIRE(core.TryView(second, &view));
  REQUIRE(view.error != nullptr);
  CHECK(view.error->kind == ErrorKind::kTaskCancelled);
}

}  // namespace sheaf
