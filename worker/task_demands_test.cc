// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner_state_for_test.h"

namespace sheaf {

SCENARIO("the raylet hears how many tasks are left, and of which function, a few times a second") {
  Fixture f;
  TemplateRecord& sq = const_cast<TemplateRecord&>(f.Template());
  TemplateRecord& slow = const_cast<TemplateRecord&>(f.Template());
  sq.spec.mutable_lease()->set_name("sq");
  slow.spec.mutable_lease()->set_name("slow");
  std::vector<ObjectHandle> results;
  for (int i = 0; i < 20; ++i) results.push_back(f.Submit(sq));
  f.Grant();
  f.Reply(f.TakePush(), "1");  // They are short: all others are pushed.
  std::string name;            // As the raylet heard it last.
  const auto told = [&] {
    f.owner.Tick();
    std::vector<proto::LeaseDemand> demands;
    while (f.transport.Count(FrameKind::kLeaseDemand) > 0) {
      proto::LeaseDemand& demand = demands.emplace_back();
      REQUIRE(demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
      if (demand.has_spec()) name = demand.spec().name();
    }
    return demands;
  };
  CHECK_FALSE(told().empty());
  CHECK(name == "sq");
  while (f.transport.Count(FrameKind::kPushTask) > 0)
    f.Reply(f.TakePush(), "1", ReplyStatus::kDone, 2 * kMillisecond);
  for (int i = 0; i < 20; ++i) results.push_back(f.Submit(slow));
  f.clock.Advance(TaskSubmitter::kSettle);
  CHECK(told().back().wanted() == 32);  // A step, which stays while more may come.
  f.clock.Advance(TaskSubmitter::kQuiet);
  proto::LeaseDemand last = told().back();
  CHECK(last.wanted() == 20);  // One of them runs.
  CHECK(last.backlog() == 19);
  CHECK(name == "slow");
  for (int i = 0; i < 3; ++i) f.Reply(f.TakePush(), "1", ReplyStatus::kDone, 2 * kMillisecond);
  CHECK(told().empty());  // Not for each.
  f.clock.Advance(TaskSubmitter::kSettle);
  const auto then = told();
  REQUIRE(then.size() == 1);
  CHECK(then[0].wanted() == 17);
  CHECK_FALSE(then[0].has_spec());
  f.clock.Advance(TaskSubmitter::kSettle);
  CHECK(told().empty());
}

SCENARIO("a queue that is refilled all the time is asked for in one step, not up and down") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  std::vector<ObjectHandle> results;
  for (int i = 0; i < 20; ++i) results.push_back(f.Submit(square));
  f.Grant();
  f.Reply(f.TakePush(), "1");
  size_t messages = 0;
  for (int i = 0; i < 200; ++i) {
    f.Reply(f.TakePush(), "1", ReplyStatus::kDone, 20 * kMillisecond);
    f.clock.Advance(20 * kMillisecond);
    results.push_back(f.Submit(square));
    f.owner.Tick();
    for (; f.transport.Count(FrameKind::kLeaseDemand) > 0; ++messages)
      f.transport.Take(FrameKind::kLeaseDemand);
  }
  CHECK(messages <= 13);  // In four seconds: 200 tasks came and went.
}

SCENARIO("the raylet hears that leases idle, whose owner had tasks for them when it asked") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  const ObjectHandle result = f.Submit(square);
  f.Grant();
  f.owner.Tick();
  while (f.transport.Count(FrameKind::kLeaseDemand) > 0) f.transport.Take(FrameKind::kLeaseDemand);
  f.Reply(f.TakePush(), "1");
  const auto take = [&] {
    proto::LeaseDemand demand;
    REQUIRE(demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
    return demand;
  };
  WHEN("they have idled for a while") {
    f.owner.Tick();
    CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 0);  // More may come at once.
    f.clock.Advance(TaskSubmitter::kIdles);
    f.owner.Tick();
    REQUIRE(f.transport.Count(FrameKind::kLeaseDemand) == 1);
    const proto::LeaseDemand said = take();
    CHECK(said.wanted() == 1);
    CHECK(said.backlog() == 0);
    THEN("once") {
      f.clock.Advance(TaskSubmitter::kIdles);
      f.owner.Tick();
      CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 0);
    }
  }
  WHEN("the owner needs leases of another kind") {
    const TemplateRecord& large = f.Template();
    (*f.templates.back().spec.mutable_lease()->mutable_resources()->mutable_amounts())["CPU"] =
        20'000;
    const ObjectHandle other = f.Submit(large);
    REQUIRE(f.transport.Count(FrameKind::kLeaseDemand) == 2);
    const proto::LeaseDemand idle = take();
    CHECK(idle.key() == square.key->number);
    CHECK(idle.backlog() == 0);
    CHECK(take().key() == large.key->number);
  }
}

TEST_CASE("functions whose calls are counted share no leases with others") {
  Fixture f;
  const TemplateRecord& plain = f.Template();
  const TemplateRecord& counted = f.Template();
  f.templates.back().spec.set_max_calls(1);
  std::vector<ObjectHandle> results{f.Submit(plain)};
  f.Grant();
  f.Reply(f.TakePush(), "1");
  results.push_back(f.Submit(counted));
  results.push_back(f.Submit(plain));
  CHECK(f.transport.Count(FrameKind::kPushTask) == 1);  // The plain one has the idle worker.
  CHECK(plain.key != counted.key);
}

TEST_CASE("no worker gets more calls than max_calls says, however short they are") {
  Fixture f;
  const TemplateRecord& spec = f.Template();
  f.templates.back().spec.set_max_calls(2);
  std::vector<ObjectHandle> results;
  for (int i = 0; i < 6; ++i) results.push_back(f.Submit(spec));
  const ProcessId other{1, 9};
  f.Grant(1);
  f.Grant(2, other);
  f.Reply(f.TakePush(), "first", ReplyStatus::kDone, /*run_ns=*/100);  // Now many go ahead.
  const auto sent_to = [&f](ProcessId worker) {
    return std::count_if(f.transport.sent.begin(), f.transport.sent.end(), [&](const Sent& frame) {
      return frame.to == worker && frame.kind == FrameKind::kPushTask;
    });
  };
  CHECK(sent_to(kWorker) == 1);  // Beside the one that was taken.
  CHECK(sent_to(other) == 2);
  CHECK(f.transport.Count(FrameKind::kLeaseReturn) == 0);
  f.Reply(f.TakePush(), "second", ReplyStatus::kDone, 100, other);
  f.Reply(f.TakePush(), "third", ReplyStatus::kDone, 100, kWorker);
  CHECK(f.transport.Count(FrameKind::kLeaseReturn) == 1);
}

SCENARIO("calls that are counted go on where the lease before has left off") {
  Fixture f;
  const TemplateRecord& spec = f.Template();
  f.templates.back().spec.set_max_calls(3);
  std::vector<ObjectHandle> results{f.Submit(spec)};
  const auto grant = [&f](LeaseNumber lease, ProcessId worker, uint64_t calls) {
    proto::LeaseGrant grant;
    grant.set_key(1);
    grant.set_lease(lease);
    grant.set_worker(worker.packed());
    grant.set_calls(calls);
    f.owner.OnFrame(kRaylet, {FrameKind::kLeaseGrant, grant.SerializeAsString()});
  };
  const auto returned = [&f] {
    proto::LeaseReturn message;
    REQUIRE(message.ParseFromString(f.transport.Take(FrameKind::kLeaseReturn).body));
    return message;
  };
  WHEN("its worker has had one") {
    grant(1, kWorker, 1);
    f.Reply(f.TakePush(), "first");
    AND_WHEN("it idles") {
      f.owner.Tick();
      f.clock.Advance(TaskSubmitter::kLinger);
      f.owner.Tick();
      const proto::LeaseReturn idle = returned();
      CHECK(idle.calls() == 2);
      CHECK_FALSE(idle.discard_worker());
    }
    AND_WHEN("it gets the last one") {
      results.push_back(f.Submit(spec));
      f.Reply(f.TakePush(), "second");
      CHECK(returned().discard_worker());
    }
  }
  WHEN("its worker has had all already") {
    grant(1, kWorker, 3);
    CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
    CHECK(returned().discard_worker());
    grant(2, {1, 9}, 0);
    CHECK(f.transport.Count(FrameKind::kPushTask) == 1);
  }
}

}  // namespace sheaf
