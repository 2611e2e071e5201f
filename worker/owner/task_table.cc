// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/task_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/messages.h"
#include "worker/limits.h"
#include "worker/owner/back_pressure.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr size_t kMostBytes = UINT32_MAX;  // Of one call.
constexpr char kNotComputed[] =
    "  At least one of the input arguments for this task could not be computed:\n";
constexpr size_t kMostLinkBytes = 4096;

}  // namespace

std::string EncodeError(const Error& error) {
  std::string out(8, '\0');
  const uint32_t head[2] = {static_cast<uint32_t>(error.kind),
                            static_cast<uint32_t>(error.message.size())};
  std::memcpy(out.data(), head, sizeof head);
  return absl::StrCat(out, error.message, error.payload);
}

Error DecodeError(std::string_view bytes) {
  uint32_t head[2];
  if (bytes.size() < sizeof head) return {ErrorKind::kSystem, "an error that does not parse", {}};
  std::memcpy(head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  const size_t message = std::min<size_t>(head[1], bytes.size());
  const auto kind = head[0] == 0 ? ErrorKind::kSystem : static_cast<ErrorKind>(head[0]);
  return {kind, std::string(bytes.substr(0, message)), std::string(bytes.substr(message))};
}

Error CancelledBeforeStart(std::string_view call) {
  return {
      ErrorKind::kTaskCancelled, std::string(call).append(" was cancelled before it started"), {}};
}

Error ArgumentFailed(const TaskRecord& call, Error error) {
  // Of a remote traceback, whose form log processors know, this call becomes the last part.
  if (error.kind != ErrorKind::kTaskFailed || !error.message.starts_with("ray::")) return error;
  // A long chain is not told link by link: its texts would take memory by the square of its length.
  const size_t links_end = error.message.rfind(kNotComputed);
  if (links_end == std::string::npos || links_end < kMostLinkBytes) {
    error.message =
        absl::StrCat("ray::", TaskTable::NameOf(call), "()\n", kNotComputed, error.message);
  }
  return error;
}

Error ConstructorFailed(const std::string& actor, Error error) {
  error.message = absl::StrCat("the constructor of the actor ", actor, " failed: ", error.message);
  if (error.kind != ErrorKind::kEnvironmentFailed) error.kind = ErrorKind::kActorDied;
  return error;
}

TaskTable::TaskTable(ProcessId self, Clock& clock, Transport& transport, ReferenceTable& references)
    : self_(self), clock_(clock), transport_(transport), references_(references) {}

TaskRecord* TaskTable::Add(const TemplateRecord& spec, InlineBytes arguments,
                           std::unique_ptr<TaskReferences> references, const CallOrigin& parent) {
  TaskRecord* task = tasks_.New();
  task->sequence_bits = references_.NextSequence() << 16;
  const TemplateRecord& record = spec.base ? *spec.base : spec;
  ++record.calls;
  task->spec = &record;
  task->bytes = static_cast<uint32_t>(std::min(kCallBytes + arguments.size(), kMostBytes));
  task->arguments = std::move(arguments);
  task->references = std::move(references);
  if (spec.base) {
    if (!task->references) task->references = std::make_unique<TaskReferences>();
    task->references->name = spec.name;
  }
  task->parent = parent.task;
  task->parent_tag = TagOf(parent.task, parent.attempt);
  if (parent.trace.is_set()) [[unlikely]] {
    if (!task->references) task->references = std::make_unique<TaskReferences>();
    task->references->trace = parent.trace;
  }
  task->created_ms = clock_.CoarseUnixMs();
  task->retries_left = record.spec.max_retries();
  const TaskId id = IdOf(*task);
  const uint32_t returns = std::max<uint32_t>(1, record.spec.num_returns());
  for (uint32_t i = 0; i < returns; ++i) {
    ObjectEntry* entry = references_.NewOwned(ReturnOf(id, static_cast<uint16_t>(i)));
    entry->task = task;
    entry->uses = 1;
    entry->of_call = true;
    if (i == 0) {
      task->first_return = entry;
    } else {
      if (!task->references) task->references = std::make_unique<TaskReferences>();
      task->references->more_returns.push_back(entry);
    }
  }
  if (record.spec.streaming()) {
    task->stream = std::make_unique<StreamState>();
    task->first_return->stream = true;
  }
  if (++CountsOf(*task).submitted % kSampled == 0 && latency_ &&
      record.spec.kind() != proto::TaskTemplate::ACTOR_CREATION) {
    task->sampled = true;
    sampled_[task->cookie] = clock_.Now();
  }
  return task;
}

void TaskTable::Start(TaskRecord& task, TaskDispatcher& dispatcher) {
  task.unresolved = 0;
  if (task.references) {
    for (auto& argument : task.references->arguments) {
      if (argument.object->ready()) continue;
      ++task.unresolved;
      argument.object->more().on_ready.push_back(
          [this, &dispatcher, cookie = task.cookie, bits = task.sequence_bits](ObjectEntry&) {
            TaskRecord* waiting = Find(cookie, bits);
            if (waiting == nullptr || waiting->state != TaskState::kWaitingForArguments) return;
            if (--waiting->unresolved == 0) dispatcher.OnArgumentsReady(*waiting);
          });
    }
  }
  task.state = TaskState::kWaitingForArguments;
  if (task.unresolved == 0) dispatcher.OnArgumentsReady(task);
}

TaskRecord* TaskTable::Find(uint32_t cookie, uint64_t sequence_bits) {
  TaskRecord* task = tasks_.Find(cookie);
  return task != nullptr && task->sequence_bits == sequence_bits ? task : nullptr;
}

void TaskTable::Push(TaskRecord& task, Peer& peer, uint64_t lease, uint64_t push) {
  const uint32_t number = task.spec->spec.number();
  if (number >= peer.templates_sent.size()) peer.templates_sent.resize(number + 1);
  if (!peer.templates_sent[number]) {
    peer.templates_sent[number] = true;
    peer.channel->Send(Lane::kWork, FrameKind::kTemplate, task.spec->wire);
  }
  PushTaskHead head{};
  head.task_sequence_bits = task.sequence_bits;
  head.lease = lease;
  head.push = push;
  head.cookie = task.cookie;
  head.template_number = number;
  head.attempt = task.attempt;
  head.argument_bytes = static_cast<uint32_t>(task.arguments.size());
  head.parent_sequence_bits = task.parent.sequence_bits;
  head.parent_tag = task.parent_tag;
  head.created_ms = task.created_ms;
  if (!references_.HasRoomFor(kInlineValue)) [[unlikely]]
    head.flags |= kResultsToStore;
  task.state = TaskState::kPushed;
  task.push = push;
  ++pushes_;
  if (!task.references && !task.stream) [[likely]] {
    peer.channel->Send(Lane::kWork, FrameKind::kPushTask, AsBytes(head), task.arguments);
    return;
  }
  std::string resume;
  if (task.stream) resume = BeginRun(task, peer.process);
  if (!resume.empty()) head.flags |= kStreamResumes;
  if (task.has_own_name()) {
    head.flags |= kNamed;
    WireWriter out(resume);
    out.Struct(CallName{task.references->name.size()});
    out.Bytes(task.references->name);
  }
  if (task.is_traced()) {
    head.flags |= kTraced;
    WireWriter(resume).Struct(task.references->trace);
  }
  const std::string body = ResolvedBody(task, head);
  task.bytes =
      std::max(task.bytes, static_cast<uint32_t>(std::min(kCallBytes + body.size(), kMostBytes)));
  peer.channel->Send(Lane::kWork, FrameKind::kPushTask, body, resume);
}

std::string TaskTable::ResolvedBody(const TaskRecord& task, const PushTaskHead& head) {
  std::string body(sizeof head, '\0');
  WireWriter out(body);
  size_t copied = 0;
  const std::string_view arguments = task.arguments;
  std::vector<NestedReference> nested;
  static const TaskReferences kNone;
  const TaskReferences& references = task.references ? *task.references : kNone;
  size_t inline_left = kInlineSum;
  for (const auto& argument : references.arguments) {
    body.append(arguments.substr(copied, argument.position - copied));
    ObjectEntry& object = *argument.object;
    if (object.state == ObjectState::kValue && object.value.size() <= inline_left) {
      inline_left -= object.value.size();
      out.Struct(ArgumentHead{ArgumentKind::kValue, static_cast<uint32_t>(object.value.size())});
      out.Bytes(object.value);
      if (object.extra) {
        for (ObjectEntry* inner : object.extra->nested)
          nested.push_back(references_.Outgoing(*inner));
      }
    } else {
      // Should it be missing there, the executor asks for it by name. A value that is one too many
      // for a frame goes to the store now, if that has room.
      references_.Outgoing(object);
      const ObjectId stored =
          object.extra && !object.extra->stored_as.is_nil() ? object.extra->stored_as : object.id;
      out.Struct(ArgumentHead{argument.packed ? ArgumentKind::kPack : ArgumentKind::kStore,
                              sizeof(StoreArgument)});
      out.Struct(StoreArgument{stored, object.location, object.size});
    }
    copied = argument.position + sizeof(ArgumentHead);
  }
  body.append(arguments.substr(copied));
  PushTaskHead resolved = head;
  resolved.argument_bytes = static_cast<uint32_t>(body.size() - sizeof head);
  for (ObjectEntry* inner : references.nested) nested.push_back(references_.Outgoing(*inner));
  for (const NestedReference& reference : nested) out.Struct(reference);
  resolved.nested_count = static_cast<uint32_t>(nested.size());
  std::memcpy(body.data(), &resolved, sizeof resolved);
  return body;
}

TaskTable::Reply TaskTable::ParseReply(std::string_view body) {
  const auto* head = FrameHead<TaskReplyHead>(body);
  if (head == nullptr) return {};
  TaskRecord* task = Find(head->cookie, head->task_sequence_bits);
  if (task == nullptr || task->attempt != head->attempt || task->state != TaskState::kPushed)
    return {};
  return {task, head, body.substr(sizeof *head)};
}

bool TaskTable::FillReturn(TaskRecord& task, ObjectEntry& entry, WireReader& in, ProcessId from,
                           std::vector<ObjectEntry*>* nested) {
  const auto* mapped = in.Struct<ReturnHead>();
  if (mapped == nullptr) return false;
  const ReturnHead copied = *mapped;  // Once: the sender can still write there.
  const ReturnHead* const head = &copied;
  const std::string_view bytes = in.Bytes(head->bytes);
  const auto* listed = in.Structs<NestedReference>(head->nested_count);
  if (in.failed()) return false;
  std::vector<ObjectEntry*> inner;
  if (head->nested_count != 0) {
    inner = references_.IncomingAll({listed, head->nested_count});
    nested->insert(nested->end(), inner.begin(), inner.end());
  }
  switch (head->kind) {
    case ReturnKind::kValue:
      references_.SetValue(entry, bytes, std::move(inner));
      return true;
    case ReturnKind::kStore:
      if (entry.ready()) {  // Another result of its call was lost.
        references_.SetStoredAgain(entry, head->location, head->size, std::move(inner));
      } else {
        references_.SetStored(entry, head->location, head->size, std::move(inner));
      }
      return true;
    case ReturnKind::kError:
      references_.SetError(entry, DecodeError(bytes));
      return true;
  }
  references_.SetError(entry, {ErrorKind::kSystem,
                               absl::StrCat("process ", from.ToString(), " answered ",
                                            Describe(task), " with something unknown"),
                               {}});
  return true;
}

TaskTable::Outcome TaskTable::Finish(const Reply& reply, ProcessId from) {
  TaskRecord& task = *reply.task;
  const TaskReplyHead& head = *reply.head;
  if (task.stream && (task.stream->again || IsAbandoned(task))) {
    // It may have been stopped between making an item and sending it.
    FreeUnheardOf(task, from.node);
    if (task.stream->again && TakeRetry(task)) return Outcome::kRetry;
  }
  if (head.status == ReplyStatus::kFailedRetriable) {
    // The next attempt may run on another node, where it replaces nothing.
    if (from.node != self_.node) FreeUnheardOf(task, from.node);
    if (TakeRetry(task)) return Outcome::kRetry;
  }
  if (head.keeps_arguments != 0 && task.references) KeepArguments(task, from);
  WireReader in(reply.rest);
  if (head.status != ReplyStatus::kDone) {
    const auto* failed = in.Struct<ReturnHead>();
    const std::string_view bytes = failed == nullptr ? std::string_view{} : in.Bytes(failed->bytes);
    const Error error = DecodeError(bytes);
    Fail(task, task.cancelled && error.kind == ErrorKind::kTaskFailed ? Cancelled(task) : error,
         /*known=*/true);
    return Outcome::kFinished;
  }
  std::vector<ObjectEntry*> nested;
  bool good = true;
  if (task.stream) {
    EndStream(task, {}, head.stream_items);
  } else {
    good = FillReturn(task, *task.first_return, in, from, &nested);
    if (task.references) {
      for (ObjectEntry* more : task.references->more_returns) {
        good = good && FillReturn(task, *more, in, from, &nested);
      }
    }
  }
  if (head.transit != 0) ConfirmTransit(from, head.transit, nested);
  if (!good) {
    Fail(task, {ErrorKind::kSystem,
                absl::StrCat("the answer of process ", from.ToString(), " to ", Describe(task),
                             " does not parse"),
                {}});
    return Outcome::kFinished;
  }
  ++CountsOf(task).finished;
  Complete(task);
  return Outcome::kFinished;
}

// `executor` holds on to references of the arguments; they stay until it is known as a borrower.
void TaskTable::KeepArguments(const TaskRecord& task, ProcessId executor) {
  std::vector<ObjectEntry*> held = task.references->nested;
  for (const auto& argument : task.references->arguments) held.push_back(argument.object);
  for (ObjectEntry* object : held) references_.AddUse(*object);
  references_.DropUses(std::exchange(kept_[executor][task.sequence_bits], std::move(held)));
}

void TaskTable::ConfirmTransit(ProcessId to, uint64_t transit,
                               const std::vector<ObjectEntry*>& nested) {
  references_.AfterRegistered(nested, [this, to, transit] {
    transport_.To(to).Send(Lane::kControl, FrameKind::kTransitDone,
                           AsBytes(TransitDone{transit, 0, 0, 0}));
  });
}

void TaskTable::OnTransitDone(ProcessId from, std::string_view body) {
  const auto* done = FrameHead<TransitDone>(body);
  if (done == nullptr || done->transit != 0) return;
  const auto of_executor = kept_.find(from);
  if (of_executor == kept_.end()) return;
  if (auto kept = of_executor->second.extract(done->task_sequence_bits))
    references_.DropUses(kept.mapped());
  if (of_executor->second.empty()) kept_.erase(of_executor);
}

void TaskTable::FreeUnheardOf(const TaskRecord& task, NodeNumber node) {
  const ObjectLocation up_to{.node = node, .attempt = task.attempt};
  std::vector<ObjectName> names;
  if (task.stream) {
    for (const ObjectId item : UnheardItems(task)) names.push_back({item, up_to});
  } else {
    names.push_back({task.first_return->id, up_to});
  }
  if (task.references) {
    for (const ObjectEntry* more : task.references->more_returns)
      names.push_back({more->id, up_to});
  }
  for (std::span<const ObjectName> rest = names; !rest.empty();) {
    const auto batch = rest.first(std::min(rest.size(), kMaxStoreItems));
    transport_.To(RayletOf(node)).Send(Lane::kControl, kStoreFree, ItemsAsBytes(batch));
    rest = rest.subspan(batch.size());
  }
}

void TaskTable::FailStarted(TaskRecord& task, const Error& error, NodeNumber node) {
  FreeUnheardOf(task, node);
  Fail(task, error);
}

namespace {

// `events` may be null.
void RecordFailure(telemetry::EventWriter* events, const TaskRecord& task, TaskId id,
                   const Error& error, Nanos now) {
  if (events == nullptr) return;
  telemetry::TaskEvent event;
  event.task = id;
  event.begin = event.end = now;
  event.parent_sequence = task.parent.sequence_bits;
  event.parent_tag = task.parent_tag;
  event.created_ms = task.created_ms;
  event.attempt = static_cast<uint16_t>(task.attempt);
  event.error = error.kind;
  event.outcome = error.kind == ErrorKind::kTaskCancelled ? telemetry::Outcome::kCancelled
                                                          : telemetry::Outcome::kFailed;
  event.function =
      events->FunctionOf(TaskTable::NameOf(task), telemetry::CallKindOf(task.spec->spec.kind()));
  events->RecordFailure(event, error.message,
                        task.is_traced() ? task.references->trace : TraceContext());
}

}  // namespace

void TaskTable::Fail(TaskRecord& task, const Error& error, bool known) {
  // An actor whose constructor has run ends some day: that is no failure of the constructor.
  const bool finished = task.state == TaskState::kFinished;
  if (!known && !finished) RecordFailure(events_, task, IdOf(task), error, clock_.Now());
  if (task.stream) EndStream(task, error, 0);
  references_.SetError(*task.first_return, error);
  if (task.references) {
    for (ObjectEntry* more : task.references->more_returns) references_.SetError(*more, error);
  }
  TaskCounts& counts = CountsOf(task);
  ++(finished                                  ? counts.finished
     : error.kind == ErrorKind::kTaskCancelled ? counts.cancelled
                                               : counts.failed);
  Complete(task);
}

// The results are in. What could be lost with the store keeps its lineage; everything else is let
// go.
void TaskTable::Complete(TaskRecord& task) {
  if (task.sampled) {
    task.sampled = false;
    auto submitted = sampled_.extract(task.cookie);
    (*latency_)[task.spec->spec.kind() == proto::TaskTemplate::ACTOR_METHOD].ObserveUnderLock(
        clock_.Now() - submitted.mapped());
  }
  if (task.stream) return CompleteStream(task);
  std::vector<ObjectEntry*> more;
  bool in_store = task.first_return->state == ObjectState::kStore;
  if (task.references) {
    more = std::exchange(task.references->more_returns, {});
    for (ObjectEntry* entry : more) in_store |= entry->state == ObjectState::kStore;
  }
  ObjectEntry* first = task.first_return;
  if (in_store && MayRunAgain(task)) {
    task.state = TaskState::kFinished;
    if (task.references) task.references->more_returns = more;
    references_.DropUse(*first);
    references_.DropUses(more);
    EnterLineage(task);
    return;
  }
  first->task = nullptr;
  for (ObjectEntry* entry : more) entry->task = nullptr;
  DropArguments(task);
  Delete(&task);
  references_.DropUse(*first);
  references_.DropUses(more);
}

bool TaskTable::TakeRetry(TaskRecord& task, const Error* unrecorded) {
  if (task.cancelled) return false;
  const bool is_free = task.given_up || (task.stream && task.stream->again);
  task.given_up = false;
  if (!is_free) {
    if (task.retries_left == 0) return false;
    if (task.retries_left > 0) --task.retries_left;
  }
  if (unrecorded != nullptr) RecordFailure(events_, task, IdOf(task), *unrecorded, clock_.Now());
  ++task.attempt;
  ++CountsOf(task).retried;
  return true;
}

void TaskTable::ProcessDied(ProcessId process) {
  const auto kept = kept_.extract(process);
  if (!kept) return;
  for (const auto& [bits, references] : kept.mapped()) references_.DropUses(references);
}

std::string TaskTable::Describe(const TaskRecord& task) const {
  return absl::StrCat(NameOf(task), " (task ", IdOf(task).ToHex(), ")");
}

Error TaskTable::Cancelled(const TaskRecord& task) const {
  return {ErrorKind::kTaskCancelled, absl::StrCat(Describe(task), " was cancelled"), {}};
}

}  // namespace sheaf
