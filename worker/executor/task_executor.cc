// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/executor/task_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "object_store/messages.h"
#include "worker/owner/task_table.h"

namespace sheaf {
namespace {

constexpr uint32_t kMaxTemplates = 1 << 20;  // Of one sender.
constexpr size_t kRememberedCancels = 4096;
constexpr size_t kSpareCalls = 1024;
constexpr uint32_t kAsyncConcurrency = 1000;

}  // namespace

TaskExecutor::TaskExecutor(ProcessId self, Clock& clock, Transport& transport,
                           ReferenceTable& references, TransitTable& transits, ExecutionHost& host,
                           ProcessPage* page, metrics::Page& metrics, const BackPressure& limits)
    : self_(self),
      clock_(clock),
      transport_(transport),
      references_(references),
      transits_(transits),
      host_(host),
      page_(page),
      started_(page),
      events_(self, clock),
      holds_(self, clock, transport),
      limits_(limits),
      tasks_executed_(metrics, metrics::CounterId::kTasksExecuted),
      calls_executed_(metrics, metrics::CounterId::kActorCallsExecuted),
      run_time_(metrics, metrics::HistogramId::kTaskRunTime) {
  groups_.push_back(std::make_unique<ConcurrencyGroup>());
}

TaskExecutor::~TaskExecutor() {
  closing_ = true;
  for (CallExecution* call : std::exchange(ended_, {})) delete call;
}

TaskExecutor::Templates& TaskExecutor::TemplatesOf(ProcessId sender) {
  if (last_templates_ == nullptr || last_sender_ != sender) {
    std::unique_ptr<Templates>& list = templates_[sender];
    if (!list) list = std::make_unique<Templates>();
    last_sender_ = sender;
    last_templates_ = list.get();
  }
  return *last_templates_;
}

void TaskExecutor::Recycle(CallExecution* call) {
  std::unique_ptr<CallExecution> spare(call);
  if (call->ahead_bytes != 0) [[unlikely]]
    EndAhead(*call, nullptr);
  const uint64_t ticket = call->hold_ticket;
  const uint64_t unasked = call->unasked_bytes;
  if (spare_.size() < kSpareCalls) {
    spare->Clear();
    spare_.push_back(std::move(spare));
  }
  spare.reset();
  // Its pins are gone.
  if ((ticket | unasked) != 0) [[unlikely]]
    holds_.End(ticket, unasked);
}

void TaskExecutor::OnTemplate(ProcessId from, std::string_view body) {
  auto spec = std::make_shared<proto::TaskTemplate>();
  if (!spec->ParseFromArray(body.data(), static_cast<int>(body.size())) ||
      spec->number() >= kMaxTemplates)
    return;
  Templates& list = TemplatesOf(from);
  if (spec->number() >= list.size()) list.resize(spec->number() + 1);
  if (spec->gone()) {
    list[spec->number()] = {};  // Calls that came before hold it.
  } else {
    KnownTemplate& known = list[spec->number()];
    known.function = events_.FunctionOf(spec->name(), *spec);
    known.spec = std::move(spec);
  }
}

void TaskExecutor::OnPush(ProcessId from, std::string_view body) {
  const auto* head = FrameHead<PushTaskHead>(body);
  if (head == nullptr) return;
  if (head->lease > lease_.lease() && !from.is_raylet()) {
    early_.emplace_back(from, std::string(body));  // Its begin comes on the raylet's ring.
    return;
  }
  const uint64_t push = head->lease == lease_.lease() ? head->push : 0;
  Accept(from, *head, body);
  last_push_ = std::max(last_push_, push);
  if (take_back_until_ != 0 && push >= take_back_until_) {
    take_back_until_ = 0;
    if (running_ != nullptr) ReturnQueued(default_group());
  }
}

void TaskExecutor::Accept(ProcessId from, const PushTaskHead& head, std::string_view body) {
  KnownTemplate known;
  std::shared_ptr<const proto::TaskTemplate>& spec = known.spec;
  if ((head.flags & kTemplateInline) != 0) {
    const size_t offset =
        sizeof head + head.argument_bytes + size_t{head.nested_count} * sizeof(NestedReference);
    auto parsed = std::make_shared<proto::TaskTemplate>();
    if (offset > body.size() ||
        !parsed->ParseFromArray(body.data() + offset, static_cast<int>(body.size() - offset)))
      return;
    known.function = events_.FunctionOf(parsed->name(), *parsed);
    spec = std::move(parsed);
  } else {
    const Templates& list = TemplatesOf(from);
    if (head.template_number < list.size()) known = list[head.template_number];
  }
  const bool unknown = spec == nullptr;
  if (unknown) {
    static const auto& nothing = *new auto(std::make_shared<const proto::TaskTemplate>());
    spec = nothing;
  }
  if (spare_.empty()) spare_.push_back(std::make_unique<CallExecution>(host_));
  std::shared_ptr<CallExecution> call = spare_.back().release()->Share();
  spare_.pop_back();
  call->function = known.function;
  if (!call->Begin(from, std::move(spec), body)) {
    call->Fail({ErrorKind::kSystem,
                "the call did not parse; caller and worker may be of different builds",
                {}},
               false);
    return;  // Its end sends the reply.
  }
  if (unknown) {
    call->Fail({ErrorKind::kSystem,
                absl::StrCat("the call names template ", head.template_number,
                             " of its caller, which did not reach process ", self_.ToString()),
                {}},
               false);
    return;
  }
  // Callers of a detached actor know no lease; its process is its own for life.
  const bool any_lease =
      from.is_raylet() ||
      (head.lease == 0 && call->spec().kind() == proto::TaskTemplate::ACTOR_METHOD);
  if (head.lease != accepts_ && !any_lease) {
    Bounce(*call);
    return;
  }
  call->held = references_.IncomingAll(call->nested_references());
  if (call->has_store_arguments()) [[unlikely]]
    FetchAhead(*call);
  if (!cancelled_.empty() && cancelled_.contains(call->task())) [[unlikely]] {
    call->Fail(CancelledBeforeStart(call->name()), false);
    return;
  }
  Enqueue(std::move(call));
}

// What lies on other nodes comes while the call waits for its turn: of the first calls in the
// queue, as much as is little of the store. More would only drive out what others need now.
void TaskExecutor::FetchAhead(CallExecution& call) {
  std::string wanted;
  uint64_t bytes = 0;
  for (const StoreArgument* argument : call.store_arguments()) {
    if (argument->location.known() && argument->location.node != self_.node) {
      wanted.append(AsBytes(FetchWanted{argument->id, argument->location, argument->size}));
      bytes += std::min(argument->size, UINT64_MAX - bytes);
    }
  }
  if (wanted.empty()) return;
  call.waits_ahead = bytes > most_ahead_ - ahead_bytes_;
  if (call.waits_ahead) return;
  call.ahead_bytes = bytes;
  ahead_bytes_ += bytes;
  transport_.To(RayletOf(self_.node)).Send(Lane::kControl, kStoreFetch, wanted);
}

// The call starts, or will not. The next may have its turn to be fetched for.
void TaskExecutor::EndAhead(CallExecution& call, ConcurrencyGroup* group) {
  ahead_bytes_ -= std::exchange(call.ahead_bytes, 0);
  if (group == nullptr || group->queue.empty()) return;
  CallExecution& next = *group->queue.front();
  if (next.waits_ahead) FetchAhead(next);
}

void TaskExecutor::Enqueue(std::shared_ptr<CallExecution> call) {
  const proto::TaskTemplate::Kind kind = call->spec().kind();
  if (kind == proto::TaskTemplate::ACTOR_CREATION) {
    BecomeActor(call->spec());
    const TaskId task = call->task();
    actor_id_ = lease_.spec().actor_id().empty()
                    ? ActorId{task.maker_bits, task.sequence_bits}
                    : ActorId::FromBinary(lease_.spec().actor_id())
                          .value_or(ActorId{task.maker_bits, task.sequence_bits});
    call->actor_id = actor_id_;
    events_.OnActor(actor_id_);
    default_group().queue.push_front(std::move(call));
    return;
  }
  call->actor_id = actor_id_;
  if (kind == proto::TaskTemplate::ACTOR_METHOD && !constructed_) {
    before_construction_.push_back(std::move(call));
    return;
  }
  if (kind == proto::TaskTemplate::TASK && blocked_) {
    Bounce(*call);
    return;
  }
  EnqueueInGroup(std::move(call));
}

void TaskExecutor::BecomeActor(const proto::TaskTemplate& creation) {
  const proto::ActorOptions& options = creation.actor();
  is_actor_ = true;
  is_async_ = options.is_async();
  default_group().limit = options.max_concurrency() != 0 ? options.max_concurrency()
                          : is_async_                    ? kAsyncConcurrency
                                                         : 1;
  for (const proto::ConcurrencyGroup& group : options.groups()) {
    auto made = std::make_unique<ConcurrencyGroup>();
    made->name = group.name();
    made->limit = std::max<uint32_t>(1, group.max_concurrency());
    groups_.push_back(std::move(made));
  }
  groups_changed_ = true;
}

void TaskExecutor::CountConstructed(const Error& failure) {
  constructed_ = failure.kind == ErrorKind::kNone;
  auto waiting = std::exchange(before_construction_, {});
  for (auto& call : waiting) {
    if (constructed_) {
      EnqueueInGroup(std::move(call));
    } else {
      call->Fail(failure, false);
    }
  }
}

void TaskExecutor::RefuseCalls(Error why) {
  refusal_ = std::move(why);
  for (auto& group : groups_) {
    for (const auto& call : std::exchange(group->queue, {})) call->Fail(*refusal_, false);
  }
}

void TaskExecutor::EnqueueInGroup(std::shared_ptr<CallExecution> call) {
  if (refusal_) [[unlikely]]
    return call->Fail(*refusal_, false);
  const std::string& name = call->spec().concurrency_group();
  ConcurrencyGroup* wanted = name.empty() ? &default_group() : nullptr;
  std::string known;
  for (auto& group : groups_) {
    if (wanted != nullptr) break;
    if (group->name == name) wanted = group.get();
    if (!group->name.empty()) absl::StrAppend(&known, known.empty() ? "" : ", ", group->name);
  }
  if (wanted != nullptr) [[likely]] {
    wanted->queue.push_back(std::move(call));
    return;
  }
  call->Fail({ErrorKind::kInvalidArgument,
              absl::StrCat(std::string(call->name()), ": the actor has no concurrency group '",
                           name, "'; ",
                           known.empty() ? "it has none (concurrency_groups={...} makes some)"
                                         : absl::StrCat("it has ", known)),
              {}},
             false);
}

void TaskExecutor::OnLeaseBegin(const proto::LeaseBegin& begin) {
  lease_ = begin;
  accepts_ = begin.lease();
  last_push_ = take_back_until_ = 0;
  returning_ = false;
  auto early = std::exchange(early_, {});
  for (auto& [from, body] : early) OnPush(from, body);
}

void TaskExecutor::OnLeaseEnd(const proto::LeaseEnd& end) {
  if (end.lease() != lease_.lease()) return;
  accepts_ = 0;
  returning_ = false;
  ReturnQueued(default_group());
}

bool TaskExecutor::OnLeaseRevoke(LeaseNumber lease) {
  if (lease != lease_.lease() || lease == 0) return false;
  if (is_actor_ || accepts_ == 0) return true;
  accepts_ = 0;
  ReturnQueued(default_group());
  returning_ = true;
  ReturnLeaseIfIdle();
  return true;
}

void TaskExecutor::ReturnLeaseIfIdle() {
  if (running_ != nullptr) return;
  returning_ = false;
  proto::LeaseReturn message;
  message.set_lease(lease_.lease());
  message.set_discard_worker(counts_calls_);  // Only its owner has counted them.
  SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kLeaseReturn, message);
}

void TaskExecutor::Bounce(const CallExecution& call) {
  const PushTaskHead& head = call.head();
  transport_.To(call.owner)
      .Send(Lane::kControl, FrameKind::kTaskReturned,
            AsBytes(TaskReturned{head.task_sequence_bits, head.push, head.cookie, head.attempt}));
  const_cast<CallExecution&>(call).discarded = true;
}

void TaskExecutor::ReturnQueued(ConcurrencyGroup& group) {
  // Newest first: owners put each back at the front of their queue.
  while (!group.queue.empty()) {
    Bounce(*group.queue.back());
    group.queue.pop_back();
  }
}

void TaskExecutor::OnTakeBack(ProcessId from, const TakeBack& take_back) {
  if (is_actor_ || take_back.lease != lease_.lease() || from.packed() != lease_.owner()) return;
  // Where it has overtaken some of them, all go back together, in their order; unless it comes again.
  if (take_back.until > last_push_ && take_back_until_ == 0) {
    take_back_until_ = take_back.until;
  } else {
    ReturnQueued(default_group());
  }
}

void TaskExecutor::SetBlocked(bool blocked) {
  blocked_ = blocked;
  if (blocked && !is_actor_) ReturnQueued(default_group());
}

CallExecution* TaskExecutor::FindRunning(ProcessId owner, TaskId task) {
  for (CallExecution* call = running_; call != nullptr; call = call->next_running) {
    if (call->task() == task && call->owner == owner) return call;
  }
  return nullptr;
}

bool TaskExecutor::OnCancel(ProcessId from, TaskId task, bool running) {
  if (CallExecution* call = FindRunning(from, task)) {
    if (!running) return false;
    call->cancel_requested.store(true, std::memory_order_relaxed);
    return true;
  }
  auto cancel_in = [&](std::deque<std::shared_ptr<CallExecution>>& queue) {
    for (auto call = queue.begin(); call != queue.end(); ++call) {
      if ((*call)->task() != task || (*call)->owner != from) continue;
      (*call)->Fail(CancelledBeforeStart((*call)->name()), false);
      queue.erase(call);
      return true;
    }
    return false;
  };
  for (auto& group : groups_) {
    if (cancel_in(group->queue)) return false;
  }
  if (cancel_in(before_construction_)) return false;
  if (cancelled_.insert(task).second) {
    cancelled_order_.push_back(task);
    if (cancelled_order_.size() > kRememberedCancels) {
      cancelled_.erase(cancelled_order_.front());
      cancelled_order_.pop_front();
    }
  }
  return false;
}

void TaskExecutor::OnStreamAck(ProcessId from, const StreamAck& ack) {
  if (CallExecution* call = FindRunning(from, TaskId{from.packed(), ack.task_sequence_bits})) {
    call->NoteConsumed(ack.consumed);
    if (ack.stop != 0) call->stream_stopped.store(true, std::memory_order_relaxed);
  }
}

void TaskExecutor::OnProcessDied(ProcessId process) {
  NoteOwner(process, false);
  started_.Forget(process);
  templates_.erase(process);
  last_templates_ = nullptr;
  std::erase_if(early_, [&](const auto& early) { return early.first == process; });
  auto drop = [&](std::deque<std::shared_ptr<CallExecution>>& queue) {
    for (auto& call : queue) {
      if (call->owner == process) call->discarded = true;
    }
    std::erase_if(queue, [&](const auto& call) { return call->owner == process; });
  };
  for (auto& group : groups_) drop(group->queue);
  drop(before_construction_);
  for (CallExecution* call = running_; call != nullptr; call = call->next_running) {
    if (call->owner != process) continue;
    call->discarded = true;
    call->stream_stopped = true;
    call->cancel_requested.store(true, std::memory_order_relaxed);
  }
}

std::shared_ptr<CallExecution> TaskExecutor::Take(ConcurrencyGroup& group) {
  if (!HasWork(group)) return nullptr;
  std::shared_ptr<CallExecution> call = std::move(group.queue.front());
  group.queue.pop_front();
  ++group.running;
  call->group = &group;
  call->next_running = running_;
  if (running_ != nullptr) running_->previous_running = call.get();
  running_ = call.get();
  // Before user code: after a death only what stands here counts as tried.
  const PushTaskHead& head = call->head();
  // Callers of a detached actor know none.
  const uint64_t lease = head.lease != 0 ? head.lease : lease_.lease();
  started_.Add(lease, call->owner, head.push, is_actor_);
  if (named_ != &call->spec() || call->has_own_name()) {
    named_ = call->has_own_name() ? nullptr : &call->spec();
    counts_calls_ = call->spec().max_calls() != 0;
    const std::string_view name = call->name();
    const size_t length = std::min(name.size(), sizeof page_->running - 1);
    std::memcpy(page_->running, name.data(), length);
    page_->running[length] = '\0';
  }
  if (call->has_store_arguments()) [[unlikely]]
    EndAhead(*call, &group);
  // Only of tasks: owners judge by it how much to give a worker ahead.
  if (call->spec().kind() == proto::TaskTemplate::TASK) call->started = clock_.Now();
  events_.OnStart(*call);
  return call;
}

size_t TaskExecutor::queued() const {
  size_t queued = early_.size() + before_construction_.size();
  for (const auto& group : groups_) queued += group->queue.size();
  return queued;
}

}  // namespace sheaf
