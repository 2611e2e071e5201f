// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "worker/runtime_gathering.h"
#include "worker/runtime_impl.h"
#include "worker/wire.h"

namespace sheaf {
namespace {

absl::Status Unpack(CallExecution& call) {
  return call.Unpack() ? absl::OkStatus()
                       : absl::DataLossError(
                             "an argument does not parse; caller and worker may "
                             "be of different builds");
}

}  // namespace

std::vector<NestedReference> RuntimeImpl::Outgoing(std::span<const ObjectHandle> nested) {
  Lock lock(*this);
  std::vector<NestedReference> out;
  out.reserve(nested.size());
  for (const ObjectHandle& handle : nested)
    out.push_back(owner_->references.Outgoing(*handle.entry()));
  return out;
}

absl::Status RuntimeImpl::SendItem(CallExecution& call, const std::string& item,
                                   std::span<const ObjectHandle> nested) {
  Lock lock(*this);
  // A consumer that takes nothing, because it is stopped perhaps, is waited for as one that wants
  // nothing yet. The channel is looked up each time: it goes with the consumer.
  const absl::Status room = DriveUntil(lock, kForever, [&] {
    return call.IsOver() ||
           (call.HasRoom() && transport_->To(call.owner).queued_bytes() < limits_.max_untaken);
  });
  if (!room.ok()) return room;
  if (call.IsOver()) return absl::CancelledError("nobody wants more items");
  std::string frame = item;
  StreamItemHead head;
  std::memcpy(&head, frame.data(), sizeof head);
  head.index = call.stream_sent++;
  head.transit =
      owner_->transits.Hold(call.owner, std::vector<ObjectHandle>(nested.begin(), nested.end()));
  std::memcpy(frame.data(), &head, sizeof head);
  transport_->To(call.owner).Send(Lane::kControl, FrameKind::kStreamItem, frame);
  return absl::OkStatus();
}

// All arguments, pinned, once they may be. Errors: as of FetchArguments.
absl::Status RuntimeImpl::TakeArguments(Lock& lock, const std::shared_ptr<CallExecution>& call) {
  if (call->has_store_arguments() && !executor_->argument_holds().Begin(*call)) [[unlikely]]
    return AwaitAdmission(lock, call);
  return FetchArguments(lock, call, PinArguments(*call));
}

// The same, of one that has asked whether it may hold them. Until then it holds nothing.
absl::Status RuntimeImpl::AwaitAdmission(Lock& lock, const std::shared_ptr<CallExecution>& call) {
  const absl::Status status = DriveUntil(
      lock, kForever,
      [&] { return call->cancelled() || executor_->argument_holds().IsAdmitted(*call); },
      WaitsFor::kAdmission);
  if (!status.ok()) return status;
  if (call->cancelled()) return absl::CancelledError("cancelled while others held their arguments");
  return FetchArguments(lock, call, PinArguments(*call));
}

// Pins the arguments that lie in the store; gives those that are not within reach.
std::vector<const StoreArgument*> RuntimeImpl::PinArguments(CallExecution& call) {
  const std::vector<const StoreArgument*> wanted = call.store_arguments();
  // The caller holds them until the reply, so those that are there need no entry here.
  std::vector<const StoreArgument*> missing;
  for (const StoreArgument* argument : wanted) {
    absl::StatusOr<StoredObject> found = store_->Get(argument->id, argument->location);
    if (!found.ok()) {
      missing.push_back(argument);
      continue;
    }
    ObjectView view;
    for (ObjectId id : found->nested) {
      ObjectEntry* inner = owner_->references.Incoming({id, {}});
      owner_->references.AddUse(*inner);
      call.held.push_back(inner);
      view.nested.emplace_back(inner);
    }
    view.bytes = found->bytes.view();
    view.keep = std::move(found->bytes);
    call.SetArgument(argument, std::move(view));
  }
  return missing;
}

// Waits for the others, and pins them. kNotFound: lost for good; the message names it.
absl::Status RuntimeImpl::FetchArguments(Lock& lock, const std::shared_ptr<CallExecution>& call,
                                         std::vector<const StoreArgument*> missing) {
  if (missing.empty()) [[likely]]
    return Unpack(*call);
  Fetch fetch;
  fetch.call = call;
  fetch.admitted = true;
  fetch.missing = std::move(missing);
  // As long as it takes: what is lost, or cannot be read, shows as an error in its view.
  const absl::Status waited =
      DriveUntil(lock, kForever, [&] { return LookAtFetch(fetch); }, WaitsFor::kArguments);
  return EndFetch(fetch, waited);
}

void RuntimeImpl::BeginFetch(Fetch& fetch) {
  for (const StoreArgument* argument : fetch.missing) {
    ObjectEntry* known = owner_->references.Find(argument->id);
    if (known == nullptr) known = owner_->references.Incoming({argument->id, argument->location});
    fetch.handles.emplace_back(known);
    owner_->resolver.Want(*known);
  }
  fetch.views.resize(fetch.missing.size());
  fetch.gathering = std::make_shared<Gathering>(*this, fetch.handles, &fetch.views);
}

// True: nothing is to be waited for any more.
bool RuntimeImpl::LookAtFetch(Fetch& fetch) {
  if (fetch.call->cancelled()) return true;
  if (!fetch.admitted) {
    if (!executor_->argument_holds().IsAdmitted(*fetch.call)) return false;
    fetch.admitted = true;
    fetch.missing = PinArguments(*fetch.call);
  }
  if (fetch.missing.empty()) return true;
  if (fetch.gathering == nullptr) BeginFetch(fetch);
  return fetch.gathering->Look();
}

absl::Status RuntimeImpl::EndFetch(Fetch& fetch, const absl::Status& waited) {
  CallExecution& call = *fetch.call;
  if (!fetch.admitted) {
    return waited.ok() ? absl::CancelledError("cancelled while others held their arguments")
                       : waited;
  }
  if (!fetch.missing.empty() && (!waited.ok() || call.cancelled())) {
    const size_t reached = fetch.gathering == nullptr ? 0 : fetch.gathering->next();
    const size_t next = std::min(reached, fetch.missing.size() - 1);
    return absl::NotFoundError(absl::StrCat("the argument ", fetch.missing[next]->id.ToHex(),
                                            " could not be fetched: ", waited.message()));
  }
  for (size_t i = 0; i < fetch.missing.size(); ++i) {
    if (fetch.views[i].error != nullptr) return absl::NotFoundError(fetch.views[i].error->message);
    call.SetArgument(fetch.missing[i], std::move(fetch.views[i]));
  }
  return Unpack(call);
}

void RuntimeImpl::OnRunningCancelled(TaskId task) {
  if (options_.handler == nullptr) return;
  cancels_.Post([handler = options_.handler, task] { handler->Cancel(task); });
}

void RuntimeImpl::RunCall(Lock& lock, std::shared_ptr<CallExecution> call) {
  SHEAF_FAILPOINT("worker.before_call");
  const bool creation = call->spec().kind() == proto::TaskTemplate::ACTOR_CREATION;
  const bool from_raylet = call->owner.is_raylet();
  const TaskId task = call->task();
  SetCurrentTask(task);
  SetCancelFlag(&call->cancel_requested);
  const absl::Status fetched = TakeArguments(lock, call);
  SetHold(call->hold_ticket);
  lock.Unlock();
  if (call->cancelled()) [[unlikely]] {
    call->Fail(CancelledBeforeStart(call->name()), false);
  } else if (!fetched.ok()) {
    call->Fail({ErrorKind::kObjectLost, std::string(fetched.message()), {}}, true);
  } else {
    options_.handler->Execute(call);
  }
  Error failure;
  if (creation && !call->succeeded()) {
    failure = ConstructorFailed(call->spec().name(), call->failure());
  }
  SetCurrentTask({});
  SetCancelFlag(nullptr);
  SetHold(0);
  SHEAF_FAILPOINT("worker.after_call");
  lock.Relock();
  call.reset();
  FinishEnded();  // The reply goes out before another call is taken.
  if (!creation) return;
  executor_->CountConstructed(failure);
  if (from_raylet) {  // A detached actor: the raylet speaks for it to the GCS.
    proto::ActorReport report;
    report.mutable_actor()->set_actor_id(executor_->actor_id().ToHex());
    report.mutable_actor()->set_state(failure.kind == ErrorKind::kNone ? "ALIVE" : "DEAD");
    report.mutable_actor()->set_process(self_.packed());
    report.mutable_actor()->set_death(failure.message);
    SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kActorReport, report);
  }
  Recheck();
}

// Actors that run several calls at once: the threads of each group. Those that are free wait for
// frames themselves; the main thread has nothing to do.
void RuntimeImpl::StartGroupThreads() {
  const bool single = executor_->groups().size() == 1 && executor_->default_group().limit == 1 &&
                      !executor_->is_async();
  if (single) return;
  if (RunsLoop()) {
    group_threads_.emplace_back([this] { HelpLoop(); });
    return;
  }
  for (auto& group : executor_->groups()) {
    if (group->threads == 0) StartGroupThread(*group);
  }
}

// Coroutines need one thread, which starts them; they count until they end. Of others each call has
// one: whoever takes a call and leaves nobody to wait for the next starts another.
void RuntimeImpl::StartGroupThread(ConcurrencyGroup& group) {
  if (stopping_) return;
  try {
    group_threads_.emplace_back([this, &group] { GroupLoop(group); });
    ++group.threads;
  } catch (const std::system_error& error) {
    Log(LogLevel::kWarning, "the actor has ", group.threads,
        " threads, and no more can be started (", error.what(),
        "): further calls wait for one of them");
  }
}

void RuntimeImpl::GroupLoop(ConcurrencyGroup& group) {
  pthread_setname_np(pthread_self(), "sheaf-actor");
  Lock lock(*this);
  while (!stopping_) {
    std::shared_ptr<CallExecution> call;
    ++group.idle;
    const absl::Status status = DriveUntil(lock, kForever, [&] {
      call = executor_->Take(group);
      return call != nullptr;
    });
    --group.idle;
    if (call != nullptr && group.idle == 0 && group.threads < group.limit &&
        !executor_->is_async()) {
      StartGroupThread(group);
    }
    if (call != nullptr) RunCall(lock, std::move(call));
    if (!status.ok()) return;
  }
}

int RuntimeImpl::RunWorker() {
  Lock lock(*this);
  SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kWorkerReady, proto::WorkerReady());
  while (!leaving_) {
    if (!group_threads_.empty()) {
      if (loop_watch_.valid()) {
        WatchDescriptors(lock);
      } else {
        lock.Breathe();
        leaves_.wait_for(lock.native(), std::chrono::nanoseconds(kLongestSleep),
                         [this] { return leaving_ || loop_watch_.valid(); });
      }
      continue;
    }
    std::shared_ptr<CallExecution> call;
    const absl::Status status = DriveUntil(lock, kForever, [&] {
      if (leaving_ || !group_threads_.empty()) return true;
      call = executor_->Take(executor_->default_group());
      return call != nullptr;
    });
    if (!status.ok()) break;
    if (call != nullptr) RunCall(lock, std::move(call));
  }
  PublishMetrics();
  if (!raylet_dead_) {
    SendMessage(mailbox_->To(RayletOf(self_.node)), FrameKind::kGoodbye, proto::Goodbye());
    FlushOutgoing();
  }
  return 0;
}

}  // namespace sheaf
