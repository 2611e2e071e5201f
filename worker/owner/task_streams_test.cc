// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Items of streams: they come while the call runs; what is lost comes again, and nothing else.
#include <cstring>

#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace task_streams_test {

constexpr ProcessId kFar{2, 8};  // A worker of another node.
constexpr ProcessId kOther{3, 8};
constexpr ProcessId kFarRaylet{2, 0};

struct Streams : Fixture {
  const TemplateRecord& StreamTemplate(int max_retries = 3, int max_unconsumed = 0) {
    TemplateRecord& record = const_cast<TemplateRecord&>(Template(max_retries));
    record.spec.set_name("count");
    record.spec.set_num_returns(0);
    record.spec.set_streaming(true);
    record.spec.set_max_unconsumed(max_unconsumed);
    return record;
  }
  struct Run {
    PushTaskHead head;
    std::optional<uint64_t> from;  // What the push says of the items that are there.
    uint64_t consumed = 0;
    std::vector<uint64_t> lost;
  };
  Run TakeRun() {
    const Sent frame = transport.Take(FrameKind::kPushTask);
    WireReader in(frame.body);
    Run run{*in.Struct<PushTaskHead>(), {}, 0, {}};
    in.Bytes(run.head.argument_bytes);
    in.Structs<NestedReference>(run.head.nested_count);
    if ((run.head.flags & kStreamResumes) != 0) {
      const auto* resume = in.Struct<StreamResume>();
      run.from = resume->from;
      run.consumed = resume->consumed;
      const auto* lost = in.Structs<uint64_t>(resume->lost_count);
      run.lost.assign(lost, lost + resume->lost_count);
    }
    REQUIRE_FALSE(in.failed());
    return run;
  }
  void Frame(const Run& run, uint64_t index, ProcessId from, ReturnHead value,
             std::string_view bytes, uint64_t transit = 0) {
    StreamItemHead head{};
    head.task_sequence_bits = run.head.task_sequence_bits;
    head.cookie = run.head.cookie;
    head.attempt = run.head.attempt;
    head.index = index;
    head.transit = transit;
    if (value.kind == ReturnKind::kStore)
      head.stored_as = ReturnOf({kSelf.packed(), run.head.task_sequence_bits}, index + 1);
    std::string body(AsBytes(head));
    WireWriter out(body);
    value.bytes = static_cast<uint32_t>(bytes.size());
    out.Struct(value);
    out.Bytes(bytes);
    owner.OnFrame(from, {FrameKind::kStreamItem, body});
  }
  // The item comes, in the store of `from`'s node.
  void Stored(const Run& run, uint64_t index, ProcessId from = kFar) {
    ReturnHead value{};
    value.kind = ReturnKind::kStore;
    value.location = At(run, index, from);
    value.size = 1 << 20;
    Frame(run, index, from, value, {});
  }
  void Small(const Run& run, uint64_t index, ProcessId from = kFar, uint64_t transit = 0) {
    Frame(run, index, from, {}, "v" + std::to_string(index), transit);
  }
  static ObjectLocation At(const Run& run, uint64_t index, ProcessId process) {
    return {process.node, static_cast<uint32_t>(index), 1, run.head.attempt};
  }
  void End(const Run& run, uint64_t items, ProcessId from = kFar,
           ReplyStatus status = ReplyStatus::kDone) {
    TaskReplyHead head{};
    head.task_sequence_bits = run.head.task_sequence_bits;
    head.cookie = run.head.cookie;
    head.attempt = run.head.attempt;
    head.status = status;
    head.stream_items = static_cast<uint32_t>(items);
    std::string body(AsBytes(head));
    WireWriter out(body);
    if (status != ReplyStatus::kDone) {
      const std::string text = EncodeError({ErrorKind::kTaskFailed, "boom", {}});
      ReturnHead error{};
      error.kind = ReturnKind::kError;
      error.bytes = static_cast<uint32_t>(text.size());
      out.Struct(error);
      out.Bytes(text);
    }
    owner.OnFrame(from, {FrameKind::kTaskReply, body});
  }
  ObjectHandle Next(const ObjectHandle& stream) {
    ObjectHandle item;
    REQUIRE(owner.tasks.NextItem(*stream.entry(), &item) == TaskTable::StreamNext::kItem);
    return item;
  }
  TaskTable::StreamNext Look(const ObjectHandle& stream) {
    ObjectHandle item;
    return owner.tasks.NextItem(*stream.entry(), &item);
  }
  // A stream of `count` items in the store of node 2 that has ended; all are taken.
  std::vector<ObjectHandle> Taken(ObjectHandle* stream, uint64_t count, int max_retries = 3) {
    *stream = Submit(StreamTemplate(max_retries));
    Grant(1, kFar);
    const Run run = TakeRun();
    CHECK_FALSE(run.from);
    for (uint64_t i = 0; i < count; ++i) Stored(run, i);
    End(run, count);
    std::vector<ObjectHandle> items;
    for (uint64_t i = 0; i < count; ++i) items.push_back(Next(*stream));
    CHECK(Look(*stream) == TaskTable::StreamNext::kEnd);
    return items;
  }
  // Node 2, with the worker of the first run, dies; another worker is there at once.
  void NodeDies() {
    proto::Death death;
    death.set_cause(proto::Death::NODE_DIED);
    owner.OnProcessDied(kFar, death, UINT64_MAX);
    Grant(9, kOther);
    owner.OnNodeGone(2);
  }
  size_t Stops() {
    size_t stops = 0;
    while (transport.Count(FrameKind::kStreamAck) != 0) {
      StreamAck ack;
      std::memcpy(&ack, transport.Take(FrameKind::kStreamAck).body.data(), sizeof ack);
      stops += ack.stop;
    }
    return stops;
  }
};

ErrorKind KindOf(const ObjectHandle& object) {
  return object.entry()->state == ObjectState::kError ? object.entry()->extra->error.kind
                                                      : ErrorKind::kNone;
}

SCENARIO("one run brings all items that are lost, and only those") {
  Streams f;
  ObjectHandle stream;
  std::vector<ObjectHandle> items = f.Taken(&stream, 5);
  f.owner.references.AddCopy(*items[1].entry(), {3, 7, 1, 0});
  items[3] = {};
  f.owner.references.CollectDropped();
  f.NodeDies();
  CHECK(ObjectState{items[1].entry()->state} == ObjectState::kStore);
  for (const int i : {0, 2, 4})
    CHECK(ObjectState{items[i].entry()->state} == ObjectState::kPending);
  const Streams::Run again = f.TakeRun();
  CHECK(again.head.attempt == 1);
  CHECK(again.from == StreamResume::kNoMore);
  CHECK(again.lost == std::vector<uint64_t>{0, 2, 4});
  for (const uint64_t i : {0, 2, 4}) f.Stored(again, i, kOther);
  f.End(again, 5, kOther);
  for (const int i : {0, 2, 4}) CHECK(items[i].entry()->location == Streams::At(again, i, kOther));
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
  CHECK(f.Look(stream) == TaskTable::StreamNext::kEnd);
  CHECK(f.owner.tasks.reconstructions() == 1);
  THEN("and again, until no retry is left") {
    f.owner.OnNodeGone(3);
    const Streams::Run third = f.TakeRun();
    CHECK(third.lost == std::vector<uint64_t>{0, 1, 2, 4});
    CHECK(third.head.attempt == 2);
  }
}

SCENARIO("the stream itself may be gone: its items are made again as long as anything holds them") {
  Streams f;
  ObjectHandle stream;
  std::vector<ObjectHandle> items = f.Taken(&stream, 3);
  stream = {};
  f.owner.references.CollectDropped();
  CHECK(f.owner.tasks.size() == 1);
  f.owner.OnNodeGone(2);
  const Streams::Run again = f.TakeRun();
  CHECK(again.lost == std::vector<uint64_t>{0, 1, 2});
  f.Stored(again, 0, kFar);
  CHECK(ObjectState{items[0].entry()->state} == ObjectState::kStore);
  WHEN("one goes while the call runs again") {
    items[1] = {};
    f.owner.references.CollectDropped();
    f.transport.sent.clear();
    f.Stored(again, 1, kFar);
    THEN("it is freed where it was made") {
      CHECK(f.transport.Take(kStoreFree).to == kFarRaylet);
      CHECK(f.Stops() == 0);
    }
    AND_WHEN("all that were lost are there or gone") {
      items[2] = {};
      f.owner.references.CollectDropped();
      f.Stored(again, 2, kFar);
      THEN("the run is stopped") { CHECK(f.Stops() == 1); }
    }
  }
  f.Stored(again, 2, kFar);
  f.End(again, 3, kFar);
  items.clear();
  f.owner.references.CollectDropped();
  CHECK(f.owner.tasks.size() == 0);
}

SCENARIO("a call is kept for its items in the store alone") {
  Streams f;
  ObjectHandle argument(
      f.owner.references.NewOwned(ObjectId::Make(kSelf, f.owner.references.NextSequence(), 1)));
  f.owner.references.SetStored(*argument.entry(), {1, 3, 1, 0}, 100);
  const ObjectId id = argument.id();
  auto references = std::make_unique<TaskReferences>();
  f.owner.references.AddUse(*argument.entry());
  references->arguments.push_back({argument.entry(), 0, false});
  TaskRecord* task = f.owner.tasks.Add(f.StreamTemplate(),
                                       InlineBytes(AsBytes(ArgumentHead{ArgumentKind::kStore, 0})),
                                       std::move(references), {});
  ObjectHandle stream(task->first_return);
  f.owner.submitter.Submit(*task);
  argument = {};
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  f.Small(run, 0);
  f.Stored(run, 1);
  f.End(run, 2);
  const ObjectHandle small = f.Next(stream);
  ObjectHandle large = f.Next(stream);
  f.owner.references.CollectDropped();
  CHECK(f.store.freed == std::vector{id});  // Not the bytes of its argument.
  CHECK(f.owner.tasks.lineage_bytes() != 0);
  large = {};
  f.owner.references.CollectDropped();
  CHECK(f.owner.tasks.lineage_bytes() == 0);
  stream = {};
  f.owner.references.CollectDropped();
  CHECK(f.owner.tasks.size() == 0);
  CHECK(small.entry()->value == "v0");
}

SCENARIO("a run that yields fewer items leaves those that it lacks with an error that says so") {
  Streams f;
  ObjectHandle stream;
  const std::vector<ObjectHandle> items = f.Taken(&stream, 4);
  f.owner.OnNodeGone(2);
  const Streams::Run again = f.TakeRun();
  f.Stored(again, 0, kFar);
  f.Stored(again, 1, kFar);
  f.End(again, 2);
  CHECK(KindOf(items[0]) == ErrorKind::kNone);
  for (const int i : {2, 3}) {
    REQUIRE(KindOf(items[i]) == ErrorKind::kStreamReplay);
    CHECK(items[i].entry()->extra->error.message.find(
              "yielded 2 items when it ran again, after 4 before") != std::string::npos);
  }
}

SCENARIO("a run that fails gives its error to what is missing, one that is cancelled as well") {
  Streams f;
  ObjectHandle stream;
  const std::vector<ObjectHandle> items = f.Taken(&stream, 2, 1);
  f.owner.OnNodeGone(2);
  const Streams::Run again = f.TakeRun();
  f.Stored(again, 0, kFar);
  WHEN("it raises") {
    f.End(again, 1, kFar, ReplyStatus::kFailed);
    CHECK(items[1].entry()->extra->error.message == "boom");
  }
  WHEN("its worker dies, and no retry is left") {
    f.Die(kFar, UINT64_MAX);
    CHECK(KindOf(items[1]) == ErrorKind::kWorkerCrashed);
  }
  WHEN("it is cancelled through an item") {
    f.owner.Cancel(*items[1].entry(), false, false);
    CHECK(f.transport.Count(FrameKind::kCancelTask) == 1);
    f.End(again, 1);
    CHECK(KindOf(items[1]) == ErrorKind::kTaskCancelled);
  }
  CHECK(KindOf(items[0]) == ErrorKind::kNone);
  CHECK(f.Look(stream) == TaskTable::StreamNext::kEnd);
}

SCENARIO("an item that is there cancels nothing") {
  Streams f;
  const ObjectHandle stream = f.Submit(f.StreamTemplate());
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  f.Stored(run, 0);
  f.owner.Cancel(*f.Next(stream).entry(), false, false);
  CHECK(f.transport.Count(FrameKind::kCancelTask) == 0);
}

SCENARIO("a call with no retries left does not run again") {
  Streams f;
  ObjectHandle stream;
  const std::vector<ObjectHandle> items = f.Taken(&stream, 2, 0);
  f.NodeDies();
  for (const ObjectHandle& item : items) CHECK(KindOf(item) == ErrorKind::kReconstructionFailed);
  CHECK(f.transport.Count(FrameKind::kPushTask) == 0);
}

SCENARIO("when the worker of a stream dies, it goes on behind the items that came") {
  Streams f;
  ObjectHandle stream = f.Submit(f.StreamTemplate(1, 2));
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  for (uint64_t i = 0; i < 2; ++i) f.Small(run, i);
  const ObjectHandle first = f.Next(stream);
  f.Die(kFar, UINT64_MAX);
  f.Grant(2, kOther);
  const Streams::Run again = f.TakeRun();
  CHECK(again.from == 2);
  CHECK(again.consumed == 1);
  CHECK(again.lost.empty());
  f.transport.sent.clear();
  CHECK(f.Next(stream).entry()->value == "v1");
  CHECK(f.transport.Take(FrameKind::kStreamAck).to == kOther);
  f.Small(run, 2);  // From the dead: it counts no more.
  CHECK(f.Look(stream) == TaskTable::StreamNext::kPending);
  f.Small(again, 1, kOther);  // Is there.
  CHECK(f.Look(stream) == TaskTable::StreamNext::kPending);
  f.Small(again, 2, kOther);
  CHECK(f.Next(stream).entry()->value == "v2");
  WHEN("it ends") {
    f.End(again, 3, kOther);
    CHECK(f.Look(stream) == TaskTable::StreamNext::kEnd);
    CHECK(first.entry()->value == "v0");
  }
  WHEN("it dies once more") {
    f.Die(kOther, UINT64_MAX);
    CHECK(KindOf(f.Next(stream)) == ErrorKind::kWorkerCrashed);
    CHECK(f.Look(stream) == TaskTable::StreamNext::kEnd);
  }
}

SCENARIO("a stream that ends sooner when it runs again says so at its end") {
  Streams f;
  const ObjectHandle stream = f.Submit(f.StreamTemplate());
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  for (uint64_t i = 0; i < 3; ++i) f.Small(run, i);
  f.Die(kFar, UINT64_MAX);
  f.Grant(2, kOther);
  f.End(f.TakeRun(), 2, kOther);
  for (int i = 0; i < 3; ++i) CHECK(KindOf(f.Next(stream)) == ErrorKind::kNone);
  CHECK(KindOf(f.Next(stream)) == ErrorKind::kStreamReplay);
  CHECK(f.Look(stream) == TaskTable::StreamNext::kEnd);
}

SCENARIO("a failure that may be retried runs again behind the items that came") {
  Streams f;
  const ObjectHandle stream = f.Submit(f.StreamTemplate(1));
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  f.Small(run, 0);
  f.End(run, 1, kFar, ReplyStatus::kFailedRetriable);
  const Streams::Run again = f.TakeRun();
  CHECK(again.from == 1);
  f.End(again, 1, kFar, ReplyStatus::kFailedRetriable);
  CHECK(KindOf(f.Next(stream)) == ErrorKind::kNone);
  CHECK(KindOf(f.Next(stream)) == ErrorKind::kTaskFailed);
}

SCENARIO("a node dies under a stream that runs: one retry brings its items and the rest") {
  Streams f;
  const ObjectHandle stream = f.Submit(f.StreamTemplate(1));
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  for (uint64_t i = 0; i < 3; ++i) f.Stored(run, i);
  const ObjectHandle first = f.Next(stream);
  f.NodeDies();
  const Streams::Run again = f.TakeRun();
  CHECK(again.lost == std::vector<uint64_t>{0, 1, 2});
  CHECK(again.from == 3);
  for (uint64_t i = 0; i < 4; ++i) f.Stored(again, i, kOther);
  f.End(again, 4, kOther);
  CHECK(first.entry()->location == Streams::At(again, 0, kOther));
  for (uint64_t i = 1; i < 4; ++i)
    CHECK(f.Next(stream).entry()->location == Streams::At(again, i, kOther));
  CHECK(f.Look(stream) == TaskTable::StreamNext::kEnd);
}

SCENARIO("an item is lost while its stream runs elsewhere: the run is stopped, for it may wait") {
  Streams f;
  const ObjectHandle stream = f.Submit(f.StreamTemplate(1, 1));
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  f.Stored(run, 0);
  const ObjectHandle first = f.Next(stream);
  f.Stops();
  f.owner.references.DropCopy(*first.entry(), 2);
  CHECK(f.owner.tasks.Reconstruct(*first.entry(), f.owner.submitter));
  CHECK(f.Stops() == 1);
  f.Stored(run, 1);  // Sent before the stop was heard.
  CHECK(f.Stops() == 0);
  f.End(run, 2);
  const Streams::Run again = f.TakeRun();
  CHECK(again.lost == std::vector<uint64_t>{0});
  CHECK(again.from == 2);
  f.Stored(again, 0);
  CHECK(ObjectState{first.entry()->state} == ObjectState::kStore);
  f.owner.references.DropCopy(*first.entry(), 2);
  CHECK_FALSE(f.owner.tasks.Reconstruct(*first.entry(), f.owner.submitter));  // No retry is left.
}

SCENARIO("an abandoned stream is stopped, unless it brings what was lost") {
  Streams f;
  ObjectHandle stream = f.Submit(f.StreamTemplate());
  f.Grant(1, kFar);
  const Streams::Run run = f.TakeRun();
  f.Stored(run, 0);
  const ObjectHandle first = f.Next(stream);
  WHEN("nothing is lost") {
    stream = {};
    f.owner.references.CollectDropped();
    CHECK(f.Stops() == 1);
    f.Small(run, 1, kFar, 77);
    CHECK(f.Stops() == 1);
    TransitDone done;
    std::memcpy(&done, f.transport.Take(FrameKind::kTransitDone).body.data(), sizeof done);
    CHECK(done.transit == 77);  // The references inside are let go.
  }
  WHEN("its first item is") {
    f.NodeDies();
    const Streams::Run again = f.TakeRun();
    stream = {};
    f.owner.references.CollectDropped();
    CHECK(f.Stops() == 0);
    CHECK(again.lost == std::vector<uint64_t>{0});
    f.Stored(again, 0, kOther);
    CHECK(ObjectState{first.entry()->state} == ObjectState::kStore);
    f.Stored(again, 1, kOther);
    CHECK(f.Stops() == 1);
  }
}

}  // namespace task_streams_test
}  // namespace sheaf
