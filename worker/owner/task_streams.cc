// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The streams of the task table: items come while the call runs. A call that runs again, after a
// death or for items that are lost, is told in its push what is there already, so that it sends the
// rest alone.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/messages.h"
#include "worker/owner/task_table.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

// Items that a dead producer may have stored and not sent, behind the last one that came.
constexpr uint64_t kUnheardItems = 16;

ObjectId ItemOf(TaskId task, uint64_t index) {
  return ReturnOf(task, static_cast<uint16_t>(index + 1));
}

uint64_t IndexOf(ObjectId item) { return item.index() - 2u; }

Error TooFewItems(const std::string& call, uint64_t yielded, uint64_t promised) {
  return {ErrorKind::kStreamReplay,
          absl::StrCat(call, " yielded ", yielded, " items when it ran again, after ", promised,
                       " before: one that may run again must yield the same items"),
          {}};
}

}  // namespace

bool TaskTable::IsAbandoned(const TaskRecord& task) const {
  return task.first_return->handles.load(std::memory_order_relaxed) == 0;
}

std::string TaskTable::BeginRun(TaskRecord& task, ProcessId producer) {
  StreamState& stream = *task.stream;
  stream.producer = producer;
  stream.again = false;
  if (!stream.ended && stream.received() == 0) return {};
  const bool no_more = stream.ended || IsAbandoned(task);
  std::string resume;
  WireWriter out(resume);
  out.Struct(StreamResume{no_more ? StreamResume::kNoMore : stream.received(), stream.handed_out,
                          stream.lost.size()});
  for (const auto& [index, item] : stream.lost) out.Struct(index);
  return resume;
}

std::vector<ObjectId> TaskTable::UnheardItems(const TaskRecord& task) const {
  const StreamState& stream = *task.stream;
  std::vector<ObjectId> items;
  for (const auto& [index, item] : stream.lost) items.push_back(item->id);
  const uint64_t next = stream.ended ? StreamItemHead::kIndexedItems : stream.received();
  const uint64_t end = std::min(next + kUnheardItems, StreamItemHead::kIndexedItems);
  for (uint64_t index = next; index < end; ++index) items.push_back(ItemOf(IdOf(task), index));
  return items;
}

void TaskTable::OnStreamItem(ProcessId from, std::string_view body) {
  WireReader in(body);
  const auto* mapped = in.Struct<StreamItemHead>();
  if (mapped == nullptr) return;
  const StreamItemHead copied = *mapped;  // Once: the sender can still write there.
  const StreamItemHead* const head = &copied;
  TaskRecord* task = Find(head->cookie, head->task_sequence_bits);
  if (task == nullptr || !task->stream || task->attempt != head->attempt ||
      task->state != TaskState::kPushed) {
    RefuseItem(from, *head, in, true);
    return;
  }
  StreamState& stream = *task->stream;
  ObjectEntry* item = TakeItem(*task, *head);
  if (item == nullptr) {
    const bool wants_more = !stream.lost.empty() || (!stream.ended && !IsAbandoned(*task));
    RefuseItem(from, *head, in, stream.again || !wants_more);
    return;
  }
  if (head->stored_as != item->id) item->more().stored_as = head->stored_as;
  references_.AddUse(*item);
  std::vector<ObjectEntry*> nested;
  if (!FillReturn(*task, *item, in, from, &nested)) {
    references_.SetError(*item, {ErrorKind::kSystem, "a stream item does not parse", {}});
  }
  const bool may_be_lost = item->state == ObjectState::kStore &&
                           head->index < StreamItemHead::kIndexedItems &&
                           task->spec->spec.kind() == proto::TaskTemplate::TASK;
  item->task = may_be_lost ? task : nullptr;
  if (may_be_lost) stream.stored.emplace(head->index, item);
  if (head->transit != 0) ConfirmTransit(from, head->transit, nested);
  references_.DropUse(*item);
}

// The entry that waits for this item; nullptr: it is not wanted.
ObjectEntry* TaskTable::TakeItem(TaskRecord& task, const StreamItemHead& head) {
  StreamState& stream = *task.stream;
  if (const auto lost = stream.lost.extract(head.index)) return lost.mapped();
  if (stream.ended || head.index != stream.received() || IsAbandoned(task)) return nullptr;
  const bool indexed = head.index < StreamItemHead::kIndexedItems;
  ObjectEntry* item =
      references_.NewOwned(indexed ? ItemOf(IdOf(task), head.index)
                                   : ObjectId::Make(self_, references_.NextSequence(), 1));
  item->uses = 1;
  item->of_call = true;
  stream.items.push_back(item);
  return item;
}

void TaskTable::RefuseItem(ProcessId from, const StreamItemHead& head, WireReader& in, bool stop) {
  Channel& channel = transport_.To(from);
  const auto* value = in.Struct<ReturnHead>();
  if (value != nullptr && value->kind == ReturnKind::kStore && value->location.node == from.node &&
      head.index < StreamItemHead::kIndexedItems) {
    const ObjectName name{ItemOf({self_.packed(), head.task_sequence_bits}, head.index),
                          value->location};
    transport_.To(RayletOf(from.node)).Send(Lane::kControl, kStoreFree, AsBytes(name));
  }
  if (head.transit != 0) {
    channel.Send(Lane::kControl, FrameKind::kTransitDone,
                 AsBytes(TransitDone{head.transit, 0, 0, 0}));
  }
  if (stop) {
    channel.Send(Lane::kControl, FrameKind::kStreamAck,
                 AsBytes(StreamAck{head.task_sequence_bits, 0, 1}));
  }
}

TaskTable::StreamNext TaskTable::NextItem(ObjectEntry& entry, ObjectHandle* item) {
  TaskRecord* task = entry.task;
  if (task == nullptr || !task->stream) return StreamNext::kEnd;
  StreamState& stream = *task->stream;
  if (stream.items.empty()) return stream.ended ? StreamNext::kEnd : StreamNext::kPending;
  ObjectEntry* next = stream.items.front();
  stream.items.pop_front();
  ++stream.handed_out;
  *item = ObjectHandle(next);
  references_.DropUse(*next);
  const proto::TaskTemplate& spec = task->spec->spec;
  const bool bounded = spec.max_unconsumed() > 0 || spec.max_unconsumed_bytes() > 0;
  if (bounded && !stream.ended && task->state == TaskState::kPushed) {
    transport_.To(stream.producer)
        .Send(Lane::kControl, FrameKind::kStreamAck,
              AsBytes(StreamAck{task->sequence_bits, stream.handed_out, 0}));
  }
  return StreamNext::kItem;
}

void TaskTable::StreamAbandoned(ObjectEntry& entry) {
  TaskRecord* task = entry.task;
  if (task != nullptr && task->stream && !task->stream->ended && task->stream->lost.empty())
    StopProducer(*task);
}

void TaskTable::StopProducer(const TaskRecord& task) {
  // One that has not started does not hear it: its first item is answered with a stop.
  if (task.state != TaskState::kPushed) return;
  transport_.To(task.stream->producer)
      .Send(Lane::kControl, FrameKind::kStreamAck,
            AsBytes(StreamAck{task.sequence_bits, task.stream->handed_out, 1}));
}

// The last run is over, in `error` if it names one, after `yielded` items.
void TaskTable::EndStream(TaskRecord& task, Error error, uint64_t yielded) {
  StreamState& stream = *task.stream;
  const uint64_t promised = stream.ended ? stream.total : stream.received();
  const bool too_few = !stream.ended && !IsAbandoned(task) && yielded < promised;
  if (error.kind == ErrorKind::kNone && (too_few || !stream.lost.empty())) {
    error = task.cancelled ? Cancelled(task) : TooFewItems(Describe(task), yielded, promised);
  }
  if (!stream.ended) {
    stream.ended = true;
    stream.total = stream.received();
    if (error.kind != ErrorKind::kNone) {
      ObjectEntry* last =
          references_.NewOwned(ObjectId::Make(self_, references_.NextSequence(), 1));
      last->uses = 1;
      references_.SetError(*last, error);
      stream.items.push_back(last);
    }
    references_.SetValue(*task.first_return, {});
  }
  std::vector<ObjectEntry*> missing;
  for (const auto& [index, item] : std::exchange(stream.lost, {})) missing.push_back(item);
  for (ObjectEntry* item : missing) {
    item->task = nullptr;
    references_.AddUse(*item);
  }
  for (ObjectEntry* item : missing) references_.SetError(*item, error);
  references_.DropUses(missing);
}

// Kept until the stream's handle is dropped; what it runs on, while an item could be lost.
void TaskTable::CompleteStream(TaskRecord& task) {
  StreamState& stream = *task.stream;
  task.state = TaskState::kFinished;
  references_.DropUse(*task.first_return);
  if (!stream.stored.empty() && MayRunAgain(task)) return EnterLineage(task);
  for (const auto& [index, item] : std::exchange(stream.stored, {})) item->task = nullptr;
  DropArguments(task);
}

void TaskTable::ForgetRecipeOfStream(TaskRecord& task) {
  for (const auto& [index, item] : std::exchange(task.stream->stored, {})) {
    item->task = nullptr;
    item->recipe_evicted = true;
  }
  LeaveLineage(task);
  if (task.first_return == nullptr) Delete(&task);
}

void TaskTable::ReleaseOfStream(TaskRecord& task, ObjectEntry& entry) {
  StreamState& stream = *task.stream;
  if (&entry == task.first_return) {
    // Freeing one may come back here.
    for (ObjectEntry* item : std::exchange(stream.items, {})) references_.DropUse(*item);
    task.first_return = nullptr;
  } else {
    const uint64_t index = IndexOf(entry.id);
    stream.lost.erase(index);
    stream.stored.erase(index);
    if (task.state != TaskState::kFinished) return;
    if (stream.stored.empty() && task.lineage_bytes != 0) LeaveLineage(task);
  }
  if (task.first_return == nullptr && stream.stored.empty()) Delete(&task);
}

// All items whose last copy went.
void TaskTable::LoseItems(StreamState& stream) {
  std::vector<ObjectEntry*> gone;
  for (const auto& [index, item] : stream.stored) {
    const bool lost = item->state == ObjectState::kStore && !item->location.known();
    if (!lost && !item->released) continue;
    references_.AddUse(*item);
    gone.push_back(item);
    stream.lost.emplace(index, item);
  }
  for (ObjectEntry* item : gone) {
    stream.stored.erase(IndexOf(item->id));
    references_.SetPending(*item);
  }
  references_.DropUses(gone);
}

void TaskTable::LoseItemsOn(TaskRecord& task, NodeNumber node) {
  for (const auto& [index, item] : task.stream->stored) references_.DropCopy(*item, node);
  LoseItems(*task.stream);
}

// One run brings all items that are lost before it is pushed. One that is under way is called off:
// it may be past them, or wait until one of them is consumed.
bool TaskTable::ReconstructItem(TaskRecord& task, TaskDispatcher& dispatcher,
                                std::vector<ObjectEntry*>* before) {
  StreamState& stream = *task.stream;
  if (task.state == TaskState::kFinished) {
    if (task.lineage_bytes == 0 || !TakeRetry(task)) return false;
    TakeArgumentsBack(task, before);
    if (task.first_return == nullptr) {
      task.first_return = references_.NewOwned(ReturnOf(IdOf(task), 0));
      task.first_return->task = &task;
      task.first_return->stream = true;
      references_.SetValue(*task.first_return, {});
    }
    references_.AddUse(*task.first_return);
    LoseItems(stream);
    ++reconstructions_;
    Start(task, dispatcher);
    return true;
  }
  if (task.state == TaskState::kPushed && !stream.again) {
    if (task.cancelled || task.retries_left == 0) return false;
    if (task.retries_left > 0) --task.retries_left;
    stream.again = true;
    StopProducer(task);
  }
  LoseItems(stream);
  return true;
}

}  // namespace sheaf
