// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/owner/task_submitter.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/describe_death.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

constexpr int kMemoryRetries = 3;  // A task whose worker the memory watch killed.
constexpr Nanos kFirstBackoff = 100 * kMillisecond;
constexpr Nanos kLastBackoff = 2 * kSecond;

}  // namespace

TaskSubmitter::TaskSubmitter(ProcessId self, Transport& transport, TaskTable& tasks,
                             PeerTable& peers, const BackPressure& limits)
    : self_(self), transport_(transport), tasks_(tasks), peers_(peers), limits_(limits) {}

LeaseKey& TaskSubmitter::KeyOf(const TemplateRecord& spec) {
  if (spec.key != nullptr) return *spec.key;
  proto::LeaseSpec lease = spec.spec.lease();
  // Tasks of several functions share leases, but where the calls of one are counted.
  const uint32_t max_calls = spec.spec.max_calls();
  if (max_calls == 0) lease.clear_name();
  std::unique_ptr<LeaseKey>& key = keys_[absl::StrCat(max_calls, " ", lease.SerializeAsString())];
  if (!key) {
    key = std::make_unique<LeaseKey>();
    key->number = next_key_++;
    key->max_calls = max_calls;
    key->spec = spec.spec.lease();
    by_number_[key->number] = key.get();
  }
  spec.key = key.get();
  ++key->templates;
  return *key;
}

void TaskSubmitter::ForgetUnusedKeys() {
  absl::erase_if(keys_, [this](const auto& entry) {
    const LeaseKey& key = *entry.second;
    // Without a wish at the raylet nothing can come for it.
    if (key.templates != 0 || !key.queue.empty() || !key.leases.empty() || key.wanted_sent != 0)
      return false;
    proto::LeaseDemand none;
    none.set_key(key.number);
    *none.mutable_spec() = key.spec;
    if (key.announced)
      SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kLeaseDemand, none);
    by_number_.erase(key.number);
    return true;
  });
}

void TaskSubmitter::Submit(TaskRecord& task) { tasks_.Start(task, *this); }

void TaskSubmitter::OnArgumentsReady(TaskRecord& task) {
  if (task.references) {
    for (const auto& argument : task.references->arguments) {
      if (argument.object->state != ObjectState::kError) continue;
      // Copied: failing the task may free the object.
      const Error error = ArgumentFailed(task, argument.object->extra->error);
      tasks_.Fail(task, error);
      return;
    }
  }
  LeaseKey& key = KeyOf(*task.spec);
  task.state = TaskState::kQueued;
  task.target = {};
  if (task.returned_before) {
    key.queue.PushFront(&task);
  } else {
    key.queue.PushBack(&task);
  }
  Pump(key);
}

size_t TaskSubmitter::Depth(const LeaseKey& key) const {
  if (key.typical_run == 0) return 1;
  return std::clamp<size_t>(kWorkAhead / std::max<Nanos>(key.typical_run, 1), 1, kMaxDepth);
}

OwnedLease* TaskSubmitter::Choose(LeaseKey& key) {
  const size_t depth = Depth(key);
  NodeNumber wanted = 0;  // With most bytes of the next task's arguments.
  if (key.queue.first->has_reference_arguments()) [[unlikely]] {
    uint64_t most = 0;
    for (const auto& [node, bytes] : ArgumentBytes(*key.queue.first)) {
      if (bytes > most) std::tie(most, wanted) = std::pair(bytes, node);
    }
  }
  OwnedLease* best = nullptr;
  for (auto& lease : key.leases) {
    if (lease->revoked || lease->taking_back || lease->in_flight.size >= depth ||
        lease->in_flight.bytes >= limits_.max_untaken || IsWornOut(*lease)) {
      continue;
    }
    const bool there = lease->worker->process.node == wanted;
    if (best == nullptr || (wanted != 0 && there && best->worker->process.node != wanted) ||
        (lease->in_flight.size < best->in_flight.size &&
         (there || best->worker->process.node != wanted))) {
      best = lease.get();
    }
  }
  return best;
}

void TaskSubmitter::Pump(LeaseKey& key) {
  while (!key.queue.empty()) {
    OwnedLease* lease = Choose(key);
    if (lease == nullptr) break;
    PushTo(*lease, *key.queue.PopFront());
  }
  UpdateDemand(key);
}

void TaskSubmitter::PushTo(OwnedLease& lease, TaskRecord& task) {
  if (lease.in_flight.empty()) {
    lease.last_progress = 0;  // Known at the next Tick: a clock read a task costs too much.
    began_ = true;
  }
  task.target = &lease;
  lease.idle_since = 0;
  tasks_.Push(task, *lease.worker, lease.number, ++lease.pushes);
  lease.in_flight.PushBack(&task);
}

void TaskSubmitter::OnGrant(const proto::LeaseGrant& grant) {
  auto found = by_number_.find(grant.key());
  if (found == by_number_.end()) return;
  LeaseKey& key = *found->second;
  const ProcessId worker = ProcessId::Unpack(grant.worker());
  if (by_worker_.contains(worker)) return;  // A repeat.
  auto lease = std::make_unique<OwnedLease>();
  lease->number = grant.lease();
  lease->worker = &peers_.Of(worker);
  lease->key = &key;
  lease->calls_before = grant.calls();
  lease->idle_since = tasks_.clock().Now();
  OwnedLease& held = *(by_worker_[worker] = lease.get());
  key.notice.clear();
  key.leases.push_back(std::move(lease));
  if (IsWornOut(held)) Return(held, true);
  Pump(key);
}

void TaskSubmitter::OnRefused(const proto::LeaseRefused& refused) {
  auto found = by_number_.find(refused.key());
  if (found == by_number_.end()) return;
  LeaseKey& key = *found->second;
  key.notice = refused.message();
  const auto kind = static_cast<ErrorKind>(refused.error());
  if (kind == ErrorKind::kNone) {
    // One function's name stands in front; the notice is that of all which share the key.
    const size_t colon = key.notice.find(": ");
    if (colon < key.notice.find(' ')) key.notice.erase(0, colon + 2);
    return;
  }
  WantOnlyHeld(key);  // Another node may have refused: this one still counts on it.
  TaskList failed = std::exchange(key.queue, {});
  while (TaskRecord* task = failed.PopFront()) tasks_.Fail(*task, {kind, refused.message(), {}});
}

void TaskSubmitter::OnReply(const TaskTable::Reply& reply, ProcessId from) {
  TaskRecord& task = *reply.task;
  OwnedLease& lease = *task.target.lease();
  LeaseKey& key = *lease.key;
  if (lease.worker->process != from) return;
  lease.in_flight.Remove(&task);
  lease.taking_back = false;
  lease.last_progress = 0;
  const Nanos run = static_cast<Nanos>(std::min<uint64_t>(reply.head->run_ns, 3600 * kSecond)) + 1;
  // Slower at once, faster gradually: a wrong guess that tasks are short makes others wait behind a
  // long one.
  key.typical_run = run > key.typical_run ? run : key.typical_run - (key.typical_run - run) / 4;
  const bool worn_out = IsWornOut(lease);
  if (tasks_.Finish(reply, from) == TaskTable::Outcome::kRetry) Delay(task);
  if (lease.in_flight.empty() && (worn_out || lease.revoked)) {
    Return(lease, worn_out);
    Pump(key);
  } else if (!key.queue.empty() && !lease.revoked) {
    Pump(key);
  } else if (lease.in_flight.empty()) {
    lease.idle_since = tasks_.clock().Now();
    UpdateDemand(key);
  }
}

void TaskSubmitter::OnReturned(TaskRecord& task) {
  OwnedLease& lease = *task.target.lease();
  LeaseKey& key = *lease.key;
  lease.in_flight.Remove(&task);
  lease.taking_back = false;
  task.returned_before = true;
  const bool worn_out = IsWornOut(lease);
  if (task.cancelled) {
    tasks_.Fail(task, CancelledBeforeStart(tasks_.Describe(task)));
  } else {
    // The worker does not take more for now: it blocks, or runs something long.
    key.typical_run = std::max(key.typical_run, kWorkAhead);
    task.state = TaskState::kQueued;
    task.target = {};
    key.queue.PushFront(&task);
  }
  if (lease.in_flight.empty() && (worn_out || lease.revoked)) Return(lease, worn_out);
  UpdateDemand(key);
  for (auto& other : key.leases) {
    if (other->in_flight.empty() && !other->revoked) return Pump(key);
  }
}

bool TaskSubmitter::OnRevoke(NodeNumber node, const proto::LeaseRevoke& revoke) {
  for (auto& [worker, lease] : by_worker_) {
    if (lease->number != revoke.lease() || worker.node != node) continue;
    lease->revoked = true;
    LeaseKey& key = *lease->key;
    if (lease->in_flight.empty()) {
      Return(*lease, false);
    } else {
      TakeBackFrom(*lease);
    }
    Pump(key);
    return true;
  }
  return false;
}

void TaskSubmitter::TakeBackFrom(OwnedLease& lease) {
  lease.taking_back = true;
  lease.asked_back = 0;
  lease.worker->channel->Send(Lane::kControl, FrameKind::kTakeBack,
                              AsBytes(TakeBack{lease.number, lease.pushes}));
}

void TaskSubmitter::Return(OwnedLease& lease, bool discard) {
  LeaseKey& key = *lease.key;
  const NodeNumber node = lease.worker->process.node;
  proto::LeaseReturn message;
  message.set_lease(lease.number);
  message.set_discard_worker(discard);
  if (key.max_calls != 0) message.set_calls(lease.calls_before + lease.pushes);
  by_worker_.erase(lease.worker->process);
  std::erase_if(key.leases, [&](const auto& held) { return held.get() == &lease; });
  if (key.queue.empty()) {
    WantOnlyHeld(key);  // First, or the raylet would grant another one for it.
  } else {              // What it was given came back unstarted: the raylet must hear of it again.
    key.wanted_sent = static_cast<uint32_t>(std::min<size_t>(key.wanted_sent, key.leases.size()));
  }
  SendMessage(transport_.To(RayletOf(node)), FrameKind::kLeaseReturn, message);
}

Error TaskSubmitter::DeathError(const TaskRecord& task, ProcessId worker, const proto::Death& death,
                                bool started) const {
  ErrorKind kind = ErrorKind::kWorkerCrashed;
  if (death.cause() == proto::Death::OUT_OF_MEMORY) kind = ErrorKind::kOutOfMemory;
  if (death.cause() == proto::Death::NODE_DIED) kind = ErrorKind::kNodeDied;
  return {kind,
          absl::StrCat("the worker (process ", worker.ToString(), ") that ran ",
                       tasks_.Describe(task), " ", DescribeDeath(death),
                       ". Executed: ", started ? "unknown" : "no", "; attempt ", task.attempt + 1,
                       " of ", task.attempt + 1 + std::max(task.retries_left, 0), "."),
          {}};
}

void TaskSubmitter::OnProcessDied(ProcessId process, const proto::Death& death, uint64_t started) {
  auto found = by_worker_.find(process);
  if (found == by_worker_.end()) return;
  OwnedLease& lease = *found->second;
  LeaseKey& key = *lease.key;
  TaskList orphans = std::exchange(lease.in_flight, {});
  by_worker_.erase(found);
  std::erase_if(key.leases, [&](const auto& held) { return held.get() == &lease; });
  key.wanted_sent = static_cast<uint32_t>(std::min<size_t>(key.wanted_sent, key.leases.size()));
  const bool node_died = death.cause() == proto::Death::NODE_DIED;
  if (node_died) {
    for (auto& [worker, other] : by_worker_) {
      // They are dead, too: the word comes with the next frames.
      if (worker.node == process.node) other->revoked = true;
    }
  }
  std::vector<TaskRecord*> again;
  while (TaskRecord* task = orphans.PopFront()) {
    const bool tried = task->push <= started;
    const Error error = DeathError(*task, process, death, tried);
    // Here the next attempt replaces what this one left; on another node nobody does.
    if (tried && process.node != self_.node) tasks_.FreeUnheardOf(*task, process.node);
    if (task->cancelled) {
      tasks_.FailStarted(*task, tasks_.Cancelled(*task), process.node);
    } else if (!tried) {
      again.push_back(task);
    } else if (death.cause() == proto::Death::OUT_OF_MEMORY
                   ? task->attempt < kMemoryRetries && tasks_.TakeRetry(*task, &error)
                   : tasks_.TakeRetry(*task, &error)) {
      // Now, as the next run is told once what it shall bring.
      if (node_died && task->stream) tasks_.LoseItemsOn(*task, process.node);
      Delay(*task);
    } else {
      tasks_.FailStarted(*task, error, process.node);
    }
  }
  for (auto task = again.rbegin(); task != again.rend(); ++task) {
    (*task)->state = TaskState::kQueued;
    (*task)->target = {};
    key.queue.PushFront(*task);
  }
  if (key.queue.empty()) {
    WantOnlyHeld(key);  // Or the raylet would look for another one in its place.
  } else {
    Pump(key);
  }
}

// The first retry follows at once, later ones wait: a task that kills its worker each time leaves
// the node to others.
void TaskSubmitter::Delay(TaskRecord& task) {
  task.target = {};
  if (task.attempt <= 1) {
    Submit(task);  // Its arguments may have been lost meanwhile.
    return;
  }
  task.state = TaskState::kDelayed;
  const Nanos wait =
      std::min(kLastBackoff, kFirstBackoff << std::min<uint32_t>(task.attempt - 2, 10));
  delayed_.emplace(tasks_.clock().Now() + wait, DelayedTask{task.cookie, task.sequence_bits});
}

void TaskSubmitter::Cancel(TaskRecord& task, bool force, bool recursive) {
  if (task.state == TaskState::kFinished) return;
  task.cancelled = true;
  const Error error = CancelledBeforeStart(tasks_.Describe(task));
  switch (task.state) {
    case TaskState::kQueued: {
      LeaseKey& key = KeyOf(*task.spec);
      key.queue.Remove(&task);
      tasks_.Fail(task, error);
      UpdateDemand(key);
      return;
    }
    case TaskState::kWaitingForArguments:
    case TaskState::kDelayed:
      tasks_.Fail(task, error);
      return;
    case TaskState::kPushed: {
      OwnedLease& lease = *task.target.lease();
      lease.worker->channel->Send(Lane::kControl, FrameKind::kCancelTask,
                                  AsBytes(CancelTask{tasks_.IdOf(task), force, recursive}));
      if (!force) return;
      // Others that were pushed to the same worker go elsewhere first, as far as they have not
      // started.
      proto::KillWorker kill;
      kill.set_lease(lease.number);
      kill.set_process(lease.worker->process.packed());
      kill.set_reason(absl::StrCat(tasks_.Describe(task), " was cancelled with force"));
      SendMessage(transport_.To(RayletOf(lease.worker->process.node)), FrameKind::kKillWorker,
                  kill);
      return;
    }
    case TaskState::kFinished:
      return;
  }
}

Nanos TaskSubmitter::Tick() {
  const Nanos now = tasks_.clock().Now();
  Nanos next = kForever;
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const DelayedTask due = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    TaskRecord* task = tasks_.Find(due.cookie, due.sequence_bits);
    if (task != nullptr && task->state == TaskState::kDelayed) Submit(*task);
  }
  if (!delayed_.empty()) next = delayed_.begin()->first;
  std::vector<OwnedLease*> lingered;
  for (auto& [worker, lease] : by_worker_) {
    if (lease->in_flight.empty()) {
      if (lease->idle_since == 0) lease->idle_since = now;
      if (now - lease->idle_since >= kLinger) lingered.push_back(lease);
      if (IdlesUnheard(*lease)) {
        const Nanos heard_at = lease->idle_since + kIdles;
        if (now < heard_at) {
          next = std::min(next, heard_at);
        } else {
          WantOnlyHeld(*lease->key);
        }
      }
      next = std::min(next, lease->idle_since + kLinger);
      continue;
    }
    if (lease->last_progress == 0) lease->last_progress = now;
    next = std::min(next, std::max(lease->last_progress + kLongTask, now + kLongTask));
    if (lease->in_flight.size <= 1) continue;
    if (lease->taking_back) {
      if (lease->asked_back == 0) lease->asked_back = now;
      if (now - lease->asked_back >= kAskBackAgain) TakeBackFrom(*lease);
    } else if (now - lease->last_progress >= kLongTask) {
      // What runs turned out long; those behind it run elsewhere, or wait here.
      TakeBackFrom(*lease);
    }
  }
  for (OwnedLease* lease : lingered) Return(*lease, false);
  return std::min(next, Settle(now));
}

void TaskSubmitter::ReturnAll() {
  while (!by_worker_.empty()) Return(*by_worker_.begin()->second, true);
}

void TaskSubmitter::ReturnIdle() {
  std::vector<OwnedLease*> idle;
  for (const auto& [worker, lease] : by_worker_) {
    if (lease->in_flight.empty()) idle.push_back(&*lease);
  }
  for (OwnedLease* lease : idle) Return(*lease, /*discard=*/false);
}

std::string TaskSubmitter::Words(const TaskRecord& task) const {
  switch (task.state) {
    case TaskState::kWaitingForArguments:
      return absl::StrCat("waits for ", task.unresolved, " arguments");
    case TaskState::kQueued: {
      const LeaseKey* key = task.spec->key;
      if (key != nullptr && !key->notice.empty()) return key->notice;
      return absl::StrCat("waits for a worker; ", key == nullptr ? 0 : key->leases.size(),
                          " are leased for tasks like it");
    }
    case TaskState::kPushed:
      return task.target.lease()->in_flight.first == &task ? "runs" : "is next on its worker";
    case TaskState::kDelayed:
      return absl::StrCat("waits to be tried again, attempt ", task.attempt + 1);
    case TaskState::kFinished:
      return "has finished";
  }
  return {};
}

}  // namespace sheaf
