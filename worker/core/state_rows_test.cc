// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/core/state_rows.h"

#include "telemetry/why_counts.h"
#include "worker/core/core_node_for_test.h"

namespace sheaf {
namespace state_rows_test {

struct RowsTest {
  ObjectHandle Submit(const std::string& name) {
    proto::TaskTemplate spec;
    spec.set_name(name);
    return Submit(spec);
  }
  ObjectHandle Submit(const proto::TaskTemplate& spec) {
    ArgumentList arguments;
    return node.core->SubmitOne(node.core->MakeTemplate(spec), &arguments, {});
  }
  proto::StateAnswer Ask(proto::StateQuery::What what, const std::string& id = "",
                         uint32_t limit = 0) {
    proto::StateQuery query;
    query.set_request(5);
    query.set_what(what);
    query.set_id(id);
    query.set_limit(limit);
    return AnswerOf(*node.core, query);
  }
  CoreNode node;
};

SCENARIO("a process tells of the calls that it has made and that it runs") {
  RowsTest test;
  const ObjectHandle result = test.Submit("square");
  proto::TaskTemplate spec;
  spec.set_name("cube");
  const auto running = test.node.Call({}, spec);
  const proto::StateAnswer answer = test.Ask(proto::StateQuery::TASKS);
  CHECK(answer.request() == 5);
  REQUIRE(answer.tasks_size() == 2);
  CHECK(answer.tasks(0).name() == "square");
  CHECK(answer.tasks(0).state() == "WAITING_FOR_LEASE");
  CHECK(answer.tasks(0).owner() == kSelf.packed());
  CHECK(answer.tasks(0).words().find("waits for a worker") != std::string::npos);
  CHECK(answer.tasks(1).name() == "cube");
  CHECK(answer.tasks(1).state() == "RUNNING");
  CHECK(answer.tasks(1).owner() == kWorker.packed());
  CHECK(test.Ask(proto::StateQuery::NODES).tasks_size() == 0);
}

SCENARIO("why: the maker of an id says what that one waits for, or that it runs or has ended") {
  RowsTest test;
  const auto why = [&](auto id) { return test.Ask(proto::StateQuery::WHY, id.ToHex()); };
  const auto count = [](const proto::StateAnswer& answer, std::string_view key) -> uint64_t {
    for (const proto::CountRow& row : answer.counts())
      if (row.key() == key) return row.count();
    return 0;
  };
  proto::TaskTemplate large;
  large.set_name("large");
  (*large.mutable_lease()->mutable_resources()->mutable_amounts())["CPU"] = 640'000;
  const ObjectHandle waits = test.Submit(large);
  const uint64_t key = test.node.Taken<proto::LeaseDemand>(FrameKind::kLeaseDemand).key();
  const ObjectHandle first = test.Submit("square");
  const ObjectHandle second = test.Submit("cube");
  proto::LeaseGrant grant;
  grant.set_key(test.node.Taken<proto::LeaseDemand>(FrameKind::kLeaseDemand).key());
  grant.set_lease(1);
  grant.set_worker(kWorker.packed());
  test.node.FromRaylet(FrameKind::kLeaseGrant, grant);

  proto::StateAnswer answer = why(TaskOf(waits.id()));
  CHECK(answer.words() == "large waits for a worker; 0 are leased for tasks like it");
  CHECK(count(answer, telemetry::kWhyLease) == key);
  CHECK(why(waits.id()).words() == answer.words());  // Its result is the same question.
  answer = why(TaskOf(first.id()));
  CHECK(answer.words() == "square runs");
  CHECK(count(answer, telemetry::kWhyLease) == 0);
  answer = why(TaskOf(second.id()));
  CHECK(answer.words() == "cube waits for a worker; 1 are leased for tasks like it");
  CHECK(count(answer, telemetry::kWhyLease) == grant.key());
  const uint64_t number = test.node.core->owner.references.NextSequence();
  const TaskId ended = TaskId::Make(kSelf, number);
  CHECK(why(ended).words().empty());
  CHECK(count(why(ended), telemetry::kWhyMade) == 1);
  // An object, whichever result of its call it was.
  CHECK(why(ReturnOf(ended, 1)).words() == "the object was freed: nothing holds it any more");
  CHECK(why(DetachedActorHandle(ActorId::Make(kSelf, number))).words().empty());
  const TaskId next = TaskId::Make(kSelf, number + 1);
  CHECK(why(ReturnOf(next, 1)).words().empty());
  for (const TaskId unknown : {next, next, TaskId::Make(kWorker, 1)})
    CHECK(why(unknown).counts_size() == 0);
}

SCENARIO("why: an actor waits for a worker, starts, lives") {
  RowsTest test;
  OwnerState& owner = test.node.core->owner;
  TemplateRecord spec;
  spec.spec.set_name("Counter");
  spec.spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
  spec.spec.set_num_returns(1);
  TaskRecord* creation = owner.tasks.Add(spec, {}, nullptr, {});
  const ObjectHandle actor(creation->first_return);
  owner.created_actors.Create(*creation);
  const auto why = [&] { return test.Ask(proto::StateQuery::WHY, TaskOf(actor.id()).ToHex()); };
  const auto demand = test.node.Taken<proto::LeaseDemand>(FrameKind::kLeaseDemand);
  CHECK(why().words() == "Counter waits for a worker");
  REQUIRE(why().counts_size() == 1);
  CHECK(why().counts(0).count() == demand.key());
  proto::LeaseGrant grant;
  grant.set_key(demand.key());
  grant.set_lease(1);
  grant.set_worker(kWorker.packed());
  test.node.FromRaylet(FrameKind::kLeaseGrant, grant);
  CHECK(why().words() == "Counter starts: its constructor runs in process " + kWorker.ToString());
  CHECK(why().counts_size() == 0);
}

SCENARIO("filters choose calls before the limit does") {
  RowsTest test;
  const ObjectHandle square = test.Submit("square");
  const ObjectHandle cube = test.Submit("cube");
  proto::StateQuery query;
  query.set_what(proto::StateQuery::TASKS);
  query.set_limit(1);
  proto::StateFilter& filter = *query.add_filters();
  filter.set_key("name");
  filter.set_value("cube");
  proto::StateAnswer answer = AnswerOf(*test.node.core, query);
  REQUIRE(answer.tasks_size() == 1);
  CHECK(answer.tasks(0).name() == "cube");
  CHECK(answer.tasks(0).type() == "NORMAL_TASK");
  CHECK(!answer.truncated());
  filter.set_not_equal(true);
  answer = AnswerOf(*test.node.core, query);
  REQUIRE(answer.tasks_size() == 1);
  CHECK(answer.tasks(0).name() == "square");
}

SCENARIO("a process counts its calls by function, as they wait and run") {
  RowsTest test;
  std::vector<ObjectHandle> results;
  for (const char* name : {"square", "cube", "square"}) results.push_back(test.Submit(name));
  proto::TaskTemplate spec;
  spec.set_name("cube");
  const auto running = test.node.Call({}, spec);
  const proto::StateAnswer answer = test.Ask(proto::StateQuery::FUNCTIONS);
  REQUIRE(answer.functions_size() == 2);
  for (const proto::FunctionRow& row : answer.functions()) {
    CHECK(row.type() == "NORMAL_TASK");
    CHECK(row.waiting_for_place() == (row.name() == "square" ? 2 : 1));
    CHECK(row.running() == (row.name() == "cube" ? 1 : 0));
  }
}

SCENARIO("a process tells of its objects, and says when there are more") {
  RowsTest test;
  const ObjectHandle value = test.node.core->PutValue("value", {});
  const ObjectHandle pending = test.Submit("square");
  const proto::StateAnswer answer = test.Ask(proto::StateQuery::OBJECTS);
  REQUIRE(answer.objects_size() == 2);
  CHECK(!answer.truncated());
  CHECK(test.Ask(proto::StateQuery::OBJECTS, value.id().ToHex()).objects(0).where() == "memory");
  CHECK(test.Ask(proto::StateQuery::OBJECTS, pending.id().ToHex()).objects(0).where() == "pending");
  const proto::StateAnswer cut = test.Ask(proto::StateQuery::OBJECTS, "", 1);
  CHECK(cut.objects_size() == 1);
  CHECK(cut.truncated());
}

SCENARIO("an object that only references of its owner hold for long may have been forgotten") {
  RowsTest test;
  ProcessCore& core = *test.node.core;
  core.set_leak_age(600 * kSecond);
  const auto forgotten = [&] {
    proto::StateQuery query;
    query.set_what(proto::StateQuery::OBJECTS);
    proto::StateFilter& filter = *query.add_filters();
    filter.set_key("may_leak");
    filter.set_value("true");
    std::vector<std::string> ids;
    const proto::StateAnswer answer = AnswerOf(core, query);
    for (const proto::ObjectRow& row : answer.objects()) {
      CHECK(row.age_ms() >= 600 * kSecond / kMillisecond);
      CHECK(row.may_leak());
      ids.push_back(row.object_id());
    }
    return ids;
  };
  const ObjectHandle old = core.PutValue("value", {});
  const ObjectHandle inner = core.PutValue("inner", {});
  const ObjectHandle used = core.PutValue("outer", std::vector{inner});
  const ObjectHandle pending = test.Submit("square");
  const auto pass = [&](Nanos time) {
    for (Nanos passed = 0; passed < time; passed += kSecond) {
      core.Tick();
      test.node.store.clock.Advance(kSecond);
    }
  };
  pass(540 * kSecond);
  const ObjectHandle young = core.PutValue("young", {});
  CHECK(forgotten().empty());
  pass(120 * kSecond);
  // Not what is inside another, and not the call that has not ended.
  CHECK(forgotten() == std::vector{old.id().ToHex(), used.id().ToHex()});
}

SCENARIO("the page shows what the core counts") {
  RowsTest test;
  const ObjectHandle value = test.node.core->PutValue("value", {});
  const ObjectHandle pending = test.Submit("square");
  metrics::Page page{};
  PublishCounts(*test.node.core, page);
  CHECK(page.counter(metrics::CounterId::kPutsPrivate).load() == 1);
  CHECK(page.counter(metrics::CounterId::kPutBytes).load() == 5);
  CHECK(page.counter(metrics::CounterId::kTasksSubmitted).load() == 1);
  CHECK(page.gauge(metrics::GaugeId::kQueuedTasks).load() == 1);
  CHECK(page.gauge(metrics::GaugeId::kOwnedObjects).load() == 2);
}

}  // namespace state_rows_test
}  // namespace sheaf
