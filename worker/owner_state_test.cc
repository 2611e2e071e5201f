// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/limits.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {

SCENARIO("of values that are together too many for a frame the rest goes by the store") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  auto references = std::make_unique<TaskReferences>();
  std::string arguments;
  for (int i = 0; i < 40; ++i) {
    ObjectEntry* value = f.owner.references.NewOwned(ObjectId::Make(kSelf, 1000 + i, 1));
    f.owner.references.AddUse(*value);
    f.owner.references.SetValue(*value, std::string(60'000, 'v'));
    references->arguments.push_back({value, static_cast<uint32_t>(arguments.size()), false});
    arguments.append(AsBytes(ArgumentHead{ArgumentKind::kValue, 0}));
  }
  TaskRecord* task = f.owner.tasks.Add(square, InlineBytes(arguments), std::move(references), {});
  const ObjectHandle result(task->first_return);
  f.owner.submitter.Submit(*task);
  f.Grant();
  const std::string push = f.transport.Take(FrameKind::kPushTask).body;
  CHECK(push.size() < kInlineSum + 10'000);
  WireReader in(push);
  const auto* head = in.Struct<PushTaskHead>();
  WireReader rest(in.Bytes(head->argument_bytes));
  int by_value = 0, by_store = 0;
  while (!rest.rest().empty()) {
    const auto* argument = rest.Struct<ArgumentHead>();
    (argument->kind == ArgumentKind::kValue ? by_value : by_store) += 1;
    rest.Bytes(argument->bytes);
  }
  CHECK(by_value == 17);
  CHECK(by_store == 23);
}

SCENARIO(
    "a task asks for a lease once, is pushed when it is granted, and its reply is its result") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  const ObjectHandle a = f.Submit(square);
  proto::LeaseDemand demand;
  REQUIRE(demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
  CHECK(demand.wanted() == 1);
  CHECK(demand.spec().resources().amounts().at("CPU") == 10'000);
  f.Grant();
  f.transport.Take(FrameKind::kTemplate);
  const PushTaskHead push = f.TakePush();
  CHECK(push.lease == 1);
  CHECK(push.push == 1);
  CHECK_FALSE(a.entry()->ready());
  f.Reply(push, "49");
  CHECK(a.entry()->value == "49");
  THEN("the lease stays for the next task, which asks for nothing") {
    const ObjectHandle b = f.Submit(square);
    CHECK(f.TakePush().push == 2);
    CHECK(f.transport.Count(FrameKind::kLeaseDemand) == 0);
    CHECK(f.transport.Count(FrameKind::kTemplate) == 0);
  }
  THEN("an idle lease goes back after a while") {
    f.owner.Tick();
    f.clock.Advance(TaskSubmitter::kLinger);
    f.owner.Tick();
    CHECK(f.transport.Count(FrameKind::kLeaseReturn) == 1);
    CHECK(f.owner.submitter.leases() == 0);
  }
}

SCENARIO("a call in a user's trace carries it behind all else; others carry nothing") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  const TraceContext trace{1, 2, 3, TraceContext::kSampled};
  const TaskId parent = TaskId::Make(kWorker, 9);
  TaskRecord* task = f.owner.tasks.Add(square, {}, nullptr, {parent, 1, trace});
  const ObjectHandle traced(task->first_return);
  f.owner.submitter.Submit(*task);
  f.Grant();
  const std::string body = f.transport.Take(FrameKind::kPushTask).body;
  PushTaskHead push;
  std::memcpy(&push, body.data(), sizeof push);
  CHECK(push.flags == kTraced);
  CHECK(push.parent_sequence_bits == parent.sequence_bits);
  CHECK(push.parent_tag == TagOf(parent, 1));
  CHECK(body.size() == sizeof push + sizeof trace);
  CHECK(body.ends_with(AsBytes(trace)));
  f.Reply(push, "49");
  const ObjectHandle plain = f.Submit(square);
  CHECK(f.TakePush().flags == 0);
}

SCENARIO("tasks that are not known to be short go to a worker one at a time") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  std::vector<ObjectHandle> refs;
  for (int i = 0; i < 100; ++i) refs.push_back(f.Submit(square));
  f.Grant();
  CHECK(f.transport.Count(FrameKind::kPushTask) == 1);
  WHEN("the first took a microsecond") {
    f.Reply(f.TakePush(), "1");
    THEN("all others are in flight at once") {
      CHECK(f.transport.Count(FrameKind::kPushTask) == 99);
    }
  }
  WHEN("the first took 2 ms") {
    f.Reply(f.TakePush(), "1", ReplyStatus::kDone, 2 * kMillisecond);
    THEN("one follows") { CHECK(f.transport.Count(FrameKind::kPushTask) == 1); }
  }
}

SCENARIO("what a long task holds up is taken back and runs elsewhere") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  std::vector<ObjectHandle> refs;
  for (int i = 0; i < 4; ++i) refs.push_back(f.Submit(square));
  f.Grant();
  CHECK(f.owner.submitter.TakeBegan());  // So that it is looked at in time.
  CHECK_FALSE(f.owner.submitter.TakeBegan());
  f.Reply(f.TakePush(), "1");
  std::vector<PushTaskHead> pushes;
  for (int i = 0; i < 3; ++i) pushes.push_back(f.TakePush());
  f.owner.Tick();
  f.clock.Advance(TaskSubmitter::kLongTask);
  f.owner.Tick();
  REQUIRE(f.transport.Count(FrameKind::kTakeBack) == 1);
  for (int i = 2; i > 0; --i) {  // Newest first, as the executor does.
    const TaskReturned returned{pushes[i].task_sequence_bits, pushes[i].push, pushes[i].cookie,
                                pushes[i].attempt};
    f.owner.OnFrame(kWorker, {FrameKind::kTaskReturned, AsBytes(returned)});
  }
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  f.Grant(2, {1, 9});
  const PushTaskHead again = f.TakePush();
  CHECK(again.task_sequence_bits == pushes[1].task_sequence_bits);
  CHECK(again.attempt == 0);  // It was never started.
}

SCENARIO("a worker that returns nothing, as it did not know the lease yet, is asked again") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  std::vector<ObjectHandle> refs;
  for (int i = 0; i < 4; ++i) refs.push_back(f.Submit(square));
  f.Grant();
  f.Reply(f.TakePush(), "1");
  f.owner.Tick();
  f.clock.Advance(TaskSubmitter::kLongTask);
  f.owner.Tick();
  const SentFrame asked = f.transport.Take(FrameKind::kTakeBack);
  CHECK(FrameHead<TakeBack>(asked.body)->until == 4);
  f.owner.Tick();
  f.clock.Advance(TaskSubmitter::kAskBackAgain);
  f.owner.Tick();
  CHECK(f.transport.Count(FrameKind::kTakeBack) == 1);
  f.owner.Tick();
  CHECK(f.transport.Count(FrameKind::kTakeBack) == 1);
}

SCENARIO("who gives back a lease that was asked for says what still queues") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  const std::vector<ObjectHandle> refs = {f.Submit(square), f.Submit(square)};
  f.Grant();
  const PushTaskHead first = f.TakePush();
  while (f.transport.Count(FrameKind::kLeaseDemand) > 0) f.transport.Take(FrameKind::kLeaseDemand);
  // The raylet has meanwhile taken the lease away, and what was wanted with it, as this process
  // stood still.
  proto::LeaseRevoke revoke;
  revoke.set_lease(first.lease);
  REQUIRE(f.owner.submitter.OnRevoke(kWorker.node, revoke));
  f.Reply(first, "1");
  CHECK(f.transport.Count(FrameKind::kLeaseReturn) == 1);
  REQUIRE(f.transport.Count(FrameKind::kLeaseDemand) == 1);
  proto::LeaseDemand demand;
  REQUIRE(demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
  CHECK(demand.wanted() == 1);
  f.Grant(2, {1, 9});
  f.Reply(f.TakePush(), "2", ReplyStatus::kDone, 1000, {1, 9});
  CHECK(refs[1].entry()->value == "2");
}

SCENARIO("after a worker's death only what it had started counts as tried") {
  Fixture f;
  const TemplateRecord& square = f.Template(0);
  std::vector<ObjectHandle> refs;
  for (int i = 0; i < 3; ++i) refs.push_back(f.Submit(square));
  f.Grant();
  f.Reply(f.TakePush(), "1");
  f.TakePush();
  f.TakePush();
  f.Die(kWorker, 2);
  CHECK(refs[1].entry()->extra->error.kind == ErrorKind::kWorkerCrashed);
  CHECK_FALSE(refs[2].entry()->ready());
  // Of the one that failed: its result may lie in the store.
  CHECK(f.transport.Count(kStoreFree) == 1);
  f.Grant(2, {1, 9});
  f.Reply(f.TakePush(), "3", ReplyStatus::kDone, 1000, {1, 9});
  CHECK(refs[2].entry()->value == "3");
}

SCENARIO("when a node dies nothing is pushed to its other workers, whose deaths are not told yet") {
  Fixture f;
  const TemplateRecord& square = f.Template(1);
  const std::vector<ObjectHandle> refs = {f.Submit(square), f.Submit(square)};
  const ProcessId one{2, 8}, two{2, 9};
  f.Grant(1, one);
  f.Grant(2, two);
  f.Reply(f.TakePush(), "1", ReplyStatus::kDone, kSecond, one);
  f.TakePush();
  proto::Death death;
  death.set_cause(proto::Death::NODE_DIED);
  f.owner.OnProcessDied(two, death, UINT64_MAX);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  f.owner.OnProcessDied(one, death, UINT64_MAX);
  f.Grant(3, kWorker);
  f.Reply(f.TakePush(), "2");
  CHECK(refs[1].entry()->value == "2");
}

SCENARIO("a worker that dies with the last task asks for no other in its place") {
  Fixture f;
  const ObjectHandle a = f.Submit(f.Template(0));
  f.Grant();
  f.TakePush();
  f.transport.sent.clear();
  f.Die(kWorker, 1);
  CHECK(a.entry()->extra->error.kind == ErrorKind::kWorkerCrashed);
  proto::LeaseDemand demand;
  REQUIRE(demand.ParseFromString(f.transport.Take(FrameKind::kLeaseDemand).body));
  CHECK(demand.wanted() == 0);
}

SCENARIO("a task with retries is tried again, with pauses, until none is left") {
  Fixture f;
  const ObjectHandle a = f.Submit(f.Template(2));
  for (uint32_t attempt = 0; attempt < 3; ++attempt) {
    f.owner.Tick();
    f.clock.Advance(10 * kSecond);
    f.owner.Tick();
    const ProcessId worker{1, 20 + attempt};
    f.Grant(attempt + 1, worker);
    CHECK(f.TakePush().attempt == attempt);
    f.Die(worker, 1);
  }
  CHECK(a.entry()->extra->error.kind == ErrorKind::kWorkerCrashed);
}

SCENARIO("an answer to an earlier attempt is dropped") {
  Fixture f;
  const ObjectHandle a = f.Submit(f.Template(2));
  f.Grant();
  const PushTaskHead first = f.TakePush();
  f.Die(kWorker, 1);
  f.Grant(2, {1, 9});
  f.Reply(first, "old");
  CHECK_FALSE(a.entry()->ready());
  f.Reply(f.TakePush(), "new", ReplyStatus::kDone, 1000, {1, 9});
  CHECK(a.entry()->value == "new");
}

SCENARIO("a task waits for its arguments, and fails with the error of one that failed") {
  Fixture f;
  const TemplateRecord& square = f.Template();
  const ObjectHandle a = f.Submit(square);
  auto references = std::make_unique<TaskReferences>();
  references->arguments.push_back({a.entry(), 0, false});
  f.owner.references.AddUse(*a.entry());
  const ObjectHandle b = f.Submit(square, std::move(references));
  f.Grant();
  const PushTaskHead push = f.TakePush();
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  f.Reply(push, "boom", ReplyStatus::kFailed);
  CHECK(b.entry()->extra->error.message == "boom");
}

SCENARIO("what is with a silent node stays pending, and who waits for it is told so") {
  constexpr ProcessId kFarWorker{2, 9};
  Fixture f;
  const ObjectHandle result = f.Submit(f.Template());
  const ObjectHandle queued = f.Submit(f.Template());
  const ObjectHandle borrowed(f.owner.references.Incoming({ObjectId::Make({2, 5}, 1, 1), {}}));
  f.Grant(1, kFarWorker);
  const PushTaskHead push = f.TakePush();
  CHECK(f.owner.WordsOfSilence(*result.entry()).empty());
  f.owner.OnNodeSilent(2, "node 2 is silent");
  CHECK(f.owner.WordsOfSilence(*result.entry()) == "node 2 is silent");
  CHECK(f.owner.WordsOfSilence(*borrowed.entry()) == "node 2 is silent");
  CHECK(f.owner.WordsOfSilence(*queued.entry()).empty());  // It goes elsewhere.
  CHECK(ObjectState{result.entry()->state} == ObjectState::kPending);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);  // Nothing runs twice.
  WHEN("it answers after all") {
    f.owner.OnNodeSilent(2, "");
    CHECK(f.owner.WordsOfSilence(*result.entry()).empty());
    f.Reply(push, "81", ReplyStatus::kDone, 1000, kFarWorker);
    CHECK(result.entry()->value == "81");
  }
  WHEN("it is dead") {
    f.owner.OnNodeGone(2);
    CHECK(f.owner.WordsOfSilence(*borrowed.entry()).empty());
  }
}

SCENARIO("a task that is tried again looks at its arguments again") {
  Fixture f;
  ObjectEntry* argument =
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
  const ObjectHandle handle(argument);
  f.owner.references.SetStored(*argument, {2, 3, 1, 0}, 100);
  auto references = std::make_unique<TaskReferences>();
  references->arguments.push_back({argument, 0, false});
  f.owner.references.AddUse(*argument);
  TaskRecord* task =
      f.owner.tasks.Add(f.Template(-1), InlineBytes(AsBytes(ArgumentHead{ArgumentKind::kStore, 0})),
                        std::move(references), {});
  const ObjectHandle result(task->first_return);
  f.owner.submitter.Submit(*task);
  f.Grant();
  const PushTaskHead push = f.TakePush();
  f.owner.OnNodeGone(2);
  REQUIRE(ObjectState{argument->state} == ObjectState::kError);
  f.Reply(push, "the argument could not be fetched", ReplyStatus::kFailedRetriable);
  REQUIRE(ObjectState{result.entry()->state} == ObjectState::kError);
  CHECK(result.entry()->extra->error.kind == ErrorKind::kObjectLost);
}

SCENARIO(
    "dropping the last handle frees an object in the store, but not while another node borrows "
    "it") {
  Fixture f;
  ObjectEntry* entry =
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
  const ObjectId id = entry->id;
  {
    const ObjectHandle handle(entry);
    f.owner.references.SetStored(*entry, {1, 5, 1, 0}, 100);
    f.owner.references.Outgoing(*entry);
    proto::NodeRefs refs;
    refs.set_node(2);
    refs.set_version(1);
    refs.set_held_ids(id.Binary());
    f.owner.OnFrame(kRaylet, {FrameKind::kNodeRefs, refs.SerializeAsString()});
    f.transport.Take(FrameKind::kNodeRefsAck);
  }
  f.owner.references.CollectDropped();
  CHECK(f.store.freed.empty());
  proto::NodeRefs refs;
  refs.set_node(2);
  refs.set_version(2);
  refs.set_dropped_ids(id.Binary());
  f.owner.OnFrame(kRaylet, {FrameKind::kNodeRefs, refs.SerializeAsString()});
  f.owner.references.CollectDropped();
  CHECK(f.store.freed == std::vector{id});
}

SCENARIO("references in a value leave with it, however deep they lie") {
  Fixture f;
  const auto put = [&](std::vector<ObjectEntry*> nested) {
    ObjectEntry* entry =
        f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1));
    for (ObjectEntry* inner : nested) f.owner.references.AddUse(*inner);
    f.owner.references.SetValue(*entry, "v", std::move(nested));
    return ObjectHandle(entry);
  };
  const ObjectHandle inmost = put({});
  const ObjectHandle inner = put({inmost.entry()});
  const ObjectHandle outer = put({inner.entry(), inmost.entry()});
  CHECK(f.owner.references.Find(inmost.id()) == nullptr);
  f.owner.references.Outgoing(*outer.entry());
  for (const ObjectHandle* handle : {&outer, &inner, &inmost}) {
    CHECK(f.owner.references.Find(handle->id()) == handle->entry());
    CHECK(handle->entry()->location.known());
  }
  CHECK(f.store.next == 3);  // Each once.
}

SCENARIO("a borrowed reference is announced once, and its sender hears when its owner knows") {
  Fixture f;
  const ObjectId id = ObjectId::Make({1, 30}, 4, 1);
  ObjectEntry* entry = f.owner.references.Incoming({id, {}});
  f.owner.references.AddUse(*entry);
  bool registered = false;
  f.owner.references.AfterRegistered(std::vector{entry}, [&] { registered = true; });
  f.owner.references.Flush();
  proto::RefsReport report;
  REQUIRE(report.ParseFromString(f.transport.Take(FrameKind::kRefsReport).body));
  CHECK(report.held_ids() == id.Binary());
  CHECK_FALSE(registered);
  proto::RefsReported reported;
  reported.set_sequence(report.sequence());
  f.owner.OnFrame(kRaylet, {FrameKind::kRefsReported, reported.SerializeAsString()});
  CHECK(registered);
  f.owner.references.DropUse(*entry);
  f.owner.references.Flush();
  REQUIRE(report.ParseFromString(f.transport.Take(FrameKind::kRefsReport).body));
  CHECK(report.dropped_ids() == id.Binary());
}

SCENARIO(
    "when the owner of a borrowed object dies, the raylet is asked, and says adopted or "
    "OwnerDied") {
  Fixture f;
  const ObjectId id = ObjectId::Make({1, 30}, 4, 1);
  ObjectEntry* entry = f.owner.references.Incoming({id, {}});
  const ObjectHandle handle(entry);
  f.owner.resolver.Want(*entry);
  f.transport.Take(FrameKind::kObjectQuery);
  f.Die({1, 30}, 0);
  proto::AdoptedQuery query;
  REQUIRE(query.ParseFromString(f.transport.Take(FrameKind::kAdoptedQuery).body));
  proto::AdoptedAnswer answer;
  answer.set_request(query.request());
  answer.set_ids(query.ids());
  answer.add_adopted(false);
  f.owner.OnFrame(kRaylet, {FrameKind::kAdoptedAnswer, answer.SerializeAsString()});
  CHECK(entry->extra->error.kind == ErrorKind::kOwnerDied);
}

SCENARIO(
    "of all objects of a dead owner the raylet is asked at once, and says on which node each is") {
  Fixture f;
  const ObjectId there = ObjectId::Make({2, 30}, 4, 1), gone = ObjectId::Make({2, 30}, 5, 1);
  ObjectEntry* entry = f.owner.references.Incoming({there, {}});
  const ObjectHandle handle(entry);
  const ObjectHandle other(f.owner.references.Incoming({gone, {}}));
  f.Die({2, 30}, 0);
  proto::AdoptedQuery query;
  REQUIRE(query.ParseFromString(f.transport.Take(FrameKind::kAdoptedQuery).body));
  CHECK(query.ids() == there.Binary() + gone.Binary());
  CHECK(f.transport.Count(FrameKind::kAdoptedQuery) == 0);
  f.clock.Advance(kSecond);
  f.owner.Tick();
  REQUIRE(f.transport.Count(FrameKind::kAdoptedQuery) == 1);  // Asked again, in one as well.
  proto::AdoptedAnswer answer;
  answer.set_ids(query.ids());
  answer.add_adopted(true);
  answer.add_adopted(false);
  answer.add_nodes(3);
  answer.add_nodes(0);
  f.owner.OnFrame(kRaylet, {FrameKind::kAdoptedAnswer, answer.SerializeAsString()});
  CHECK(ObjectState{entry->state} == ObjectState::kStore);
  CHECK(other.entry()->extra->error.kind == ErrorKind::kOwnerDied);
  f.owner.resolver.Missing(*entry);
  const Sent fetch = f.transport.Take(kStoreFetch);
  CHECK(fetch.to == kRaylet);
  FetchWanted wanted;
  std::memcpy(&wanted, fetch.body.data(), sizeof wanted);
  CHECK(wanted.hint.node == 3);
  CHECK_FALSE(wanted.hint.known());
}

SCENARIO("of very many objects of a dead owner the raylet is asked in parts") {
  Fixture f;
  std::vector<ObjectHandle> handles;
  for (uint64_t i = 1; i <= kMaxStoreItems + 1; ++i)
    handles.emplace_back(f.owner.references.Incoming({ObjectId::Make({2, 30}, i, 1), {}}));
  f.Die({2, 30}, 0);
  CHECK(f.transport.Count(FrameKind::kAdoptedQuery) == 2);
}

SCENARIO("an object that finds no room to be read back is not lost") {
  Fixture f;
  const ObjectId id = ObjectId::Make({1, 10}, 4, 1);
  ObjectEntry* entry = f.owner.references.NewOwned(id);
  const ObjectHandle handle(entry);
  f.owner.references.SetStored(*entry, {1, 3, 1, 0}, 100);
  f.owner.resolver.Missing(*entry);
  f.owner.resolver.OnLocated(id, nullptr, {ErrorKind::kObjectStoreFull, "no room", {}});
  CHECK(ObjectState{entry->state} == ObjectState::kStore);
  CHECK(entry->extra->unreachable);
  CHECK(entry->extra->error.message == "no room");
  f.owner.resolver.Missing(*entry);
  f.owner.resolver.OnLocated(id, nullptr, {ErrorKind::kObjectLost, "gone", {}});
  CHECK(ObjectState{entry->state} == ObjectState::kError);
}

SCENARIO("frames that do not parse change nothing") {
  Fixture f;
  const ObjectHandle a = f.Submit(f.Template());
  f.Grant();
  f.TakePush();
  for (int kind = 0; kind < 96; ++kind) {
    for (const std::string& body : {std::string(), std::string(3, '\xff'), std::string(24, '\xff'),
                                    std::string(200, '\x01')}) {
      f.owner.OnFrame(kWorker, {static_cast<FrameKind>(kind), body});
      f.owner.OnFrame(kRaylet, {static_cast<FrameKind>(kind), body});
    }
  }
  CHECK_FALSE(a.entry()->ready());
}

}  // namespace sheaf
