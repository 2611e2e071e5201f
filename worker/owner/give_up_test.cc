// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An owner gives up the bytes of what it holds: they go everywhere, and come back when somebody wants
// them; what could not come back stays.
#include "worker/owner/object_places_for_test.h"

namespace sheaf {
namespace give_up_test {

absl::Status GiveUp(Places& f, const ObjectHandle& object, bool though_used = false) {
  return GiveUp(f.owner.tasks, *object.entry(), though_used);
}

// The next call that runs, on this node.
uint64_t RunNext(Places& f) {
  const PushTaskHead push = f.TakePush();
  f.ReplyStored(push, {1, push.cookie, 1, push.attempt}, 1 << 20, kWorker);
  return push.task_sequence_bits;
}

bool IsStored(const ObjectHandle& object) {
  return ObjectState{object.entry()->state} == ObjectState::kStore;
}

TEST_CASE("what is given up has no bytes anywhere, and is made again by who wants it, ever again") {
  Places f;
  const ObjectHandle object = f.Result(/*max_retries=*/1);
  f.Copied(kThirdRaylet, object.id(), kThird);
  f.TakeFrees();
  for (int i = 0; i < 5; ++i) {
    REQUIRE(GiveUp(f, object).ok());
    CHECK(object.entry()->released);
    CHECK_FALSE(object.entry()->location.known());
    if (i == 0) CHECK(f.TakeFrees().size() == 2);
    CHECK(GiveUp(f, object).ok());
    CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
    f.owner.resolver.Want(*object.entry());
    f.owner.resolver.Want(*object.entry());
    CHECK(GiveUp(f, object).code() == absl::StatusCode::kUnavailable);
    f.ReplyStored(f.TakePush(), kThere);
    CHECK(IsStored(object));
    CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  }
  // Its one retry is there for a loss, and only one.
  f.owner.OnNodeGone(2);
  f.ReplyStored(f.TakePush(), kThird);
  CHECK(IsStored(object));
  CHECK(GiveUp(f, object).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a call that gets what was given up as an argument has it made first, with its chain") {
  Places f;
  const TemplateRecord& step = f.Template(/*max_retries=*/1);
  ObjectHandle below = f.Step(step, {});
  const ObjectHandle cached = f.Step(step, {below});
  const uint64_t first = TaskOf(below.id()).sequence_bits;
  below = {};
  f.Collect();
  f.Die(kFar, UINT64_MAX);
  f.Grant(9, kWorker);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(GiveUp(f, cached).ok());
    f.owner.resolver.Want(*cached.entry());
    const ObjectHandle result = f.Call(step, {cached});
    CHECK(GiveUp(f, cached).code() == absl::StatusCode::kUnavailable);
    CHECK(RunNext(f) == first);
    CHECK(RunNext(f) == TaskOf(cached.id()).sequence_bits);
    CHECK(GiveUp(f, cached).code() == absl::StatusCode::kUnavailable);  // A call needs it.
    CHECK(RunNext(f) == TaskOf(result.id()).sequence_bits);
    f.Collect();
  }
}

TEST_CASE("what is used goes only by force, and is made again for its user") {
  Places f;
  const ObjectHandle object = f.Result();
  const ObjectHandle holder = f.PutHere("holds it", {object.entry()});
  CHECK(GiveUp(f, object).code() == absl::StatusCode::kUnavailable);
  REQUIRE(GiveUp(f, object, /*though_used=*/true).ok());
  f.owner.references.List(*object.entry());
  f.Query(kWorker, object.id(), /*lost=*/false);
  f.Query({3, 9}, object.id(), /*lost=*/true);  // It had the old place.
  CHECK(f.transport.Count(FrameKind::kObjectAnswer) == 0);
  f.ReplyStored(f.TakePush(), kThere);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  CHECK(f.TakeAnswer().location == kThere);
  CHECK(f.TakeAnswer().location == kThere);
}

TEST_CASE("what cannot be made again is not given up, and the error says why") {
  Places f;
  const auto refused = [&](const ObjectHandle& object, const std::string& why) {
    const absl::Status status = GiveUp(f, object, true);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::string(status.message()).find(why) != std::string::npos);
    CHECK(object.entry()->ready());
    CHECK(f.TakeFrees().empty());
  };
  SECTION("a value that was put") { refused(f.PutThere(), "it was put"); }
  SECTION("a value in this process") { refused(f.PutHere("small"), "in no store"); }
  SECTION("a result without retries") { refused(f.Result(0), "no retries left"); }
  SECTION("one whose recipe was evicted") {
    const ObjectHandle object = f.Result();
    f.owner.tasks.set_lineage_bound(1);
    const ObjectHandle other = f.Result();
    refused(object, "among the oldest");
  }
  SECTION("one of an argument that was put, which nobody holds any more") {
    ObjectHandle put = f.PutThere();
    const ObjectHandle middle = f.Step(f.Template(), {}, {put});
    const ObjectHandle object = f.Step(f.Template(), {middle});
    CHECK(GiveUp(f, middle).ok());
    f.owner.resolver.Want(*middle.entry());
    f.ReplyStored(f.TakePush(), kThere);
    put = {};
    f.Collect();
    f.TakeFrees();
    refused(middle, "it was put");
    THEN("what is made from what is held may go") { CHECK(GiveUp(f, object).ok()); }
  }
  SECTION("what belongs to another process") {
    const ObjectHandle borrowed(
        f.owner.references.Incoming({ObjectId::Make({5, 3}, 1, 1), kThird}));
    CHECK(GiveUp(f, borrowed).code() == absl::StatusCode::kInvalidArgument);
  }
  SECTION("what has a chain of too many calls behind it, which nobody holds") {
    const TemplateRecord& step = f.Template();
    ObjectHandle x = f.Step(step, {});
    for (size_t i = 0; i < kMostRecipes; ++i) {
      x = f.Step(step, {x});
      f.Collect();
      f.transport.sent.clear();
    }
    refused(x, "may have to run again");
  }
}

TEST_CASE("a small value that was given by reference is a part of the recipe") {
  Places f;
  ObjectHandle put = f.PutHere("settings");
  const ObjectHandle object = f.Step(f.Template(), {put});
  put = {};
  f.Collect();
  REQUIRE(GiveUp(f, object).ok());
  f.owner.resolver.Want(*object.entry());
  CHECK(f.transport.Take(FrameKind::kPushTask).body.find("settings") != std::string::npos);
}

TEST_CASE("an answer to a search that was under way leaves what was given up to be made again") {
  Places f;
  const ObjectHandle object = f.Result();
  size_t here = 0;
  f.owner.resolver.WhenHere(*object.entry(), [&](ObjectEntry&) { ++here; });
  CHECK(f.TakeFetch().second.hint == kThere);
  REQUIRE(GiveUp(f, object, /*though_used=*/true).ok());
  const bool found = GENERATE(true, false);
  f.owner.resolver.OnLocated(object.id(), found ? &kHere : nullptr,
                             {ErrorKind::kObjectLost, "gone", {}});
  CHECK(here == 0);
  CHECK_FALSE(object.entry()->location.known());
  f.ReplyStored(f.TakePush(), {1, 4, 2, 1}, 1 << 20, kFar);
  CHECK(here == 1);
  CHECK(object.entry()->location == ObjectLocation{1, 4, 2, 1});
}

TEST_CASE(
    "a copy that arrives elsewhere meanwhile is freed, and a node that dies changes nothing") {
  Places f;
  const ObjectHandle object = f.Result();
  f.TakeFrees();
  REQUIRE(GiveUp(f, object).ok());
  f.TakeFrees();
  f.Copied(kThirdRaylet, object.id(), kThird);
  CHECK(f.TakeFrees().size() == 1);
  f.Die(kFar, UINT64_MAX);
  f.owner.OnNodeGone(2);
  f.Grant(9, kWorker);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  CHECK(object.entry()->released);
  f.owner.resolver.Want(*object.entry());
  RunNext(f);
  CHECK(IsStored(object));
}

TEST_CASE("items of a stream are given up one by one when it has ended, and come together") {
  Places f;
  TemplateRecord& generator = const_cast<TemplateRecord&>(f.Template(/*max_retries=*/1));
  generator.spec.set_streaming(true);
  ObjectHandle stream = f.Submit(generator);
  f.Grant(1, kFar);
  const TaskId maker = TaskOf(stream.id());
  const auto item = [&](const PushTaskHead& run, uint64_t index) {
    StreamItemHead head{};
    head.task_sequence_bits = run.task_sequence_bits;
    head.cookie = run.cookie;
    head.attempt = run.attempt;
    head.index = index;
    head.stored_as = ReturnOf(maker, static_cast<uint16_t>(index + 1));
    ReturnHead value{};
    value.kind = ReturnKind::kStore;
    value.location = {2, static_cast<uint32_t>(5 + index), 1, run.attempt};
    value.size = 1 << 20;
    std::string body(AsBytes(head));
    body.append(AsBytes(value));
    f.owner.OnFrame(kFar, {FrameKind::kStreamItem, body});
  };
  const auto end = [&](const PushTaskHead& run) {
    TaskReplyHead head{};
    head.task_sequence_bits = run.task_sequence_bits;
    head.cookie = run.cookie;
    head.attempt = run.attempt;
    head.stream_items = 2;
    f.owner.OnFrame(kFar, {FrameKind::kTaskReply, std::string(AsBytes(head))});
  };
  PushTaskHead run = f.TakePush();
  ObjectHandle first, second;
  item(run, 0);
  REQUIRE(f.owner.tasks.NextItem(*stream.entry(), &first) == TaskTable::StreamNext::kItem);
  CHECK(GiveUp(f, first).code() == absl::StatusCode::kUnavailable);  // Its call runs still.
  item(run, 1);
  REQUIRE(f.owner.tasks.NextItem(*stream.entry(), &second) == TaskTable::StreamNext::kItem);
  end(run);
  stream = {};
  f.Collect();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(GiveUp(f, first).ok());
    REQUIRE(GiveUp(f, second).ok());
    f.owner.resolver.Want(*second.entry());
    run = f.TakePush();
    f.owner.resolver.Want(*first.entry());  // It is on its way.
    CHECK(GiveUp(f, first).code() == absl::StatusCode::kUnavailable);
    item(run, 0);
    item(run, 1);
    end(run);
    CHECK(IsStored(first));
    CHECK(IsStored(second));
    CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  }
}

}  // namespace give_up_test
}  // namespace sheaf
