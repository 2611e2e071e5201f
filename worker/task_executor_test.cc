// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a worker leaves for the raylet to read after its death: which push it had started, and of
// which lease.
#include "worker/task_executor.h"

#include "shm/process_segment.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace {

constexpr ProcessId kCaller{1, 9};
constexpr uint64_t kLease = 5;

struct ExecutorTest : ExecutionHost {
  absl::StatusOr<MutableBuffer> CreateValue(ObjectId, uint32_t, size_t,
                                            std::span<const ObjectHandle>) override {
    return absl::ResourceExhaustedError("no store in this test");
  }
  absl::StatusOr<ObjectLocation> StoreValue(ObjectId, uint32_t, std::string_view,
                                            std::span<const ObjectHandle>) override {
    return absl::ResourceExhaustedError("no store in this test");
  }
  ObjectLocation SealValue(MutableBuffer) override { return {}; }
  std::vector<NestedReference> Outgoing(std::span<const ObjectHandle>) override { return {}; }
  absl::Status SendItem(CallExecution& call, const std::string&,
                        std::span<const ObjectHandle>) override {
    sent.push_back(call.stream_sent++);
    return absl::OkStatus();
  }
  ObjectId NextStoredName() override { return {}; }
  void Ended(CallExecution* call) override {
    executor.Ended(*call);
    executor.Recycle(call);
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
    started = {page.started_lease.load(), page.started_push.load()};
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

}  // namespace

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
  r.call.stream_consumed = 4;
  CHECK(r.call.HasRoom());
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

}  // namespace sheaf
