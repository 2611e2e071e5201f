// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors as their creator and their callers see them.
#include <memory>
#include <vector>

#include "telemetry/event_reader.h"
#include "telemetry/event_writer.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace actors_test {

struct ActorFixture : Fixture {
  const TemplateRecord& Creation(int max_restarts = 0, bool out_of_order = false) {
    TemplateRecord& record = const_cast<TemplateRecord&>(Template());
    record.spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
    record.spec.mutable_actor()->set_max_restarts(max_restarts);
    record.spec.mutable_actor()->set_out_of_order(out_of_order);
    return record;
  }
  const TemplateRecord& Method() {
    TemplateRecord& record = const_cast<TemplateRecord&>(Template(0));
    record.spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
    return record;
  }
  // `argument`: a call whose value its constructor waits for.
  ObjectHandle Create(const TemplateRecord& creation, const ObjectHandle& argument = {}) {
    TaskRecord* task = owner.tasks.Add(creation, Encoded(argument), Uses(argument), {});
    ObjectHandle handle(task->first_return);
    owner.references.List(*handle.entry());
    owner.created_actors.Create(*task);
    REQUIRE(demand.ParseFromString(transport.Take(FrameKind::kLeaseDemand).body));
    return handle;
  }
  // `argument`: a call whose value this one waits for.
  ObjectHandle Call(const ObjectHandle& actor, const ObjectHandle& argument = {}) {
    TaskRecord* task = owner.tasks.Add(Method(), Encoded(argument), Uses(argument), {});
    ObjectHandle result(task->first_return);
    owner.actors.Submit(owner.actors.ClientOf(*actor.entry()), *actor.entry(), *task);
    return result;
  }
  std::unique_ptr<TaskReferences> Uses(const ObjectHandle& argument) {
    if (!argument) return nullptr;
    auto references = std::make_unique<TaskReferences>();
    references->arguments.push_back({argument.entry(), 0, false});
    owner.references.AddUse(*argument.entry());
    return references;
  }
  static InlineBytes Encoded(const ObjectHandle& argument) {
    return argument ? InlineBytes(AsBytes(ArgumentHead{ArgumentKind::kStore, 0})) : InlineBytes();
  }
  void GrantActor() {
    proto::LeaseGrant grant;
    grant.set_key(demand.key());
    grant.set_lease(5);
    grant.set_worker(kWorker.packed());
    owner.OnFrame(kRaylet, {FrameKind::kLeaseGrant, grant.SerializeAsString()});
  }
  std::vector<telemetry::TaskEvent> Events() {
    std::vector<telemetry::TaskEvent> recorded;
    reader.Drain([&](const telemetry::TaskEvent& event, std::string_view, const TraceContext&) {
      recorded.push_back(event);
    });
    return recorded;
  }
  void RecordEvents() {
    owner.tasks.set_figures({metrics, metrics::HistogramId::kTaskLatency},
                            {metrics, metrics::HistogramId::kActorCallLatency}, &writer);
  }

  proto::LeaseDemand demand;  // The last actor's.
  metrics::Page metrics{};
  std::unique_ptr<telemetry::EventPage> events = std::make_unique<telemetry::EventPage>();
  telemetry::EventWriter writer{*events};
  telemetry::EventReader reader{*events};
};

SCENARIO("an actor that is killed to restart while it waits for a worker goes on waiting") {
  ActorFixture f;
  const ObjectHandle actor = f.Create(f.Creation(1));
  f.owner.created_actors.Kill(ActorOf(actor), /*no_restart=*/false, "kill was called");
  CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 0);  // What it asked for stands.
  f.GrantActor();
  CHECK(f.TakePush().lease == 5);
}

SCENARIO(
    "of an actor that will not start nothing stays asked for or held, whichever node refused it") {
  ActorFixture f;
  const auto wants_none = [&f] {
    proto::LeaseDemand last;
    REQUIRE(last.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
    return last.key() == f.demand.key() && last.wanted() == 0;
  };
  SECTION("its worker cannot be started") {
    const ObjectHandle actor = f.Create(f.Creation());
    proto::LeaseRefused refused;
    refused.set_key(f.demand.key());
    refused.set_error(static_cast<uint32_t>(ErrorKind::kSystem));
    f.owner.OnFrame(RayletOf(2), {FrameKind::kLeaseRefused, refused.SerializeAsString()});
    CHECK(wants_none());
  }
  SECTION("an argument of its constructor failed") {
    const bool has_worker = GENERATE(false, true);
    CAPTURE(has_worker);
    const ObjectHandle argument = f.Submit(f.Template(0));
    f.Grant();
    CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 1);
    f.transport.Take(FrameKind::kLeaseDemand);
    const ObjectHandle actor = f.Create(f.Creation(), argument);
    if (has_worker) f.GrantActor();
    f.Reply(f.TakePush(), "no", ReplyStatus::kFailed);
    if (has_worker) {
      CHECK(f.transport.Count(FrameKind::kKillWorker) == 1);
    } else {
      CHECK(wants_none());
    }
  }
}

SCENARIO("who waits for an actor's creation is told of the actor, whatever state it is in") {
  ActorFixture f;
  const ObjectHandle actor = f.Create(f.Creation());
  const TaskRecord* creation = actor.entry()->task;
  REQUIRE(creation != nullptr);
  CHECK(creation->target.created() != nullptr);
  CHECK(creation->target.actor() == nullptr);
  CHECK(creation->target.lease() == nullptr);
  CHECK(f.owner.WordsOf(*creation) == "waits for its actor to start");
  f.GrantActor();
  CHECK(f.owner.WordsOf(*creation) == "waits for its actor to start");
}

SCENARIO("the end of an actor is no failure of its constructor, which its worker recorded") {
  ActorFixture f;
  f.RecordEvents();
  const ObjectHandle actor = f.Create(f.Creation());
  const auto kill = [&] {
    f.owner.created_actors.Kill(ActorOf(actor), /*no_restart=*/true, "kill was called");
  };
  SECTION("it has run") {
    f.GrantActor();
    f.Reply(f.TakePush(), "");
    kill();
    CHECK(f.Events().empty());
    CHECK(f.owner.tasks.task_counts().finished == 1);
    CHECK(f.owner.tasks.task_counts().failed == 0);
  }
  SECTION("it has failed") {
    f.GrantActor();
    f.Reply(f.TakePush(), "no such file", ReplyStatus::kFailed);
    CHECK(f.Events().empty());
    CHECK(f.owner.tasks.task_counts().failed == 1);
  }
  SECTION("it never ran") {
    kill();
    REQUIRE(f.Events().size() == 1);
    CHECK(f.owner.tasks.task_counts().failed == 1);
  }
}

SCENARIO("a call that runs again on the next incarnation has a failed attempt before it") {
  ActorFixture f;
  f.RecordEvents();
  TemplateRecord& creation = const_cast<TemplateRecord&>(f.Creation(/*max_restarts=*/1));
  const ObjectHandle actor = f.Create(creation);
  f.GrantActor();
  f.Reply(f.TakePush(), "");
  TemplateRecord& method = const_cast<TemplateRecord&>(f.Method());
  method.spec.set_max_retries(1);
  TaskRecord* task = f.owner.tasks.Add(method, {}, nullptr, {});
  const ObjectHandle result(task->first_return);
  f.owner.actors.Submit(f.owner.actors.ClientOf(*actor.entry()), *actor.entry(), *task);
  f.owner.OnProcessDied(kWorker, {}, f.TakePush().push);
  const std::vector<telemetry::TaskEvent> events = f.Events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].attempt == 0);
  CHECK(events[0].error == ErrorKind::kActorUnavailable);
  CHECK(ObjectState{result.entry()->state} == ObjectState::kPending);
}

SCENARIO("a process that dies in the constructor has started no call") {
  ActorFixture f;
  const ObjectHandle actor = f.Create(f.Creation(/*max_restarts=*/1));
  const ObjectHandle first = f.Call(actor);
  f.GrantActor();
  const PushTaskHead creation = f.TakePush();
  const PushTaskHead call = f.TakePush();
  CHECK(creation.push == kPushOfCreation);
  f.owner.OnProcessDied(kWorker, {}, creation.push);
  CHECK(call.push > creation.push);
  CHECK(ObjectState{first.entry()->state} == ObjectState::kPending);
}

SCENARIO(
    "an actor whose constructor has not begun starts again without a restart, but not for ever") {
  ActorFixture f;
  const ObjectHandle actor = f.Create(f.Creation(/*max_restarts=*/0));
  const ObjectHandle first = f.Call(actor);
  for (int process = 0; process < 10; ++process) {
    f.GrantActor();
    f.owner.OnProcessDied(kWorker, {}, 0);
    REQUIRE(ObjectState{first.entry()->state} == ObjectState::kPending);
    REQUIRE(f.demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
  }
  f.GrantActor();
  f.owner.OnProcessDied(kWorker, {}, 0);
  CHECK(ObjectState{first.entry()->state} == ObjectState::kError);
}

SCENARIO("the GCS is asked about an actor that starts again and again, ever less often") {
  ActorFixture f;
  const ActorId id = ActorId::Make({1, 30}, 4);
  const ObjectHandle actor(f.owner.references.Incoming({DetachedActorHandle(id), {}}));
  int asked = 0;
  f.owner.actors.set_ask_gcs([&](ActorId) { ++asked; });
  const ObjectHandle call = f.Call(actor);
  CHECK(asked == 1);
  CHECK(f.owner.actors.TakeAsked());
  f.clock.Advance(ActorSubmitter::kFirstAskAgain);
  f.owner.actors.Tick();
  CHECK(asked == 2);
  for (Nanos passed = 0; passed < 10 * kSecond; passed += kMillisecond) {
    f.clock.Advance(kMillisecond);
    f.owner.actors.Tick();
  }
  CHECK(asked < 25);
  CHECK(asked > 15);
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
    REQUIRE(ObjectState{result.entry()->state} == ObjectState::kError);
    CHECK(result.entry()->extra->error.kind == ErrorKind::kActorDied);
  }
}

SCENARIO("what had not started goes to the next incarnation before what was called later") {
  ActorFixture f;
  const ActorId id = ActorId::Make({1, 30}, 4);
  const ObjectHandle actor(f.owner.references.Incoming({DetachedActorHandle(id), {}}));
  const auto alive = [&](uint32_t incarnation, ProcessId process) {
    proto::ActorAnswer answer;
    answer.set_actor_id(id.Binary());
    answer.set_state(proto::ActorAnswer::ALIVE);
    answer.set_incarnation(incarnation);
    answer.set_process(process.packed());
    f.owner.actors.OnAnswer(answer);
  };
  const ObjectHandle started = f.Call(actor);
  alive(1, kWorker);
  const uint64_t started_push = f.TakePush().push;
  const ObjectHandle second = f.Call(actor);
  f.TakePush();
  const ObjectHandle waits = f.Call(actor, started);  // Holds back what comes behind it,
  const ObjectHandle last = f.Call(actor);
  f.owner.OnProcessDied(kWorker, {}, started_push);
  // until the one that had started, and may not run again, fails as the next incarnation is there.
  alive(2, {1, 78});
  REQUIRE(ObjectState{started.entry()->state} == ObjectState::kError);
  CHECK(ObjectState{waits.entry()->state} == ObjectState::kError);
  CHECK(f.TakePush().task_sequence_bits == TaskOf(second.id()).sequence_bits);
  CHECK(f.TakePush().task_sequence_bits == TaskOf(last.id()).sequence_bits);
}

SCENARIO("a call of an actor that is tried again looks at its arguments again") {
  ActorFixture f;
  const ObjectHandle actor = f.Create(f.Creation());
  f.GrantActor();
  f.Reply(f.TakePush(), "");
  ObjectEntry* argument =
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
  const ObjectHandle handle(argument);
  f.owner.references.SetStored(*argument, {2, 3, 1, 0}, 100);
  auto references = std::make_unique<TaskReferences>();
  references->arguments.push_back({argument, 0, false});
  f.owner.references.AddUse(*argument);
  const_cast<TemplateRecord&>(f.Method()).spec.set_max_retries(-1);
  TaskRecord* task = f.owner.tasks.Add(f.templates.back(),
                                       InlineBytes(AsBytes(ArgumentHead{ArgumentKind::kStore, 0})),
                                       std::move(references), {});
  const ObjectHandle result(task->first_return);
  f.owner.actors.Submit(f.owner.actors.ClientOf(*actor.entry()), *actor.entry(), *task);
  const PushTaskHead push = f.TakePush();
  f.owner.OnNodeGone(2);
  REQUIRE(ObjectState{argument->state} == ObjectState::kError);
  f.Reply(push, "the argument could not be fetched", ReplyStatus::kFailedRetriable);
  REQUIRE(ObjectState{result.entry()->state} == ObjectState::kError);
  CHECK(result.entry()->extra->error.kind == ErrorKind::kObjectLost);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
}

SCENARIO("out of order a call overtakes those that wait for arguments, and none is lost") {
  ActorFixture f;
  const bool of_another =
      GENERATE(false, true);  // Whose creator says it when the calls are queued.
  const ActorId foreign = ActorId::Make({1, 30}, 4);
  const ObjectHandle actor =
      of_another ? ObjectHandle(f.owner.references.Incoming({DetachedActorHandle(foreign), {}}))
                 : f.Create(f.Creation(0, /*out_of_order=*/true));
  const ObjectHandle argument(
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1)));
  const ObjectHandle lost(
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1)));
  const ObjectHandle waits = f.Call(actor, argument);
  const ObjectHandle fails = f.Call(actor, lost);
  const ObjectHandle given_up = f.Call(actor, argument);
  const ObjectHandle first = f.Call(actor);
  proto::ActorAnswer answer;
  answer.set_actor_id(foreign.Binary());
  answer.set_out_of_order(true);
  if (of_another) {
    answer.set_state(proto::ActorAnswer::ALIVE);
    answer.set_incarnation(1);
    answer.set_process(kWorker.packed());
    f.owner.actors.OnAnswer(answer);
  } else {
    f.GrantActor();
    f.Reply(f.TakePush(), "");
  }
  const ActorClient& client = f.owner.actors.ClientOf(*actor.entry());
  const auto next_is = [&](const ObjectHandle& call) {
    return f.TakePush().task_sequence_bits == TaskOf(call.id()).sequence_bits;
  };
  CHECK(next_is(first));
  const ObjectHandle second = f.Call(actor);
  CHECK(next_is(second));
  CHECK(f.owner.actors.pending(client) == 5);
  f.owner.CancelTask(TaskOf(given_up.id()), false, false);
  CHECK(given_up.entry()->extra->error.kind == ErrorKind::kTaskCancelled);
  f.owner.references.SetError(*lost.entry(), {ErrorKind::kObjectLost, "lost", {}});
  CHECK(fails.entry()->state == ObjectState::kError);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  WHEN("the argument comes") {
    f.owner.references.SetValue(*argument.entry(), "value");
    CHECK(next_is(waits));
    CHECK(f.owner.actors.pending(client) == 3);
  }
  WHEN("the actor dies") {
    if (of_another) {
      answer.set_state(proto::ActorAnswer::DEAD);
      f.owner.actors.OnAnswer(answer);
    } else {
      f.owner.created_actors.Kill(ActorOf(actor), /*no_restart=*/true, "kill was called");
    }
    CHECK(waits.entry()->extra->error.kind == ErrorKind::kActorDied);
    CHECK(f.owner.actors.pending(client) == 0);
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
  proto::KillWorker end;
  REQUIRE(end.ParseFromString(f.transport.Take(FrameKind::kKillWorker).body));
  CHECK(end.patience_ns() > 0);  // It may run what users have for its end.
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

SCENARIO("who has an actor killed for good calls it no more, though it has not ended yet") {
  ActorFixture f;
  const ActorId id = ActorId::Make({1, 30}, 4);
  const ObjectHandle actor(f.owner.references.Incoming({DetachedActorHandle(id), {}}));
  const ObjectHandle before = f.Call(actor);
  proto::ActorAnswer alive;
  alive.set_actor_id(id.Binary());
  alive.set_state(proto::ActorAnswer::ALIVE);
  alive.set_process(kWorker.packed());
  alive.set_incarnation(1);
  f.owner.actors.OnAnswer(alive);
  const PushTaskHead push = f.TakePush();
  f.owner.actors.RefuseFromNowOn(f.owner.actors.ClientOf(*actor.entry()),
                                 {ErrorKind::kActorDied, "kill was called", {}});
  const ObjectHandle after = f.Call(actor);
  CHECK(after.entry()->extra->error.kind == ErrorKind::kActorDied);
  f.Reply(push, "1");
  CHECK(before.entry()->value == "1");
}

// While its creator waits to hear whether it may have its name, others may have heard that it has.
SCENARIO("an actor whose name is being taken is pending for all who ask, and its calls wait") {
  ActorFixture f;
  f.RecordEvents();
  TaskRecord* task = f.owner.tasks.Add(f.Creation(), {}, nullptr, {});
  const ObjectHandle actor(task->first_return);
  f.owner.references.List(*actor.entry());
  f.owner.created_actors.Enter(*task);
  proto::ActorQuery query;
  query.set_actor_id(ActorOf(actor).Binary());
  f.owner.OnFrame(kWorker, {FrameKind::kActorQuery, query.SerializeAsString()});
  proto::ActorAnswer answer;
  REQUIRE(answer.ParseFromString(f.transport.Take(FrameKind::kActorAnswer).body));
  CHECK(answer.state() == proto::ActorAnswer::PENDING);
  // What the GCS says of it leads to the same object.
  ObjectEntry* const found = f.owner.references.Incoming({actor.id(), {}});
  CHECK(found == actor.entry());
  const ObjectHandle result = f.Call(actor);
  CHECK(ObjectState{result.entry()->state} == ObjectState::kPending);
  CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 0);
  SECTION("it begins") {
    f.owner.created_actors.Begin(*task);
    REQUIRE(f.demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
    f.GrantActor();
    CHECK(f.TakePush().lease == 5);
  }
  SECTION("it does not") {
    f.owner.created_actors.GiveUp(*task, {ErrorKind::kActorNameTaken, "taken", {}});
    REQUIRE(answer.ParseFromString(f.transport.Take(FrameKind::kActorAnswer).body));
    CHECK(answer.state() == proto::ActorAnswer::DEAD);
    CHECK(f.transport.Count(FrameKind::kActorReport) == 0);
    const std::vector<telemetry::TaskEvent> recorded = f.Events();  // Of the call alone.
    REQUIRE(recorded.size() == 1);
    CHECK(recorded[0].task == TaskOf(result.id()));
    CHECK(ObjectState{result.entry()->state} == ObjectState::kError);
    CHECK_FALSE(f.owner.created_actors.Manages(ActorOf(actor)));
  }
}

}  // namespace actors_test
}  // namespace sheaf
