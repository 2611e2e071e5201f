// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What calls do in their workers.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/programs.h"

namespace sheaf::sim {
namespace {

// The fields of an actor.
struct ActorState {
  ObjectHandle kept;
};

}  // namespace

Async<> Workload::Execute(Process& process, std::shared_ptr<CallExecution> call, Context context) {
  CallArguments arguments;
  if (call->argument_count() == 0 || call->argument(0).bytes.size() != sizeof arguments) {
    world_.oracle.Fail("O2",
                       absl::StrCat("call ", call->task().ToHex(), " has lost its first argument"));
    co_return;
  }
  std::memcpy(&arguments, call->argument(0).bytes.data(), sizeof arguments);
  // What came with it is what was sent.
  std::vector<ObjectHandle> inside;
  if (const CallRecord* record = world_.oracle.Find(call->task())) {
    if (record->arguments.id != arguments.id ||
        call->argument_count() != 1 + record->depends.size()) {
      world_.oracle.Fail("O2",
                         absl::StrCat("call ", call->task().ToHex(), " has another's arguments"));
      co_return;
    }
    for (size_t i = 0; i < record->depends.size(); ++i) {
      world_.oracle.Read(record->depends[i], ErrorKind::kNone, call->argument(i + 1).bytes, "");
    }
    for (const ObjectId id : record->inside) {
      ObjectEntry* entry = process.owner().references.Find(id);
      if (entry == nullptr) {
        world_.oracle.Fail("O2",
                           absl::StrCat("call ", call->task().ToHex(), " has lost the reference ",
                                        id.ToHex(), " inside its argument"));
        co_return;
      }
      inside.emplace_back(entry);
    }
  }
  co_await process.Sleep({.task = {}, .cancelled = nullptr},
                         static_cast<Nanos>(arguments.run_us) * kMicrosecond);
  for (const ObjectHandle& inner : inside) {
    if (arguments.op == Op::kActorHold || arguments.op == Op::kActorCallsItself) continue;
    if (!co_await Read(process, context, inner)) {
      call->Fail({ErrorKind::kTaskCancelled, "cancelled while it waited", {}}, false);
      co_return;
    }
  }
  std::vector<ObjectHandle> returned;
  switch (arguments.op) {
    case Op::kFails:
      call->Fail({ErrorKind::kTaskFailed, "it always fails", {}}, false);
      co_return;
    case Op::kConstructFails:
      call->Fail({ErrorKind::kTaskFailed, "the constructor always fails", {}}, false);
      co_return;
    case Op::kFlaky:
      if (call->attempt() == 0) {
        call->Fail({ErrorKind::kTaskFailed, "it fails once", {}}, true);
        co_return;
      }
      break;
    case Op::kCrashes:
    case Op::kActorCrash:
      if (call->attempt() != 0) break;
      process.sends_left = 0;
      co_await Until(process, {}, kForever, [] { return false; });
      break;
    case Op::kForever:
      co_await Until(process, {.task = {}, .cancelled = context.cancelled}, kForever,
                     [] { return false; });
      call->Fail({ErrorKind::kTaskCancelled, "it was cancelled", {}}, false);
      co_return;
    case Op::kSlow:
      co_await process.Sleep({}, world_.Between(0, 40 * kMillisecond));
      break;
    case Op::kNested:
      if (!co_await ExecuteNested(process, *call, arguments, context)) co_return;
      break;
    case Op::kGenerator:
      co_await ExecuteStream(process, *call, arguments, context);
      co_return;
    case Op::kMakesObject: {
      const uint64_t id = next_id_++;
      const std::string value = world_.oracle.Value(id, 40);
      returned.push_back(process.Put(value));
      world_.oracle.Made(returned.back().id(), id, value.size(), {});
      break;
    }
    case Op::kConstruct:
      process.user_state = std::make_shared<ActorState>();
      call->Return(0, {}, {}).IgnoreError();
      co_return;
    case Op::kActorHold:
      if (!inside.empty()) static_cast<ActorState*>(process.user_state.get())->kept = inside[0];
      break;
    case Op::kActorGive:
      if (const ObjectHandle kept = static_cast<ActorState*>(process.user_state.get())->kept)
        returned.push_back(kept);
      break;
    case Op::kActorCallsItself: {
      const TaskId made = TaskOf(inside[0].id());
      ActorHandle self{.handle = inside[0],
                       .max_task_retries = arguments.count - 1,
                       .detached = false,
                       .id = {made.maker_bits, made.sequence_bits}};
      CallOptions own;
      own.arguments = NewCall(Op::kActorCall, world_.random);
      returned.push_back(CallActor(process, self, own, context));
      break;
    }
    default:
      break;
  }
  const std::string value = ValueOf(arguments);
  if (value.size() > 64 * 1024) {
    co_await process.ReturnLarge(context, *call, value);
  } else {
    call->Return(0, value, returned).IgnoreError();
  }
}

Async<bool> Workload::ExecuteNested(Process& process, CallExecution& call,
                                    const CallArguments& arguments, Context context) {
  std::vector<ObjectHandle> children;
  for (uint16_t i = 0; i < arguments.count; ++i) {
    CallOptions child;
    child.arguments =
        NewCall(arguments.depth > 0 && i == 0 ? Op::kNested : Op::kPlain, world_.random);
    child.arguments.depth = static_cast<uint8_t>(arguments.depth > 0 ? arguments.depth - 1 : 0);
    child.arguments.count = 2;
    child.retries = 2;
    // No slots: those that wait keep theirs.
    child.lease = static_cast<int>(world_.random.Below(2));
    if (i != 0 && world_.random.OneIn(4)) child.references.push_back(children.back());
    children.push_back(Submit(process, world_.random, child, context));
  }
  for (const ObjectHandle& child : children) {
    if (!co_await Read(process, context, child)) {
      call.Fail({ErrorKind::kTaskCancelled, "cancelled while it waited for its children", {}},
                false);
      co_return false;
    }
  }
  co_return true;
}

Async<> Workload::ExecuteStream(Process& process, CallExecution& call,
                                const CallArguments& arguments, Context context) {
  for (uint64_t i = 0; i < arguments.count; ++i) {
    if (!co_await process.WaitForStream(context, call)) {
      call.Fail({ErrorKind::kTaskCancelled, "nobody wants more items", {}}, false);
      co_return;
    }
    const std::string value = world_.oracle.Value(arguments.id + (i << 40), arguments.size);
    absl::Status yielded = call.Yield(value, {});
    while (absl::IsUnavailable(yielded)) {
      co_await process.Sleep({}, world_.Between(0, kMillisecond));
      yielded = call.Yield(value, {});
    }
    if (!yielded.ok()) {
      call.Fail({StoreErrorKind(yielded), std::string(yielded.message()), {}}, false);
      co_return;
    }
    if (world_.random.OneIn(3)) co_await process.Sleep({}, world_.Between(0, kMillisecond));
  }
}

}  // namespace sheaf::sim
