// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Credits: what one process may have at another, who gives them back, and that none is lost.
#include "worker/owner/back_pressure.h"

#include "base/message_limits.h"
#include "worker/core/relay_transport.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace back_pressure_test {

constexpr ProcessId kFar{2, 8};  // On another node.
constexpr BackPressure kSmall{.max_pending = 10'000, .max_untaken = 1000, .taken_step = 250};

// The two ends of a relayed way, and what lies between them.
struct Way {
  RecordingTransport near_rings, far_rings;
  RelayTransport near{kSelf, near_rings, [](Lane) {}, kSmall};
  RelayTransport far{kFar, far_rings, [](Lane) {}, kSmall};

  Channel& ToFar() { return near.To(kFar); }
  // What the raylets make of the oldest frame that `from` sent to its raylet.
  static std::string Carry(RecordingTransport& rings, ProcessId from) {
    std::string body = rings.Take(FrameKind::kRelay).body;
    const uint64_t sender = from.packed();
    std::memcpy(body.data(), &sender, sizeof sender);
    return body;
  }
  // Brings one frame to the far end.
  void Bring() {
    ProcessId from;
    Frame frame;
    REQUIRE(far.Take(Carry(near_rings, kSelf), &from, &frame));
    CHECK(from == kSelf);
    CHECK(frame.kind == FrameKind::kPushTask);
  }
  // Brings what the far end has to say of it.
  std::string Grant() {
    const std::string grant = Carry(far_rings, kFar);
    Grant(grant);
    return grant;
  }
  void Grant(const std::string& relayed) {
    ProcessId from;
    Frame frame;
    CHECK_FALSE(near.Take(relayed, &from, &frame));  // Nobody else's business.
  }
  void Send(size_t bytes) {
    ToFar().Send(Lane::kWork, FrameKind::kPushTask, std::string(bytes, 'x'));
  }
};

// An actor of another owner, and this process as its caller.
struct Caller : Fixture {
  Caller() : Fixture(kSmall) { Answer(1, proto::ActorAnswer::ALIVE, kWorker); }

  void Answer(uint32_t incarnation, proto::ActorAnswer::State state, ProcessId process = {}) {
    proto::ActorAnswer answer;
    answer.set_actor_id(id.Binary());
    answer.set_state(state);
    answer.set_incarnation(incarnation);
    answer.set_process(process.packed());
    answer.set_max_task_retries(retries);
    owner.actors.OnAnswer(answer);
  }
  ObjectHandle Call(size_t argument_bytes = 0, const ObjectHandle& argument = {}) {
    if (method == nullptr) {
      method = const_cast<TemplateRecord*>(&Template(kRetriesOfActor));
      method->spec.set_kind(proto::TaskTemplate::ACTOR_METHOD);
    }
    std::unique_ptr<TaskReferences> references;
    InlineBytes arguments;
    if (argument) {
      references = std::make_unique<TaskReferences>();
      references->arguments.push_back({argument.entry(), 0});
      owner.references.AddUse(*argument.entry());
      arguments.append(AsBytes(ArgumentHead{ArgumentKind::kValue, 0}));
    } else {
      arguments.append(std::string(argument_bytes, 'x'));
    }
    TaskRecord* task = owner.tasks.Add(*method, std::move(arguments), std::move(references), {});
    ObjectHandle result(task->first_return);
    owner.actors.Submit(client, *actor.entry(), *task);
    return result;
  }
  size_t pending() const { return owner.actors.pending_bytes(client); }
  void Room(size_t queued) {
    transport.queued[kWorker] = queued;
    owner.actors.PushHeldBack();
  }

  const ActorId id = ActorId::Make({1, 30}, 4);
  int retries = 0;
  const ObjectHandle actor{owner.references.Incoming({DetachedActorHandle(id), {}})};
  ActorClient& client = owner.actors.ClientOf(*actor.entry());
  TemplateRecord* method = nullptr;
};

SCENARIO("what a process of another node has not taken is counted at its sender") {
  Way way;
  CHECK(way.ToFar().queued_bytes() == 0);
  for (int i = 0; i < 10; ++i) way.Send(84);
  CHECK(way.ToFar().queued_bytes() == 1000);  // Each with its RelayHead of 16 bytes.
  for (int i = 0; i < 9; ++i) way.Bring();
  CHECK(way.far_rings.Count(FrameKind::kRelay) == 3);  // Told each 250 bytes, rounded up to frames.
  way.Grant();
  CHECK(way.ToFar().queued_bytes() == 700);
  way.Grant();
  CHECK(way.ToFar().queued_bytes() == 400);
  way.Grant();
  CHECK(way.ToFar().queued_bytes() == 100);
  way.Bring();
  // The rest is less than a step, and so never fills the way.
  CHECK(way.far_rings.Count(FrameKind::kRelay) == 0);
}

SCENARIO("a grant that comes twice, late, or never changes nothing") {
  Way way;
  for (int i = 0; i < 9; ++i) way.Send(84);
  for (int i = 0; i < 6; ++i) way.Bring();
  const std::string first = way.Grant();
  way.Grant(first);
  CHECK(way.ToFar().queued_bytes() == 600);
  way.Grant();
  way.Grant(first);
  CHECK(way.ToFar().queued_bytes() == 300);
  for (int i = 0; i < 3; ++i) way.Bring();
  way.far_rings.Take(FrameKind::kRelay);  // Lost: the next one says as much, and more.
  for (int i = 0; i < 3; ++i) way.Send(84);
  for (int i = 0; i < 3; ++i) way.Bring();
  way.Grant();
  CHECK(way.ToFar().queued_bytes() == 0);
}

SCENARIO("a process cannot have taken more than it was sent") {
  Way way;
  way.Send(84);
  RelayHead head;
  head.peer = kFar.packed();
  head.kind = static_cast<uint16_t>(kTaken);
  std::string lie(AsBytes(head));
  way.Grant(lie);  // Too short.
  lie += AsBytes(Taken{UINT64_MAX});
  way.Grant(lie);
  CHECK(way.ToFar().queued_bytes() == 0);
  way.Send(84);
  CHECK(way.ToFar().queued_bytes() == 100);
}

SCENARIO("a frame that is too long to go anywhere takes no credits") {
  Way way;
  way.Send(kMaxBodyBytes);
  CHECK(way.ToFar().queued_bytes() == 0);
}

SCENARIO("with a dead process its counts go, and its successor begins with nothing") {
  Way way;
  way.Send(984);
  way.near.Forget(kFar);
  CHECK(way.near.To({2, 9}).queued_bytes() == 0);
  CHECK(way.ToFar().queued_bytes() == 0);
}

SCENARIO("raylets grant nothing, and are not waited for") {
  Way way;
  way.near.To(RayletOf(kFar.node))
      .Send(Lane::kControl, FrameKind::kLeaseReturn, std::string(5000, 'x'));
  CHECK(way.near.To(RayletOf(kFar.node)).queued_bytes() == 0);
  ProcessId from;
  Frame frame;
  CHECK(way.far.Take(Way::Carry(way.near_rings, RayletOf(kSelf.node)), &from, &frame));
  CHECK(way.far_rings.sent.empty());
}

SCENARIO("calls for which the way to the actor has no room stay with their caller, in order") {
  Caller f;
  const ObjectHandle first = f.Call();
  f.transport.queued[kWorker] = kSmall.max_untaken;
  const ObjectHandle second = f.Call(), third = f.Call();
  CHECK(f.transport.Count(FrameKind::kPushTask) == 1);
  f.Room(kSmall.max_untaken);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 1);
  CHECK(f.owner.actors.holds_back());
  f.Room(kSmall.max_untaken - 1);
  CHECK_FALSE(f.owner.actors.holds_back());
  for (const ObjectHandle& call : {first, second, third})
    CHECK(f.TakePush().task_sequence_bits == TaskOf(call.id()).sequence_bits);
}

SCENARIO("values of arguments count when they travel with a call") {
  Caller f;
  const ObjectHandle value(f.owner.references.NewOwned(ObjectId::Make(kSelf, 900, 1)));
  f.owner.references.SetValue(*value.entry(), std::string(6000, 'v'));
  f.Call(0, value);
  CHECK(f.pending() > 6000);
  f.Call(0, value);  // Its own size counts once it leaves.
  CHECK(f.transport.Count(FrameKind::kPushTask) == 2);
  CHECK(f.pending() > kSmall.max_pending);
  f.Call(0, value);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 2);
  f.Reply(f.TakePush(), "");
  f.owner.actors.PushHeldBack();
  CHECK(f.transport.Count(FrameKind::kPushTask) == 2);
}

SCENARIO("a call's credits come back once, however it ends") {
  Caller f;
  const auto call = [&] { return f.Call(100); };
  std::vector<ObjectHandle> results;
  for (int i = 0; i < 4; ++i) results.push_back(call());
  CHECK(f.pending() == 4 * (kCallBytes + 100));

  GIVEN("replies, one of them twice") {
    for (int i = 0; i < 4; ++i) {
      const PushTaskHead push = f.TakePush();
      f.Reply(push, "");
      f.Reply(push, "");
      CHECK(f.pending() == (3 - static_cast<size_t>(i)) * (kCallBytes + 100));
    }
  }
  GIVEN("errors") {
    for (int i = 0; i < 4; ++i) f.Reply(f.TakePush(), "no", ReplyStatus::kFailed);
  }
  GIVEN("the death of a process that had started some of them") {
    f.Die(kWorker, kPushOfCreation + 2);
    CHECK(f.pending() == 4 * (kCallBytes + 100));  // While nobody knows what becomes of them.
    f.Answer(2, proto::ActorAnswer::ALIVE, {1, 78});
    CHECK(f.pending() == 2 * (kCallBytes + 100));  // Those that had not started go there.
    f.transport.sent.pop_front();
    while (f.transport.Count(FrameKind::kPushTask) > 2) f.TakePush();
    for (int i = 0; i < 2; ++i) f.Reply(f.TakePush(), "", ReplyStatus::kDone, 1000, {1, 78});
  }
  GIVEN("the death of the actor, while some are held back") {
    f.transport.queued[kWorker] = kSmall.max_untaken;
    for (int i = 0; i < 4; ++i) results.push_back(call());
    f.Answer(1, proto::ActorAnswer::DEAD);
    for (const ObjectHandle& result : results)
      CHECK(ObjectState{result.entry()->state} == ObjectState::kError);
    f.owner.actors.PushHeldBack();
  }
  GIVEN("cancellation of what is held back") {
    f.transport.queued[kWorker] = kSmall.max_untaken;
    const ObjectHandle waits = call();
    f.owner.Cancel(*waits.entry(), false, false);
    CHECK(f.pending() == 4 * (kCallBytes + 100));
    for (int i = 0; i < 4; ++i) f.Reply(f.TakePush(), "");
  }
  GIVEN("an actor that gives them back unstarted, and another incarnation") {
    for (int i = 0; i < 4; ++i) {
      const PushTaskHead push = f.TakePush();
      const TaskReturned back{push.task_sequence_bits, push.push, push.cookie, push.attempt};
      f.owner.OnFrame(kWorker, {FrameKind::kTaskReturned, AsBytes(back)});
    }
    CHECK(f.pending() == 4 * (kCallBytes + 100));
    f.Die(kWorker, 0);
    f.Answer(2, proto::ActorAnswer::ALIVE, {1, 78});
    for (int i = 0; i < 4; ++i) f.Reply(f.TakePush(), "", ReplyStatus::kDone, 1000, {1, 78});
  }
  CHECK(f.pending() == 0);
  CHECK(f.client.in_flight.size + f.client.queue.size + f.client.undecided.size == 0);
}

SCENARIO("calls of an actor that starts or restarts count as well") {
  Caller f;
  f.Die(kWorker, 0);
  for (int i = 0; i < 20; ++i) f.Call(1000);
  CHECK(f.pending() == 20 * (kCallBytes + 1000));
}

SCENARIO("a worker is given no more arguments ahead than may be on the way") {
  Fixture f(kSmall);
  const TemplateRecord& spec = f.Template();
  const auto submit = [&] {
    TaskRecord* task = f.owner.tasks.Add(spec, InlineBytes(std::string(400, 'x')), nullptr, {});
    ObjectHandle result(task->first_return);
    f.owner.submitter.Submit(*task);
    return result;
  };
  std::vector<ObjectHandle> results{submit()};
  f.Grant();
  f.Reply(f.TakePush(), "", ReplyStatus::kDone, 1);  // They are short: many could be given ahead.
  for (int i = 0; i < 10; ++i) results.push_back(submit());
  CHECK(f.transport.Count(FrameKind::kPushTask) == 1);
  for (int i = 0; i < 10; ++i) f.Reply(f.TakePush(), "", ReplyStatus::kDone, 1);
  CHECK(f.owner.tasks.size() == 0);
}

}  // namespace back_pressure_test
}  // namespace sheaf
