// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Lineage keeps the recipe, not the bytes: what only it holds is freed everywhere, and is made
// again when something that depends on it is lost.
#include "worker/owner/object_places_for_test.h"

namespace sheaf {
namespace lineage_test {

// The next call that runs, and its result in the store of this node.
uint64_t RunNext(Places& f) {
  const PushTaskHead push = f.TakePush();
  f.ReplyStored(push, {1, push.cookie, 1, push.attempt}, 1 << 20, kWorker);
  return push.task_sequence_bits;
}

void LoseNode(Places& f) {
  f.Die(kFar, UINT64_MAX);
  f.owner.OnNodeGone(2);
  f.Grant(9, kWorker);
}

TEST_CASE("an argument that only lineage holds has no bytes anywhere") {
  Places f;
  ObjectHandle x = f.Step(f.Template(), {});
  const ObjectId first = x.id();
  f.Copied(kThirdRaylet, first, kThird);
  f.owner.references.List(*x.entry());
  f.Copied(kThirdRaylet, first, kThird);
  f.TakeFrees();
  const ObjectHandle y = f.Step(f.Template(), {x});
  f.Collect();
  CHECK(f.TakeFrees().empty());
  ObjectEntry* entry = x.entry();
  x = {};
  f.Collect();
  std::vector<ProcessId> nodes;
  for (const auto& [to, name] : f.TakeFrees()) {
    CHECK(name.id == first);
    nodes.push_back(to);
  }
  std::sort(nodes.begin(), nodes.end());
  CHECK(nodes == std::vector{kFarRaylet, kThirdRaylet});
  CHECK(entry->released);
  CHECK_FALSE(entry->location.known());
  CHECK(f.owner.tasks.MakerOf(*entry) != nullptr);
}

TEST_CASE("a lost object has the chain behind it made again, from its beginning") {
  Places f;
  const TemplateRecord& step = f.Template();
  std::vector<uint64_t> order;
  ObjectHandle x = f.Step(step, {});
  order.push_back(TaskOf(x.id()).sequence_bits);
  for (int i = 0; i < 4; ++i) {
    x = f.Step(step, {x});
    order.push_back(TaskOf(x.id()).sequence_bits);
  }
  f.Collect();
  LoseNode(f);
  for (const uint64_t bits : order) {
    CHECK(f.transport.Count(FrameKind::kPushTask) == 1);
    CHECK(RunNext(f) == bits);
  }
  CHECK(ObjectState{x.entry()->state} == ObjectState::kStore);
  THEN("what was made again on the way goes again") {
    f.Collect();
    CHECK(f.store.freed.size() == order.size() - 1);
    CHECK(f.owner.references.size() == order.size());
  }
  THEN("and again, while there are retries") {
    f.Collect();
    for (uint32_t again = 2; again <= 3; ++again) {
      f.owner.references.DropCopy(*x.entry(), 1);
      REQUIRE(f.owner.tasks.Reconstruct(*x.entry(), f.owner.submitter));
      for (size_t i = 0; i < order.size(); ++i) RunNext(f);
      f.Collect();
    }
    f.owner.references.DropCopy(*x.entry(), 1);
    CHECK_FALSE(f.owner.tasks.Reconstruct(*x.entry(), f.owner.submitter));
    CHECK(f.owner.tasks.WhyNotAgain(*x.entry()).find("no retries left") != std::string::npos);
  }
}

TEST_CASE("a long chain is made again in constant stack") {
  Places f;
  const TemplateRecord& step = f.Template();
  ObjectHandle x = f.Step(step, {});
  constexpr int kSteps = 30'000;
  for (int i = 1; i < kSteps; ++i) {
    x = f.Step(step, {x});
    f.Collect();
    f.transport.sent.clear();
  }
  LoseNode(f);
  for (int i = 0; i < kSteps; ++i) {
    RunNext(f);
    f.Collect();
    f.transport.sent.erase(
        std::remove_if(f.transport.sent.begin(), f.transport.sent.end(),
                       [](const Sent& sent) { return sent.kind != FrameKind::kPushTask; }),
        f.transport.sent.end());
  }
  CHECK(ObjectState{x.entry()->state} == ObjectState::kStore);
}

TEST_CASE("a large value that was put and let go of cannot be made again, and the error says so") {
  Places f;
  ObjectHandle put = f.PutThere();
  const ObjectHandle result = f.Step(f.Template(), {put});
  put = {};
  f.Collect();
  CHECK(f.TakeFrees().size() == 1);
  LoseNode(f);
  REQUIRE(ObjectState{result.entry()->state} == ObjectState::kError);
  const Error& error = result.entry()->extra->error;
  CHECK(error.kind == ErrorKind::kReconstructionFailed);
  CHECK(error.message.find("it was put") != std::string::npos);
}

TEST_CASE("a small value is part of the recipe of those that use it") {
  Places f;
  ObjectHandle inner = f.Step(f.Template(), {});
  ObjectHandle put = f.PutHere("settings", {inner.entry()});
  const ObjectId inside = inner.id();
  const ObjectHandle result = f.Step(f.Template(), {put});
  put = inner = {};
  f.Collect();
  CHECK(f.owner.tasks.lineage_bytes() > 0);
  const auto frees = f.TakeFrees();  // Of what it refers to, the recipe alone is kept as well.
  REQUIRE(frees.size() == 1);
  CHECK(frees[0].second.id == inside);
  LoseNode(f);
  const Sent push = f.transport.Take(FrameKind::kPushTask);
  CHECK(push.body.find("settings") != std::string::npos);
  CHECK(push.body.find(inside.Binary()) != std::string::npos);
  WHEN("its worker wants what it refers to") {
    f.Query(kWorker, inside, false);
    CHECK(f.transport.Count(FrameKind::kObjectAnswer) == 0);
    CHECK(RunNext(f) == TaskOf(inside).sequence_bits);
    CHECK(f.TakeAnswer().location.node == 1);
  }
}

TEST_CASE("lineage is bounded: the oldest recipes go, and the error says so") {
  Places f;
  const TemplateRecord& step = f.Template();
  ObjectHandle x = f.Step(step, {});
  const uint64_t one = f.owner.tasks.lineage_bytes();
  f.owner.tasks.set_lineage_bound(100 * one);
  for (int i = 0; i < 1000; ++i) {
    x = f.Step(step, {x});
    f.Collect();
    REQUIRE(f.owner.tasks.lineage_bytes() <= 100 * one);
  }
  CHECK(f.owner.references.size() <= 102);
  CHECK(f.owner.tasks.size() <= 100);
  LoseNode(f);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  REQUIRE(ObjectState{x.entry()->state} == ObjectState::kError);
  CHECK(x.entry()->extra->error.kind == ErrorKind::kReconstructionFailed);
  CHECK(x.entry()->extra->error.message.find("among the oldest") != std::string::npos);
}

TEST_CASE("the kept small values of recipes count as lineage") {
  Places f;
  f.owner.tasks.set_lineage_bound(1 << 20);
  std::vector<ObjectHandle> results;
  for (int i = 0; i < 100; ++i) {
    results.push_back(f.Step(f.Template(), {f.PutHere(std::string(60'000, 'v'))}));
    f.Collect();
  }
  CHECK(f.owner.tasks.lineage_bytes() <= (1 << 20) + 61'000);
  CHECK(f.owner.references.value_bytes() <= (1 << 20) + 61'000);
}

TEST_CASE("only what is lost is made again") {
  Places f;
  TemplateRecord& two = const_cast<TemplateRecord&>(f.Template());
  two.spec.set_num_returns(2);
  TaskRecord* task = f.owner.tasks.Add(two, {}, nullptr, {});
  const ObjectHandle small(task->first_return);
  const ObjectHandle large(task->references->more_returns[0]);
  f.owner.submitter.Submit(*task);
  f.Grant(1, kFar);
  const auto reply = [&](const PushTaskHead& push, std::string_view value, ObjectLocation at,
                         ProcessId from) {
    TaskReplyHead head{};
    head.task_sequence_bits = push.task_sequence_bits;
    head.cookie = push.cookie;
    head.attempt = push.attempt;
    head.return_count = 2;
    std::string body(AsBytes(head));
    WireWriter out(body);
    ReturnHead first{};
    first.kind = ReturnKind::kValue;
    first.bytes = static_cast<uint32_t>(value.size());
    out.Struct(first);
    out.Bytes(value);
    ReturnHead second{};
    second.kind = ReturnKind::kStore;
    second.location = at;
    second.size = 1 << 20;
    out.Struct(second);
    f.owner.OnFrame(from, {FrameKind::kTaskReply, body});
  };
  const std::string value(100, 'a');
  reply(f.TakePush(), value, kThere, kFar);
  REQUIRE(ObjectState{large.entry()->state} == ObjectState::kStore);
  const char* viewed = small.entry()->value.data();
  LoseNode(f);
  CHECK(ObjectState{small.entry()->state} == ObjectState::kValue);
  CHECK_FALSE(large.entry()->ready());
  reply(f.TakePush(), std::string(100, 'b'), {1, 4, 1, 1}, kWorker);
  CHECK(large.entry()->location == ObjectLocation{1, 4, 1, 1});
  CHECK(small.entry()->value == value);
  CHECK(small.entry()->value.data() == viewed);
}

TEST_CASE("what is in the store and was made once more is read from its new place") {
  Places f;
  TemplateRecord& two = const_cast<TemplateRecord&>(f.Template());
  two.spec.set_num_returns(2);
  TaskRecord* task = f.owner.tasks.Add(two, {}, nullptr, {});
  const ObjectHandle here(task->first_return);
  const ObjectHandle there(task->references->more_returns[0]);
  f.owner.submitter.Submit(*task);
  f.Grant(1, kFar);
  const auto reply = [&](const PushTaskHead& push, ObjectLocation first, ObjectLocation second,
                         ProcessId from) {
    TaskReplyHead head{};
    head.task_sequence_bits = push.task_sequence_bits;
    head.cookie = push.cookie;
    head.attempt = push.attempt;
    head.return_count = 2;
    std::string body(AsBytes(head));
    for (const ObjectLocation at : {first, second}) {
      ReturnHead result{};
      result.kind = ReturnKind::kStore;
      result.location = at;
      result.size = 1 << 20;
      body.append(AsBytes(result));
    }
    f.owner.OnFrame(from, {FrameKind::kTaskReply, body});
  };
  reply(f.TakePush(), kThere, kThere, kFar);
  f.owner.references.List(*here.entry());
  f.Copied(kThirdRaylet, here.id(), kThird);
  f.TakeFrees();
  LoseNode(f);
  CHECK(here.entry()->location == kThird);  // Ready all the time.
  reply(f.TakePush(), {1, 4, 1, 1}, {1, 5, 1, 1}, kWorker);
  CHECK(here.entry()->location == ObjectLocation{1, 4, 1, 1});
  const auto frees = f.TakeFrees();
  REQUIRE(frees.size() == 1);  // The older copy, up to its attempt.
  CHECK(frees[0].first == kThirdRaylet);
  CHECK(frees[0].second.location.attempt == 0);
}

TEST_CASE("a borrowed argument that only lineage holds is given back, and borrowed again") {
  Places f;
  const ObjectId id = ObjectId::Make({5, 3}, 1, 1);
  ObjectHandle argument(f.owner.references.Incoming({id, kThird}));
  f.owner.resolver.Want(*argument.entry());
  f.owner.references.Flush();
  const ObjectHandle result = f.Step(f.Template(), {argument});
  argument = {};
  f.Collect();
  f.owner.references.Flush();
  f.transport.Take(FrameKind::kRefsReport);
  proto::RefsReport report;
  REQUIRE(report.ParseFromString(f.transport.Take(FrameKind::kRefsReport).body));
  CHECK(report.dropped_ids() == id.Binary());
  LoseNode(f);
  f.owner.references.Flush();
  REQUIRE(report.ParseFromString(f.transport.Take(FrameKind::kRefsReport).body));
  CHECK(report.held_ids() == id.Binary());
  CHECK(f.transport.Take(FrameKind::kObjectQuery).to == ProcessId{5, 3});
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
}

TEST_CASE("an actor ends with its last handle, whatever lineage could call it again") {
  Places f;
  TemplateRecord& creation = const_cast<TemplateRecord&>(f.Template());
  creation.spec.set_kind(proto::TaskTemplate::ACTOR_CREATION);
  TaskRecord* task = f.owner.tasks.Add(creation, {}, nullptr, {});
  ObjectHandle actor(task->first_return);
  f.owner.references.List(*actor.entry());
  f.owner.created_actors.Create(*task);
  const ActorId id = ActorOf(actor);
  const ObjectHandle result = f.Step(f.Template(), {}, {actor});
  CHECK(f.owner.created_actors.Manages(id));
  actor = {};
  f.Collect();
  CHECK_FALSE(f.owner.created_actors.Manages(id));
  CHECK(ObjectState{result.entry()->state} == ObjectState::kStore);
}

TEST_CASE("the items of a stream that only lineage holds are made again as well") {
  Places f;
  TemplateRecord& generator = const_cast<TemplateRecord&>(f.Template());
  generator.spec.set_streaming(true);
  ObjectHandle stream = f.Submit(generator);
  f.Grant(1, kFar);
  f.granted = true;
  const PushTaskHead push = f.TakePush();
  const TaskId maker = TaskOf(stream.id());
  const auto item = [&](const PushTaskHead& run, ObjectLocation at, ProcessId from) {
    StreamItemHead head{};
    head.task_sequence_bits = run.task_sequence_bits;
    head.cookie = run.cookie;
    head.attempt = run.attempt;
    head.stored_as = ReturnOf(maker, 1);
    ReturnHead value{};
    value.kind = ReturnKind::kStore;
    value.location = at;
    value.size = 1 << 20;
    std::string body(AsBytes(head));
    body.append(AsBytes(value));
    f.owner.OnFrame(from, {FrameKind::kStreamItem, body});
  };
  const auto end = [&](const PushTaskHead& run, ProcessId from) {
    TaskReplyHead head{};
    head.task_sequence_bits = run.task_sequence_bits;
    head.cookie = run.cookie;
    head.attempt = run.attempt;
    head.stream_items = 1;
    f.owner.OnFrame(from, {FrameKind::kTaskReply, std::string(AsBytes(head))});
  };
  item(push, kThere, kFar);
  end(push, kFar);
  ObjectHandle first;
  REQUIRE(f.owner.tasks.NextItem(*stream.entry(), &first) == TaskTable::StreamNext::kItem);
  const ObjectHandle result = f.Step(f.Template(), {first});
  ObjectEntry* entry = first.entry();
  first = stream = {};
  f.Collect();
  REQUIRE(entry->released);
  LoseNode(f);
  const PushTaskHead again = f.TakePush();
  CHECK(again.task_sequence_bits == push.task_sequence_bits);
  item(again, {1, 3, 1, 1}, kWorker);
  end(again, kWorker);
  CHECK(RunNext(f) == TaskOf(result.id()).sequence_bits);
  CHECK(ObjectState{result.entry()->state} == ObjectState::kStore);
}

}  // namespace lineage_test
}  // namespace sheaf
