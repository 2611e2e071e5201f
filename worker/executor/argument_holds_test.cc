// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/executor/argument_holds.h"

#include <memory>
#include <vector>

#include "shm/process_segment.h"
#include "worker/executor/fake_execution_host.h"
#include "worker/executor/task_executor.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace argument_holds_test {

constexpr ProcessId kCaller{1, 9};
constexpr uint64_t kLease = 5;
constexpr uint64_t kUnasked = 1000;

ObjectId IdOf(uint64_t number) { return ObjectId::Make(kCaller, number, 1); }

// A worker that is given calls by frames. What they hold in its store nobody knows.
struct HoldsTest : FakeExecutionHost {
  void Ended(CallExecution* call) override {
    executor.NoteEnded(call);
    executor.FinishEnded();
  }

  HoldsTest() {
    proto::LeaseBegin begin;
    begin.set_lease(kLease);
    executor.OnLeaseBegin(begin);
    executor.default_group().limit = 10;
    executor.set_store_bytes(kUnasked * ArgumentHolds::kPartOfStore);
  }
  void Push(std::vector<StoreArgument> stored) {
    std::string arguments;
    WireWriter out(arguments);
    for (const StoreArgument& argument : stored) {
      out.Struct(ArgumentHead{ArgumentKind::kStore, sizeof argument});
      out.Struct(argument);
    }
    PushTaskHead head{};
    head.task_sequence_bits = head.push = ++pushes;
    head.lease = kLease;
    head.flags = kTemplateInline;
    head.argument_bytes = static_cast<uint32_t>(arguments.size());
    proto::TaskTemplate spec;
    spec.set_name("f");
    executor.OnPush(kCaller, std::string(AsBytes(head)) + arguments + spec.SerializeAsString());
  }
  // A call with arguments of these sizes in the store of this node, which starts.
  std::shared_ptr<CallExecution> Start(const std::vector<uint64_t>& sizes) {
    std::vector<StoreArgument> stored;
    for (const uint64_t size : sizes) stored.push_back({IdOf(++objects), {1, 1, 1, 0}, size});
    Push(stored);
    return executor.Take(executor.default_group());
  }
  struct Told {
    HoldHead head;
    std::vector<HeldObject> objects;
  };
  Told TakeTold() {
    const Sent frame = process.transport.Take(kStoreHold);
    CHECK(frame.to == kRaylet);
    Told told;
    told.head = *FrameHead<HoldHead>(frame.body);
    const std::string_view items = std::string_view(frame.body).substr(sizeof(HoldHead));
    const auto objects = FrameItems<HeldObject>(items);
    told.objects.assign(objects.begin(), objects.end());
    return told;
  }
  bool SaysNothing() const { return process.transport.Count(kStoreHold) == 0; }

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
  ArgumentHolds& holds = executor.argument_holds();
  uint64_t pushes = 0;
  uint64_t objects = 0;
};

SCENARIO("calls whose arguments are little of the store hold them without a question") {
  HoldsTest t;
  for (int i = 0; i < 10; ++i) {
    auto call = t.Start({kUnasked / 2, kUnasked / 2});
    CHECK(t.holds.Begin(*call));
    CHECK(t.holds.IsAdmitted(*call));
  }
  CHECK(t.SaysNothing());
  CHECK_FALSE(t.holds.any());
}

SCENARIO("many calls that run side by side ask as one large one does") {
  HoldsTest t;
  auto first = t.Start({kUnasked / 2});
  auto second = t.Start({kUnasked / 2});
  auto third = t.Start({1});
  CHECK(t.holds.Begin(*first));
  CHECK(t.holds.Begin(*second));
  CHECK_FALSE(t.holds.Begin(*third));
  CHECK(t.TakeTold().objects.size() == 1);
  first.reset();
  auto fourth = t.Start({kUnasked / 2});
  CHECK(t.holds.Begin(*fourth));
}

SCENARIO("a call with large arguments asks, waits for the answer, and says when it has ended") {
  HoldsTest t;
  auto call = t.Start({700, 700});
  CHECK_FALSE(t.holds.Begin(*call));
  const auto asked = t.TakeTold();
  CHECK(asked.head.step == HoldStep::kAsk);
  CHECK(ProcessId::Unpack(asked.head.caller) == kCaller);
  REQUIRE(asked.head.count == 2);
  REQUIRE(asked.objects.size() == 2);
  CHECK(asked.objects[0].id == IdOf(1));
  CHECK(asked.objects[1].bytes == 700);
  CHECK_FALSE(t.holds.IsAdmitted(*call));
  t.holds.OnAdmitted(asked.head.ticket + 1);  // Of nobody.
  CHECK_FALSE(t.holds.IsAdmitted(*call));
  t.holds.OnAdmitted(asked.head.ticket);
  CHECK(t.holds.IsAdmitted(*call));
  CHECK(t.SaysNothing());
  t.process.clock.Advance(ArgumentHolds::kReuse);
  call.reset();
  const auto ended = t.TakeTold();
  CHECK(ended.head.step == HoldStep::kEnd);
  CHECK(ended.head.ticket == asked.head.ticket);
  CHECK(t.SaysNothing());
  CHECK_FALSE(t.holds.any());
  t.holds.OnAdmitted(asked.head.ticket);  // The answer was on its way when the call was cancelled.
}

SCENARIO("short calls that have the same arguments one after the other ask once") {
  HoldsTest t;
  const StoreArgument shared{IdOf(100), {1, 1, 1, 0}, 2000};
  const auto start = [&](std::vector<StoreArgument> arguments) {
    t.Push(arguments);
    return t.executor.Take(t.executor.default_group());
  };
  auto first = start({shared, {IdOf(101), {1, 2, 1, 0}, 2000}});
  CHECK_FALSE(t.holds.Begin(*first));
  const uint64_t ticket = t.TakeTold().head.ticket;
  t.holds.OnAdmitted(ticket);
  first.reset();
  for (int i = 0; i < 4; ++i) {
    t.process.clock.Advance(ArgumentHolds::kIdle - 1);
    t.holds.Tick();
    auto next = start({shared});
    CHECK(t.holds.Begin(*next));
    CHECK(t.holds.IsAdmitted(*next));
  }
  CHECK(t.SaysNothing());
  WHEN("no other comes") {
    CHECK(t.holds.NextTick() == t.process.clock.Now() + ArgumentHolds::kIdle);
    t.process.clock.Advance(ArgumentHolds::kIdle);
    t.holds.Tick();
    CHECK(t.TakeTold().head.step == HoldStep::kEnd);
    CHECK_FALSE(t.holds.any());
    CHECK(t.holds.NextTick() == kForever);
  }
  WHEN("one comes that needs others") {
    auto other = t.Start({2000});
    CHECK_FALSE(t.holds.Begin(*other));
    const auto ended = t.TakeTold();
    CHECK(ended.head.step == HoldStep::kEnd);
    CHECK(ended.head.ticket == ticket);
    CHECK(t.TakeTold().head.step == HoldStep::kAsk);
  }
  WHEN("this has gone on for long") {
    t.process.clock.Advance(ArgumentHolds::kReuse);
    auto next = start({shared});
    CHECK_FALSE(t.holds.Begin(*next));
    CHECK(t.TakeTold().head.step == HoldStep::kEnd);
    CHECK(t.TakeTold().head.step == HoldStep::kAsk);
  }
  WHEN("two run side by side") {
    auto next = start({shared});
    CHECK(t.holds.Begin(*next));
    auto beside = start({shared});
    CHECK_FALSE(t.holds.Begin(*beside));
  }
}

SCENARIO("only what was admitted is suspended, and once") {
  HoldsTest t;
  auto call = t.Start({2000});
  auto other = t.Start({2000});
  CHECK_FALSE(t.holds.Begin(*call));
  CHECK_FALSE(t.holds.Begin(*other));
  const uint64_t ticket = t.TakeTold().head.ticket;
  const uint64_t others = t.TakeTold().head.ticket;
  t.holds.SetSuspended(ticket, true);
  CHECK(t.SaysNothing());
  t.holds.OnAdmitted(ticket);
  t.holds.SetSuspended(0, true);
  t.holds.SetAllSuspended(true);
  t.holds.SetSuspended(ticket, true);
  const auto suspended = t.TakeTold();
  CHECK(suspended.head.step == HoldStep::kSuspend);
  CHECK(suspended.head.ticket == ticket);
  CHECK(t.SaysNothing());
  t.holds.OnAdmitted(others);
  t.holds.SetAllSuspended(false);
  CHECK(t.TakeTold().head.step == HoldStep::kResume);
  CHECK(t.SaysNothing());
}

SCENARIO("what lies on other nodes comes ahead of need, as much as is little of the store") {
  HoldsTest t;
  constexpr uint64_t kMost = kUnasked * ArgumentHolds::kPartOfStore / TaskExecutor::kPartAhead;
  const auto wanted = [&] {
    std::vector<uint64_t> numbers;
    while (t.process.transport.Count(kStoreFetch) != 0) {
      const Sent frame = t.process.transport.Take(kStoreFetch);
      for (const FetchWanted& object : FrameItems<FetchWanted>(frame.body)) {
        for (uint64_t number = 1; number <= t.objects; ++number) {
          if (object.id == IdOf(number)) numbers.push_back(number);
        }
      }
    }
    return numbers;
  };
  const auto push = [&](uint64_t bytes) { t.Push({{IdOf(++t.objects), {2, 1, 1, 0}, bytes}}); };
  const auto start = [&] { return t.executor.Take(t.executor.default_group()); };
  for (int i = 0; i < 5; ++i) push(kMost / 2);
  push(kMost + 1);
  push(kMost);
  CHECK(wanted() == std::vector<uint64_t>{1, 2});
  start();
  CHECK(wanted().empty());  // The next was asked for.
  start();
  CHECK(wanted() == std::vector<uint64_t>{3});
  start();
  CHECK(wanted() == std::vector<uint64_t>{4});
  start();
  CHECK(wanted() == std::vector<uint64_t>{5});
  start();
  CHECK(wanted().empty());  // Too large: when it starts.
  start();
  CHECK(wanted() == std::vector<uint64_t>{7});
  t.executor.OnProcessDied(kCaller);  // It goes, and leaves room for others.
  push(kMost);
  CHECK(wanted() == std::vector<uint64_t>{8});
}

SCENARIO("sizes beyond all bounds are counted as such") {
  HoldsTest t;
  auto call = t.Start({UINT64_MAX, UINT64_MAX});
  CHECK_FALSE(t.holds.Begin(*call));
  call.reset();
  auto small = t.Start({1});
  CHECK(t.holds.Begin(*small));
}

}  // namespace argument_holds_test
}  // namespace sheaf
