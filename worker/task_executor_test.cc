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

struct ExecutorTest final : ExecutionHost {
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
  absl::Status SendItem(CallExecution&, const std::string&,
                        std::span<const ObjectHandle>) override {
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

}  // namespace sheaf
