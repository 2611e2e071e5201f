// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Running calls, in the order of steps of worker/runtime_worker.cc.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/process.h"
#include "worker/wire.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kArgumentWait = 60 * kSecond;

}  // namespace

Async<> Process::RunDriver() {
  proto::JobStart start;
  start.set_entrypoint("simulated");
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kJobStart, start);
  co_await Until(*this, {}, kForever, [this] { return dispatch_->job().answered; },
                 {Awaited::Kind::kJob, {}});
  // A full disk takes no job, and a node that was declared dead brings none.
  if (!dispatch_->job().error.empty() && !world_.oracle.IsNodeDead(self.node) &&
      world_.fault_counts[static_cast<size_t>(Fault::kGcsDiskFull)] == 0)
    world_.oracle.Fail(
        "O1", absl::StrCat("driver ", self.ToString(), " gets no job: ", dispatch_->job().error));
  if (dispatch_->job().error.empty() && !node_over_) co_await programs_.driver(*this);
  finished_ = true;
}

Async<> Process::RunWorker() {
  while (!leaving_) {
    std::shared_ptr<CallExecution> call;
    co_await Until(*this, {}, kForever, [&] {
      if (leaving_) return true;
      if (group_threads_ == 0) call = executor_->Take(executor_->default_group());
      return call != nullptr;
    });
    if (call != nullptr) co_await RunCall(std::move(call));
  }
  SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kGoodbye, proto::Goodbye());
  Flush();
  finished_ = true;
}

Async<> Process::RunGroup(ConcurrencyGroup& group) {
  while (!leaving_) {
    std::shared_ptr<CallExecution> call;
    co_await Until(*this, {}, kForever, [&] {
      if (!leaving_) call = executor_->Take(group);
      return leaving_ || call != nullptr;
    });
    if (call != nullptr) co_await RunCall(std::move(call));
  }
}

Async<bool> Process::FetchArguments(Context context, CallExecution& call, std::string* why_not) {
  if (call.has_store_arguments() && !executor_->argument_holds().Begin(call)) {
    const Context admission{{}, &call.cancel_requested};
    const Waited admitted = co_await Until(
        *this, admission, kForever, [&] { return executor_->argument_holds().IsAdmitted(call); });
    if (admitted != Waited::kDone) {
      *why_not = "it was ended while others held their arguments";
      co_return false;
    }
  }
  std::vector<const StoreArgument*> missing;
  for (const StoreArgument* argument : call.store_arguments()) {
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
  if (missing.empty()) co_return true;
  std::vector<ObjectHandle> handles;
  for (const StoreArgument* argument : missing) {
    ObjectEntry* known = owner_->references.Find(argument->id);
    if (known == nullptr) known = owner_->references.Incoming({argument->id, argument->location});
    handles.emplace_back(known);
    owner_->resolver.Want(*known);
  }
  std::vector<ObjectView> views(missing.size());
  size_t next = 0;
  const auto all_here = [&] {
    while (next < missing.size() && TryView(handles[next], &views[next])) ++next;
    return next == missing.size();
  };
  const Waited waited = co_await Until(*this, context, world_.now() + kArgumentWait, all_here,
                                       {Awaited::Kind::kArguments, {}});
  if (waited != Waited::kDone) {
    *why_not = "an argument could not be fetched in time";
    co_return false;
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    if (views[i].error != nullptr) {
      *why_not = views[i].error->message;
      co_return false;
    }
    call.SetArgument(missing[i], std::move(views[i]));
  }
  co_return true;
}

Async<> Process::RunCall(std::shared_ptr<CallExecution> call) {
  const bool creation = call->spec().kind() == proto::TaskTemplate::ACTOR_CREATION;
  const bool from_raylet = call->owner.is_raylet();
  world_.progress_at = world_.now();
  // A detached actor's creation task is pushed by the raylet and named by its creator.
  const TaskId task = call->task();
  if (creation) world_.oracle.ActorStarts(executor_->actor_id(), self);
  world_.oracle.Started(
      from_raylet ? TaskId{executor_->actor_id().maker_bits, executor_->actor_id().sequence_bits}
                  : task,
      self);
  const Context context{task, &call->cancel_requested};
  std::string why_not;
  if (!co_await FetchArguments({}, *call, &why_not)) {
    if (call->cancelled()) {
      call->Fail(CancelledBeforeStart(call->name()), false);
    } else {
      call->Fail({ErrorKind::kObjectLost, why_not, {}}, true);
    }
  } else if (executor_->is_async() && !creation) {
    Spawn(Execute(call, context));
  } else {
    co_await Execute(call, context);
  }
  Error failure;
  if (creation && !call->succeeded()) {
    failure = ConstructorFailed(call->spec().name(), call->failure());
  }
  call.reset();
  if (!creation) co_return;
  executor_->CountConstructed(failure);
  if (from_raylet) {
    proto::ActorReport report;
    report.mutable_actor()->set_actor_id(executor_->actor_id().ToHex());
    report.mutable_actor()->set_state(failure.kind == ErrorKind::kNone ? "ALIVE" : "DEAD");
    report.mutable_actor()->set_process(self.packed());
    report.mutable_actor()->set_death(failure.message);
    SendMessage(transport_->To(RayletOf(self.node)), FrameKind::kActorReport, report);
  }
}

Async<> Process::Execute(std::shared_ptr<CallExecution> call, Context context) {
  co_await programs_.execute(*this, std::move(call), context);
}

Async<> Process::ReturnLarge(Context context, CallExecution& call, std::string bytes) {
  ObjectSpec spec;
  spec.id = ReturnOf(call.task(), 0);
  spec.attempt = call.attempt();
  spec.size_bytes = bytes.size();
  spec.wait = 30 * kSecond;
  MutableBuffer buffer;
  Error why;
  if (!co_await CreateNamed(context, spec, &buffer, &why)) {
    if (why.kind == ErrorKind::kNone)
      why = {ErrorKind::kTaskCancelled, "cancelled while it waited for room", {}};
    call.Fail(why, false);
    co_return;
  }
  co_await Sleep(context, world_.Between(0, kMillisecond));
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  call.ReturnBuffer(0, std::move(buffer), {}).IgnoreError();
}

Async<bool> Process::WaitForStream(Context context, CallExecution& call) {
  co_await Until(*this, context, kForever, [&] {
    return call.IsOver() ||
           (call.HasRoom() && remote_->To(call.owner).queued_bytes() < world_.limits.max_untaken);
  });
  co_return !call.IsOver();
}

absl::StatusOr<MutableBuffer> Process::CreateValue(ObjectId, uint32_t, size_t,
                                                   std::span<const ObjectHandle>) {
  return absl::UnimplementedError("simulated code makes room with CreateNamed");
}
// Items of streams. kUnavailable: there is no room now.
absl::StatusOr<ObjectLocation> Process::StoreValue(ObjectId id, uint32_t attempt,
                                                   std::string_view bytes,
                                                   std::span<const ObjectHandle>) {
  ObjectSpec spec;
  spec.id = id;
  spec.attempt = attempt;
  spec.size_bytes = bytes.size();
  store_dirty_ = true;
  absl::StatusOr<ObjectLocation> location = store_->Put(spec, bytes);
  if (!location.ok()) store_->CancelCreate(id);
  return location;
}
std::optional<ObjectLocation> Process::StoreIfBehind(const CallExecution& call, ObjectId id,
                                                     std::string_view bytes,
                                                     std::span<const ObjectHandle> nested) {
  if (!executor_->some_owner_behind() || !executor_->IsOwnerBehind(call)) return std::nullopt;
  absl::StatusOr<ObjectLocation> location = StoreValue(id, call.attempt(), bytes, nested);
  return location.ok() ? std::optional(*location) : std::nullopt;
}
ObjectLocation Process::SealValue(MutableBuffer buffer) {
  store_dirty_ = true;
  return store_->Seal(std::move(buffer));
}

std::vector<NestedReference> Process::Outgoing(std::span<const ObjectHandle> nested) {
  std::vector<NestedReference> out;
  for (const ObjectHandle& handle : nested)
    out.push_back(owner_->references.Outgoing(*handle.entry()));
  return out;
}

absl::Status Process::SendItem(CallExecution& call, const std::string& item,
                               std::span<const ObjectHandle> nested) {
  std::string frame = item;
  StreamItemHead head;
  std::memcpy(&head, frame.data(), sizeof head);
  head.index = call.stream_sent++;
  head.transit =
      owner_->transits.Hold(call.owner, std::vector<ObjectHandle>(nested.begin(), nested.end()));
  std::memcpy(frame.data(), &head, sizeof head);
  remote_->To(call.owner).Send(Lane::kControl, FrameKind::kStreamItem, frame);
  return absl::OkStatus();
}

ObjectId Process::NextStoredName() {
  return ObjectId::Make(self, owner_->references.NextSequence(), 1);
}

void Process::Ended(CallExecution* call) {
  if (!alive) {
    delete call;
    return;
  }
  ended_.push_back(call);
}

}  // namespace sheaf::sim
