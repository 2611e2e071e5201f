// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "worker/core/argument_fetch.h"
#include "worker/current_call.h"
#include "worker/runtime_impl.h"

namespace sheaf {

std::vector<NestedReference> RuntimeImpl::Outgoing(std::span<const ObjectHandle> nested) {
  Lock lock(*driver_);
  std::vector<NestedReference> out = core_->Outgoing(nested);
  if (core_->owner.references.unpromoted() == 0) [[likely]]
    return out;
  departures_->Await(lock);
  return core_->Outgoing(nested);
}

namespace {

bool IsInStore(const std::string& item) {
  ReturnHead value;
  std::memcpy(&value, item.data() + sizeof(StreamItemHead), sizeof value);
  return value.kind == ReturnKind::kStore;
}

}  // namespace

absl::Status RuntimeImpl::SendItem(CallExecution& call, const std::string& item,
                                   std::span<const ObjectHandle> nested) {
  Lock lock(*driver_);
  // A consumer that takes nothing, because it is stopped perhaps, is waited for as one that wants
  // nothing yet.
  const absl::Status room =
      driver_->DriveUntil(lock, kForever, [&] { return core_->MayYield(call); });
  const bool over = !room.ok() || call.IsOver();
  // Who is not told of a value in the store frees none.
  if (!over || IsInStore(item)) core_->SendItem(call, item, nested);
  if (over) return room.ok() ? absl::CancelledError("nobody wants more items") : room;
  if (call.spec().max_unconsumed() <= 0 && call.spec().max_unconsumed_bytes() <= 0)
    return absl::OkStatus();
  // Here, not before the next item: that shall not be made while nobody wants it.
  return driver_->DriveUntil(lock, kForever, [&] { return core_->MayYield(call); });
}

// Gives `call` its arguments, once they are there and may be held. Errors: as of ArgumentFetch::End.
absl::Status RuntimeImpl::TakeArguments(Lock& lock, const std::shared_ptr<CallExecution>& call) {
  if (!call->has_store_arguments()) [[likely]]
    return absl::OkStatus();
  ArgumentFetch fetch(*core_, call);
  absl::Status waited;
  if (!fetch.Begin()) {
    if (!fetch.admitted())
      waited = driver_->DriveUntil(
          lock, kForever, [&] { return fetch.LookForAdmission(); }, WaitsFor::kAdmission);
    // As long as it takes: what is lost, or cannot be read, shows as an error in its view.
    if (waited.ok())
      waited =
          driver_->DriveUntil(lock, kForever, [&] { return fetch.Look(); }, WaitsFor::kArguments);
  }
  return fetch.End(waited);
}

void RuntimeImpl::Ended(CallExecution* call) {
  if (driver_->holds_lock()) return core_->executor.NoteEnded(call);
  Lock lock(*driver_);
  core_->executor.NoteEnded(call);
}

void RuntimeImpl::OnRunningCancelled(TaskId task) {
  if (options_.handler == nullptr) return;
  cancels_.Post([handler = options_.handler, task] { handler->Cancel(task); });
}

void RuntimeImpl::RunCall(Lock& lock, std::shared_ptr<CallExecution> call) {
  SHEAF_FAILPOINT("worker.before_call");
  const bool creation = call->spec().kind() == proto::TaskTemplate::ACTOR_CREATION;
  const bool from_raylet = call->owner.is_raylet();
  const bool waits_end = call->spec().kind() != proto::TaskTemplate::ACTOR_METHOD ||
                         options_.handler->ends_waits_of_methods();
  current_call = {call->origin(), waits_end ? &call->cancel_requested : nullptr};
  const absl::Status fetched = TakeArguments(lock, call);
  current_call.hold = call->hold_ticket;
  lock.Unlock();
  if (ProcessCore::MayStart(*call, fetched)) [[likely]]
    options_.handler->Execute(call);
  Error failure;
  if (creation && !call->succeeded()) {
    failure = ConstructorFailed(call->spec().name(), call->failure());
  }
  current_call = {};
  SHEAF_FAILPOINT("worker.after_call");
  lock.Relock();
  call.reset();
  driver_->FinishEnded();  // The reply goes out before another call is taken.
  if (actor_leaves_) [[unlikely]]
    driver_->Recheck();  // Who leaves waits for the others.
  if (!creation) return;
  core_->EndConstruction(failure, from_raylet);
  driver_->Recheck();
}

// Actors that run several calls at once: the threads of each group. Those that are free wait for
// frames themselves; the main thread has nothing to do.
void RuntimeImpl::StartGroupThreads() {
  if (core_->executor.is_serial()) return;
  if (RunsLoop()) {
    group_threads_.emplace_back([this] { HelpLoop(); });
    return;
  }
  for (auto& group : core_->executor.groups()) {
    if (group->threads == 0) StartGroupThread(*group);
  }
}

// Coroutines need one thread, which starts them; they count until they end. Of others each call has
// one: whoever takes a call and leaves nobody to wait for the next starts another.
void RuntimeImpl::StartGroupThread(ConcurrencyGroup& group) {
  if (driver_->stopping() || calls_end_) return;
  try {
    group_threads_.emplace_back([this, &group] { GroupLoop(group); });
    ++group.threads;
    ++calling_threads_;
  } catch (const std::system_error& error) {
    Log(LogLevel::kWarning, "the actor has ", group.threads,
        " threads, and no more can be started (", error.what(),
        "): further calls wait for one of them");
  }
}

void RuntimeImpl::GroupLoop(ConcurrencyGroup& group) {
  pthread_setname_np(pthread_self(), "sheaf-actor");
  Lock lock(*driver_);
  while (!driver_->stopping() && !calls_end_) {
    std::shared_ptr<CallExecution> call;
    ++group.idle;
    const absl::Status status = driver_->DriveUntil(lock, kForever, [&] {
      if (calls_end_) return true;
      call = core_->executor.Take(group);
      return call != nullptr;
    });
    --group.idle;
    if (call != nullptr && group.idle == 0 && group.threads < group.limit &&
        !core_->executor.is_async()) {
      StartGroupThread(group);
    }
    if (call != nullptr) RunCall(lock, std::move(call));
    if (!status.ok()) break;
  }
  --calling_threads_;
  leaves_.notify_all();
}

int RuntimeImpl::RunWorker() {
  Lock lock(*driver_);
  SendMessage(core_->raylet(), FrameKind::kWorkerReady, proto::WorkerReady());
  while (!leaving_) {
    if (!group_threads_.empty()) {
      if (loop_watch_.is_open()) {
        WatchDescriptors(lock);
      } else {
        lock.Yield();
        leaves_.wait_for(lock.native(), std::chrono::nanoseconds(kLongestSleep),
                         [this] { return leaving_ || loop_watch_.is_open(); });
      }
      continue;
    }
    std::shared_ptr<CallExecution> call;
    const absl::Status status = driver_->DriveUntil(lock, kForever, [&] {
      if (leaving_ || !group_threads_.empty()) return true;
      call = core_->executor.Take(core_->executor.default_group());
      return call != nullptr;
    });
    if (!status.ok()) break;
    if (call != nullptr) RunCall(lock, std::move(call));
  }
  if (!driver_->ended()) {
    lock.Unlock();
    options_.handler->Leave();
    lock.Relock();
  }
  PublishMetrics();
  if (const ActorId id = core_->executor.actor_id(); leaves_by_ != 0 && !id.is_nil()) {
    // Nobody has a handle of it but itself.
    core_->executor.RefuseCalls(
        {ErrorKind::kActorDied,
         absl::StrCat("the actor (", id.ToHex(), ") was ended: no handle of it is left"),
         {}});
  }
  if (leaves_by_ != 0) departures_->AwaitCalls(lock, leaves_by_);
  if (!driver_->ended()) departures_->Await(lock);
  if (!driver_->ended()) {
    core_->owner.submitter.ReturnIdle();
    SendMessage(core_->raylet(), FrameKind::kGoodbye, proto::Goodbye());
    core_->Flush();
  }
  if (!options_.awaits_calls) return 0;
  // The background thread goes on meanwhile: what the calls wait for comes, and CheckRaylet ends a
  // process whose raylet is gone, however long its calls take.
  calls_end_ = true;
  driver_->Recheck();
  while (calling_threads_ != 0) {
    lock.Yield();
    leaves_.wait_for(lock.native(), std::chrono::nanoseconds(kLongestSleep),
                     [this] { return calling_threads_ == 0; });
  }
  return 0;
}

}  // namespace sheaf
