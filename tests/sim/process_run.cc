// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Running calls, in the order of steps of worker/runtime_worker.cc.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/process.h"
#include "worker/core/argument_fetch.h"

namespace sheaf::sim {

Async<> Process::RunDriver() {
  proto::JobStart start;
  start.set_entrypoint("simulated");
  SendMessage(core_->raylet(), FrameKind::kJobStart, start);
  co_await Until(*this, {}, kForever, [this] { return core_->dispatch.job().answered; },
                 {Awaited::Kind::kJob, {}});
  // A full disk takes no job, and a node that was declared dead brings none.
  if (!core_->dispatch.job().error.empty() && !world_.oracle.IsNodeDead(self.node) &&
      world_.fault_counts[static_cast<size_t>(Fault::kGcsDiskFull)] == 0)
    world_.oracle.Fail("O1", absl::StrCat("driver ", self.ToString(),
                                          " gets no job: ", core_->dispatch.job().error));
  if (core_->dispatch.job().error.empty() && !node_over_) co_await programs_.driver(*this);
  finished_ = true;
}

Async<> Process::RunWorker() {
  while (!leaving_) {
    std::shared_ptr<CallExecution> call;
    co_await Until(*this, {}, kForever, [&] {
      if (leaving_) return true;
      if (group_threads_ == 0) call = executor().Take(executor().default_group());
      return call != nullptr;
    });
    if (call != nullptr) co_await RunCall(std::move(call));
  }
  SendMessage(core_->raylet(), FrameKind::kGoodbye, proto::Goodbye());
  core_->Flush();
  finished_ = true;
}

Async<> Process::RunGroup(ConcurrencyGroup& group) {
  while (!leaving_) {
    std::shared_ptr<CallExecution> call;
    co_await Until(*this, {}, kForever, [&] {
      if (!leaving_) call = executor().Take(group);
      return leaving_ || call != nullptr;
    });
    if (call != nullptr) co_await RunCall(std::move(call));
  }
}

Async<absl::Status> Process::TakeArguments(std::shared_ptr<CallExecution> call, Context context) {
  ArgumentFetch fetch(*core_, call);
  Waited waited = Waited::kDone;
  if (!fetch.Begin()) {
    if (!fetch.admitted())
      waited = co_await Until(*this, context, kForever, [&] { return fetch.LookForAdmission(); },
                              {Awaited::Kind::kAdmission, {}});
    if (waited == Waited::kDone)
      waited = co_await Until(*this, context, kForever, [&] { return fetch.Look(); },
                              {Awaited::Kind::kArguments, {}});
  }
  co_return fetch.End(waited == Waited::kDone ? absl::OkStatus()
                                              : absl::AbortedError("the node has ended"));
}

Async<> Process::RunCall(std::shared_ptr<CallExecution> call) {
  const bool creation = call->spec().kind() == proto::TaskTemplate::ACTOR_CREATION;
  const bool from_raylet = call->owner.is_raylet();
  world_.progress_at = world_.now();
  // A detached actor's creation task is pushed by the raylet and named by its creator.
  const TaskId task = call->task();
  if (creation) world_.oracle.ActorStarts(executor().actor_id(), self);
  world_.oracle.Started(
      from_raylet ? TaskId{executor().actor_id().maker_bits, executor().actor_id().sequence_bits}
                  : task,
      self);
  Context context{task, &call->cancel_requested};
  const absl::Status fetched = co_await TakeArguments(call, context);
  if (!fetched.ok()) world_.oracle.DidNotBegin(task, self);
  context.hold = call->hold_ticket;
  if (ProcessCore::MayStart(*call, fetched)) {
    if (executor().is_async() && !creation) {
      Spawn(Execute(call, context));
    } else {
      co_await Execute(call, context);
    }
  }
  Error failure;
  if (creation && !call->succeeded()) {
    failure = ConstructorFailed(call->spec().name(), call->failure());
  }
  call.reset();
  executor().FinishEnded();  // The reply goes out before another call is taken.
  if (creation) core_->EndConstruction(failure, from_raylet);
}

Async<> Process::Execute(std::shared_ptr<CallExecution> call, Context context) {
  co_await programs_.execute(*this, std::move(call), context);
}

Async<> Process::ReturnLarge(Context context, CallExecution& call, std::string bytes) {
  ObjectSpec spec;
  spec.id = ReturnOf(call.task(), 0);
  spec.attempt = call.attempt();
  spec.size_bytes = bytes.size();
  absl::StatusOr<MutableBuffer> buffer = co_await CreateNamed(context, spec);
  if (!buffer.ok()) {
    call.Fail({absl::IsCancelled(buffer.status()) ? ErrorKind::kTaskCancelled
                                                  : StoreErrorKind(buffer.status()),
               std::string(buffer.status().message()),
               {}},
              false);
    co_return;
  }
  co_await Sleep(context, world_.Between(0, kMillisecond));
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  call.ReturnBuffer(0, *std::move(buffer), {}).IgnoreError();
}

Async<bool> Process::WaitForStream(Context context, CallExecution& call) {
  co_await Until(*this, context, kForever, [&] { return core_->MayYield(call); });
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
  absl::StatusOr<ObjectLocation> location = core_->store->Put(spec, bytes);
  if (!location.ok()) core_->store->CancelCreate(id);
  return location;
}
std::optional<ObjectLocation> Process::StoreIfBehind(const CallExecution& call, ObjectId id,
                                                     std::string_view bytes,
                                                     std::span<const ObjectHandle> nested) {
  if (!executor().some_owner_behind() || !executor().IsOwnerBehind(call)) return std::nullopt;
  absl::StatusOr<ObjectLocation> location = StoreValue(id, call.attempt(), bytes, nested);
  return location.ok() ? std::optional(*location) : std::nullopt;
}
ObjectLocation Process::SealValue(MutableBuffer buffer) { return core_->Seal(std::move(buffer)); }

std::vector<NestedReference> Process::Outgoing(std::span<const ObjectHandle> nested) {
  return core_->Outgoing(nested);
}

absl::Status Process::SendItem(CallExecution& call, const std::string& item,
                               std::span<const ObjectHandle> nested) {
  core_->SendItem(call, item, nested);
  return absl::OkStatus();
}

ObjectId Process::NextStoredName() { return core_->NextName(); }

void Process::Ended(CallExecution* call) {
  if (!alive) {
    delete call;
    return;
  }
  executor().NoteEnded(call);
}

}  // namespace sheaf::sim
