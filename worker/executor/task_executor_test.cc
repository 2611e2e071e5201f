// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a worker leaves for the raylet to read after its death: which push it had started, and of
// which lease.
#include "worker/executor/task_executor.h"

#include "shm/process_segment.h"
#include "worker/executor/fake_execution_host.h"
#include "worker/limits.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace task_executor_test {

constexpr ProcessId kCaller{1, 9};
constexpr ProcessId kOther{1, 10};
constexpr uint64_t kLease = 5;

struct ExecutorTest : FakeExecutionHost {
  absl::Status SendItem(CallExecution& call, const std::string&,
                        std::span<const ObjectHandle>) override {
    sent.push_back(call.stream_sent++);
    return absl::OkStatus();
  }
  void Ended(CallExecution* call) override {
    executor.NoteEnded(call);
    executor.FinishEnded();
  }

  void Begin(uint64_t lease) {
    proto::LeaseBegin begin;
    begin.set_lease(lease);
    executor.OnLeaseBegin(begin);
  }
  void Push(ProcessId from, proto::TaskTemplate::Kind kind, uint64_t lease, uint64_t push) {
    PushTaskHead head{};
    head.task_sequence_bits = push;
    head.lease = lease;
    head.push = push;
    head.flags = kTemplateInline;
    proto::TaskTemplate spec;
    spec.set_name("f");
    spec.set_kind(kind);
    std::string body(AsBytes(head));
    body += spec.SerializeAsString();
    executor.OnPush(from, body);
  }
  // Starts the next call, and ends it.
  void RunNext() {
    std::shared_ptr<CallExecution> call = executor.Take(executor.default_group());
    REQUIRE(call != nullptr);
    started = {page.started_lease.load(), page.StartedOf(call->owner)};
  }

  Fixture process;
  ProcessPage page{};
  metrics::Page metrics{};
  TaskExecutor executor{kSelf,
                        process.clock,
                        process.transport,
                        process.owner.references,
                        process.owner.transits,
                        *this,
                        &page,
                        metrics};
  std::pair<uint64_t, uint64_t> started;
  std::vector<uint64_t> sent;  // Indices of items.
};

// A stream whose consumer has all items before `from` but `lost`.
struct Resumed : ExecutorTest {
  Resumed(uint64_t from, uint64_t consumed, std::vector<uint64_t> lost, int max_unconsumed = 0) {
    PushTaskHead head{};
    head.flags = kStreamResumes;
    std::string frame(AsBytes(head));
    WireWriter out(frame);
    out.Struct(StreamResume{from, consumed, lost.size()});
    for (const uint64_t index : lost) out.Struct(index);
    auto spec = std::make_shared<proto::TaskTemplate>();
    spec->set_streaming(true);
    spec->set_max_unconsumed(max_unconsumed);
    REQUIRE(call.Begin(kCaller, spec, frame));
  }
  // Whether another item is wanted.
  bool Yield() { return call.Yield("item", {}).ok(); }
  CallExecution call{*this};
};

SCENARIO("a caller whose memory for values is used up gets results through the store") {
  ExecutorTest t;
  for (const uint16_t flags : {uint16_t{0}, kResultsToStore}) {
    PushTaskHead head{};
    head.flags = flags;
    CallExecution call{t};
    REQUIRE(call.Begin(kCaller, std::make_shared<proto::TaskTemplate>(), AsBytes(head)));
    CHECK(call.Return(0, std::string(100, 'v'), {}).ok());
    const bool in_reply = call.Return(0, std::string(60'000, 'v'), {}).ok();
    CHECK(in_reply == (flags == 0));  // This test has no store.
    call.Fail({ErrorKind::kTaskFailed, "over", {}}, false);
  }
}

SCENARIO("a call of a task is started under the lease that it was pushed for") {
  ExecutorTest t;
  t.Begin(kLease);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 1);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 2);
  t.RunNext();
  CHECK(t.started == std::pair{kLease, uint64_t{1}});
  t.RunNext();
  CHECK(t.started == std::pair{kLease, uint64_t{2}});
  THEN("the next lease counts from the beginning") {
    t.Begin(kLease + 1);
    t.Push(kCaller, proto::TaskTemplate::TASK, kLease + 1, 1);
    t.RunNext();
    CHECK(t.started == std::pair{kLease + 1, uint64_t{1}});
  }
  THEN("a push of the lease that has ended goes back, and is not started") {
    t.Begin(kLease + 1);
    t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 3);
    CHECK(t.executor.queued() == 0);
    CHECK(t.process.transport.Count(FrameKind::kTaskReturned) == 1);
    CHECK(t.page.started_push.load() == 2);
  }
}

SCENARIO("what an owner takes back comes back though the question overtakes it, the newest first") {
  ExecutorTest t;
  proto::LeaseBegin begin;
  begin.set_lease(kLease);
  begin.set_owner(kCaller.packed());
  t.executor.OnLeaseBegin(begin);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 1);
  const std::shared_ptr<CallExecution> long_one = t.executor.Take(t.executor.default_group());
  REQUIRE(long_one != nullptr);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 2);
  t.executor.OnTakeBack(kCaller, {kLease, 4});
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 3);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 4);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 5);  // Made behind the question.
  std::vector<uint64_t> returned;
  for (const auto& frame : t.process.transport.sent) {
    if (frame.kind != FrameKind::kTaskReturned) continue;
    returned.push_back(FrameHead<TaskReturned>(frame.body)->push);
  }
  CHECK(returned == std::vector<uint64_t>{4, 3, 2});
  CHECK(t.executor.default_group().queue.size() == 1);
}

SCENARIO("callers of a detached actor know no lease; what they push is started under the actor's") {
  ExecutorTest t;
  t.Begin(kLease);
  t.Push(kRaylet, proto::TaskTemplate::ACTOR_CREATION, 0, 1);
  t.RunNext();
  CHECK(t.started == std::pair{kLease, uint64_t{1}});
  t.executor.CountConstructed({});
  t.Push(kCaller, proto::TaskTemplate::ACTOR_METHOD, 0, 2);
  t.RunNext();
  CHECK(t.started == std::pair{kLease, uint64_t{2}});
  AND_THEN("each of them has numbers of its own") {
    t.Push(kOther, proto::TaskTemplate::ACTOR_METHOD, 0, 1);
    t.RunNext();
    CHECK(t.started == std::pair{kLease, uint64_t{1}});
    t.executor.OnProcessDied(kOther);
    CHECK(t.page.StartedOf(kOther) == 0);
    CHECK(t.page.StartedOf(kCaller) == 2);
  }
}

SCENARIO("a detached actor begins no call when its lease from the GCS has run out") {
  ExecutorTest t;
  t.Begin(kLease);
  t.Push(kRaylet, proto::TaskTemplate::ACTOR_CREATION, 0, 1);
  t.RunNext();
  t.executor.CountConstructed({});
  proto::ActorLease lease;
  lease.set_until_ns(t.process.clock.Now() + kSecond);
  t.executor.OnActorLease(lease);
  t.Push(kCaller, proto::TaskTemplate::ACTOR_METHOD, 0, 2);
  t.Push(kCaller, proto::TaskTemplate::ACTOR_METHOD, 0, 3);
  t.RunNext();
  t.process.clock.Advance(kSecond);
  CHECK(t.executor.Take(t.executor.default_group()) == nullptr);
  CHECK(t.executor.queued() == 1);
  THEN("it goes on with the next lease") {
    lease.set_until_ns(t.process.clock.Now() + kSecond);
    t.executor.OnActorLease(lease);
    t.RunNext();
  }
}

SCENARIO("a stream that runs again sends what its consumer lacks, and stops when that has all") {
  WHEN("it goes on behind what was there") {
    Resumed r(3, 0, {1});
    for (int i = 0; i < 5; ++i) CHECK(r.Yield());
    CHECK(r.sent == std::vector<uint64_t>{1, 3, 4});
  }
  WHEN("it had ended") {
    Resumed r(StreamResume::kNoMore, 0, {1, 2});
    CHECK(r.Yield());
    CHECK(r.Yield());
    CHECK_FALSE(r.Yield());
    CHECK(r.sent == std::vector<uint64_t>{1, 2});
  }
  WHEN("nothing is lost any more") {
    Resumed r(StreamResume::kNoMore, 0, {});
    CHECK_FALSE(r.Yield());
    CHECK(r.sent.empty());
  }
}

SCENARIO("a bound on what is unconsumed holds a stream that runs again back behind its old items") {
  Resumed r(4, 3, {0}, 2);
  for (int i = 0; i < 5; ++i) {
    CHECK(r.call.HasRoom());  // Also for item 4: nobody may have told how much was consumed since.
    r.Yield();
  }
  CHECK(r.sent == std::vector<uint64_t>{0, 4});
  CHECK_FALSE(r.call.HasRoom());
  r.call.NoteConsumed(4);
  CHECK(r.call.HasRoom());
}

SCENARIO("a stream is bounded by the bytes that are unconsumed") {
  Resumed r(0, 0, {});
  auto spec = std::make_shared<proto::TaskTemplate>();
  spec->set_streaming(true);
  spec->set_max_unconsumed_bytes(100);
  PushTaskHead head{};
  CallExecution call{r};
  REQUIRE(call.Begin(kCaller, spec, AsBytes(head)));
  const auto send = [&](uint64_t bytes) {
    call.NoteSent(bytes);
    ++call.stream_sent;
  };
  send(99);
  CHECK(call.HasRoom());
  send(500);  // One goes beyond the bound.
  CHECK_FALSE(call.HasRoom());
  call.NoteConsumed(1);
  CHECK_FALSE(call.HasRoom());
  call.NoteConsumed(2);
  CHECK(call.HasRoom());
}

SCENARIO("a push of a template that did not come, or is gone, is answered with an error") {
  ExecutorTest t;
  t.Begin(kLease);
  const auto push = [&] {
    PushTaskHead head{};
    head.task_sequence_bits = 77;
    head.lease = kLease;
    head.push = 1;
    head.template_number = 3;
    t.executor.OnPush(kCaller, AsBytes(head));
    return t.executor.queued();
  };
  const auto error = [&] {
    const std::string body = t.process.transport.Take(FrameKind::kTaskReply).body;
    const auto* head = FrameHead<TaskReplyHead>(body);
    REQUIRE(head->task_sequence_bits == 77);
    REQUIRE(head->status == ReplyStatus::kFailed);
    return body;
  };
  CHECK(push() == 0);
  CHECK(error().find("template 3 of its caller") != std::string::npos);
  proto::TaskTemplate spec;
  spec.set_number(3);
  t.executor.OnTemplate(kCaller, spec.SerializeAsString());
  CHECK(push() == 1);
  spec.set_gone(true);
  t.executor.OnTemplate(kCaller, spec.SerializeAsString());
  t.RunNext();  // It came before.
  CHECK(push() == 0);
}

SCENARIO("several arguments in one object are unpacked where they stood; a spoilt one is known") {
  ExecutorTest t;
  std::string frame(sizeof(PushTaskHead), '\0');
  WireWriter out(frame);
  const auto add = [](WireWriter& to, std::string_view value) {
    to.Struct(ArgumentHead{ArgumentKind::kValue, static_cast<uint32_t>(value.size())});
    to.Bytes(value);
  };
  add(out, "first");
  out.Struct(ArgumentHead{ArgumentKind::kPack, sizeof(StoreArgument)});
  out.Struct(StoreArgument{});
  add(out, "last");
  PushTaskHead head{};
  head.argument_bytes = static_cast<uint32_t>(frame.size() - sizeof head);
  std::memcpy(frame.data(), &head, sizeof head);
  CallExecution call(t);
  REQUIRE(call.Begin(kCaller, std::make_shared<proto::TaskTemplate>(), frame));
  REQUIRE(call.store_arguments().size() == 1);
  std::string pack;
  WireWriter packed(pack);
  for (const std::string_view value : {"a", "", "a longer one"}) add(packed, value);
  WHEN("it is whole") {
    call.SetArgument(call.store_arguments()[0], {pack, {}, {}, {}, {}});
    REQUIRE(call.Unpack());
    std::vector<std::string> values;
    for (size_t i = 0; i < call.argument_count(); ++i) values.emplace_back(call.argument(i).bytes);
    CHECK(values == std::vector<std::string>{"first", "a", "", "a longer one", "last"});
    CHECK(call.Unpack());  // Once.
    CHECK(call.argument_count() == 5);
    call.DropArguments();
    CHECK(call.argument_count() == 0);
  }
  WHEN("its end is missing") {
    pack.resize(pack.size() - 8);
    call.SetArgument(call.store_arguments()[0], {pack, {}, {}, {}, {}});
    CHECK_FALSE(call.Unpack());
    CHECK_FALSE(call.Unpack());
  }
}

SCENARIO("a value with more references than can travel beside it is refused") {
  ExecutorTest t;
  CallExecution call(t);
  REQUIRE(call.Begin(kCaller, std::make_shared<proto::TaskTemplate>(),
                     std::string(sizeof(PushTaskHead), '\0')));
  const std::vector<ObjectHandle> many(kMaxNested + 1);
  const absl::Status refused = call.Return(0, "value", many);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK(absl::StrCat(refused.message()).find("put them into several values") != std::string::npos);
  CHECK(absl::IsInvalidArgument(call.Yield("value", many)));
}

SCENARIO("what an exception says, and its payload, have a bound; what is left out is said") {
  ExecutorTest t;
  t.Begin(kLease);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 1);
  std::shared_ptr<CallExecution> call = t.executor.Take(t.executor.default_group());
  call->Fail({ErrorKind::kTaskFailed, "begin" + std::string(5 << 20, 'x') + "end",
              std::string(kMaxErrorPayload + 1, 'y')},
             false);
  const Error& error = call->failure();
  CHECK(error.message.size() <= kMaxErrorWords);
  CHECK(error.message.starts_with("begin"));
  CHECK(error.message.find("are left out here") != std::string::npos);
  CHECK(error.message.find("the exception itself is not sent") != std::string::npos);
  CHECK(error.payload.empty());
}

SCENARIO("a push that says nothing sensible of its items does not parse") {
  ExecutorTest t;
  PushTaskHead head{};
  head.flags = kStreamResumes;
  std::string frame(AsBytes(head));
  CHECK_FALSE(CallExecution(t).Begin(kCaller, std::make_shared<proto::TaskTemplate>(), frame));
  WireWriter(frame).Struct(StreamResume{0, 0, UINT64_MAX});
  CHECK_FALSE(CallExecution(t).Begin(kCaller, std::make_shared<proto::TaskTemplate>(), frame));
}

SCENARIO("a lease that the raylet takes back ends when what runs under it has ended") {
  ExecutorTest t;
  t.Begin(kLease);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 1);
  t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 2);
  const auto returned = [&] { return t.process.transport.Count(FrameKind::kLeaseReturn); };
  const auto bounced = [&] { return t.process.transport.Count(FrameKind::kTaskReturned); };
  WHEN("nothing of it has started") {
    CHECK(t.executor.OnLeaseRevoke(kLease));
    CHECK(bounced() == 2);
    CHECK(returned() == 1);
    THEN("later pushes go back, and it is returned once") {
      t.Push(kCaller, proto::TaskTemplate::TASK, kLease, 3);
      CHECK(bounced() == 3);
      CHECK(t.executor.OnLeaseRevoke(kLease));
      CHECK(returned() == 1);
    }
    THEN("the next lease works as any") {
      t.Begin(kLease + 1);
      t.Push(kCaller, proto::TaskTemplate::TASK, kLease + 1, 1);
      t.RunNext();
      CHECK(t.started == std::pair{kLease + 1, uint64_t{1}});
    }
  }
  WHEN("a task of it runs") {
    std::shared_ptr<CallExecution> call = t.executor.Take(t.executor.default_group());
    CHECK(t.executor.OnLeaseRevoke(kLease));
    CHECK(bounced() == 1);
    CHECK(returned() == 0);
    call.reset();
    CHECK(t.process.transport.Count(FrameKind::kTaskReply) == 1);
    CHECK(returned() == 1);
  }
  WHEN("the process works under another lease") {
    CHECK_FALSE(t.executor.OnLeaseRevoke(kLease + 1));
    CHECK(bounced() == 0);
    CHECK(returned() == 0);
  }
}

SCENARIO("that an owner takes nothing is known until it does, or is dead") {
  constexpr ProcessId kOther{1, 10};
  ExecutorTest f;
  f.Begin(kLease);
  uint64_t push = 0;
  const auto reply_to = [&](ProcessId owner) {
    f.Push(owner, proto::TaskTemplate::TASK, kLease, ++push);
    f.RunNext();
  };
  reply_to(kCaller);
  CHECK_FALSE(f.executor.some_owner_behind());
  f.process.transport.queued[kCaller] = BackPressure().max_untaken;
  reply_to(kCaller);
  CHECK(f.executor.some_owner_behind());
  reply_to(kOther);
  CHECK(f.executor.some_owner_behind());
  SECTION("it goes on") {
    f.process.transport.queued[kCaller] = 0;
    reply_to(kCaller);
  }
  SECTION("it is dead") { f.executor.OnProcessDied(kCaller); }
  CHECK_FALSE(f.executor.some_owner_behind());
}

}  // namespace task_executor_test
}  // namespace sheaf
