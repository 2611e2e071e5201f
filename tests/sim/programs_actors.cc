// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Actors that their drivers look after, and calls of all actors.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "tests/sim/programs.h"

namespace sheaf::sim {

ObjectHandle Workload::CallActor(Process& process, ActorHandle& actor, const CallOptions& options,
                                 const Context& context) {
  const TemplateHandle& spec = process.Template("method", [&](proto::TaskTemplate* made) {
    made->set_kind(proto::TaskTemplate::ACTOR_METHOD);
    made->set_max_retries(kRetriesOfActor);
    made->set_num_returns(1);
  });
  CallOptions call = options;
  call.arguments.sequence = next_sequence_++;
  ArgumentList arguments;
  arguments.AddValue(AsBytes(call.arguments), call.inside);
  for (const ObjectHandle& reference : call.references) arguments.AddReference(reference);
  const TaskId task = TaskId::Make(process.self, process.owner().references.NextSequence() + 1);
  CallRecord& record = world_.oracle.Submitted(task, call.arguments);
  record.retries = actor.max_task_retries;
  record.actor = actor.id;
  record.parent = context.task;
  for (const ObjectHandle& reference : call.references) record.depends.push_back(reference.id());
  for (const ObjectHandle& inner : call.inside) record.inside.push_back(inner.id());
  world_.oracle.Made(ReturnOf(task, 0), call.arguments.id, call.arguments.size, task);
  return process.SubmitToActor(actor.handle, spec, std::move(arguments), context);
}

Async<> Workload::Actors(Process& process, DriverState& state) {
  SeededRandom& random = state.random;
  if (state.actors.size() >= 3 || (!state.actors.empty() && random.OneIn(3))) {
    const size_t at = random.Below(state.actors.size());
    ActorHandle& actor = state.actors[at];
    if (random.OneIn(2)) {
      const bool no_restart = actor.detached || random.OneIn(2);
      if (no_restart) {
        world_.oracle.ActorMayDie(actor.id);
      } else {
        world_.oracle.ActorKilled(actor.id);
      }
      process.Kill(actor.handle, no_restart);
      if (!no_restart) co_return;
    } else if (actor.detached) {
      co_return;
    }
    // Its last handle, maybe.
    state.actors.erase(state.actors.begin() + static_cast<ptrdiff_t>(at));
    co_return;
  }
  const int restarts[] = {0, 1, 5, -1};
  const int retries[] = {0, 2, -1};
  const int max_restarts = restarts[random.Below(4)];
  ActorHandle actor;
  actor.max_task_retries = retries[random.Below(3)];
  const uint32_t concurrency = 1;
  const bool out_of_order = random.OneIn(3);
  const bool fails = random.OneIn(12);
  const TemplateHandle& spec = process.Template(
      absl::StrCat("actor ", max_restarts, " ", actor.max_task_retries, " ", concurrency, " ",
                   out_of_order),
      [&](proto::TaskTemplate* made) {
        made->set_kind(proto::TaskTemplate::ACTOR_CREATION);
        made->set_num_returns(1);
        made->mutable_actor()->set_max_restarts(max_restarts);
        made->mutable_actor()->set_max_task_retries(actor.max_task_retries);
        made->mutable_actor()->set_max_concurrency(concurrency);
        made->mutable_actor()->set_out_of_order(out_of_order);
        (*made->mutable_lease()->mutable_resources()->mutable_amounts())["CPU"] = kUnit;
        (*made->mutable_lease()->mutable_running()->mutable_amounts())["CPU"] = 0;
      });
  CallArguments arguments = NewCall(fails ? Op::kConstructFails : Op::kConstruct, random);
  arguments.size = 0;
  const TaskId task = TaskId::Make(process.self, process.owner().references.NextSequence() + 1);
  actor.id = {task.maker_bits, task.sequence_bits};
  CallRecord& record = world_.oracle.Submitted(task, arguments);
  record.actor = actor.id;
  world_.oracle.Made(ReturnOf(task, 0), arguments.id, 0, task);
  world_.oracle.ActorMade(actor.id, process.self, max_restarts);
  if (fails) world_.oracle.ActorMayDie(actor.id);
  if (out_of_order) world_.oracle.ActorMayReorder(actor.id);
  ArgumentList encoded;
  encoded.AddValue(AsBytes(arguments));
  actor.handle = process.CreateActor(spec, std::move(encoded), {});
  state.actors.push_back(std::move(actor));
}

Async<> Workload::ActorCalls(Process& process, DriverState& state) {
  SeededRandom& random = state.random;
  ActorHandle* actor = co_await ChooseActor(process, state);
  if (actor == nullptr) co_return;
  const ActorId id = actor->id;
  if (!actor->detached && random.OneIn(8)) {
    co_await ActorCallsItself(process, *actor);
    co_return;
  }
  const uint64_t count = 1 + random.Below(mix_.burst);
  for (uint64_t i = 0; i < count; ++i) {
    if (i != 0) actor = co_await WaitForActor(process, state, id);
    if (actor == nullptr) co_return;
    CallOptions call;
    call.arguments = NewCall(random.OneIn(30)  ? Op::kActorCrash
                             : random.OneIn(8) ? Op::kActorGive
                                               : Op::kActorCall,
                             random);
    if (call.arguments.op == Op::kActorCrash && (mix_.crashes == 0 || actor->detached))
      call.arguments.op = Op::kActorCall;
    if (!state.results.empty() && random.OneIn(12))
      call.references.push_back(state.results[random.Below(state.results.size())]);
    state.results.push_back(CallActor(process, *actor, call, {}));
  }
}

// The result that the actor owes itself comes back inside that of the driver's call.
Async<> Workload::ActorCallsItself(Process& process, ActorHandle actor) {
  CallOptions call;
  call.arguments = NewCall(Op::kActorCallsItself, world_.random);
  call.arguments.count = static_cast<uint16_t>(actor.max_task_retries + 1);
  call.inside.push_back(actor.handle);
  const ObjectHandle result = CallActor(process, actor, call, {});
  ObjectView view;
  if (!co_await process.Get({}, result, &view)) co_return;
  Judge(process, result.id(), view);
  if (view.error != nullptr) co_return;
  if (view.nested.size() != 1) {
    world_.oracle.Fail("O2", "the result of a call has lost the reference inside it");
    co_return;
  }
  const ObjectHandle inner = view.nested[0];
  co_await Read(process, {}, inner);
}

Async<Workload::ActorHandle*> Workload::ChooseActor(Process& process, DriverState& state) {
  if (state.actors.empty()) co_return nullptr;
  co_return co_await WaitForActor(process, state,
                                  state.actors[state.random.Below(state.actors.size())].id);
}

// While it waits, other threads of the driver may let go of the actor.
Async<Workload::ActorHandle*> Workload::WaitForActor(Process& process, DriverState& state,
                                                     ActorId id) {
  auto find = [&] {
    return std::find_if(state.actors.begin(), state.actors.end(),
                        [&](const ActorHandle& actor) { return actor.id == id; });
  };
  auto found = find();
  if (found == state.actors.end()) co_return nullptr;
  if (!co_await process.WaitForCredits({}, found->handle)) co_return nullptr;
  found = find();
  co_return found == state.actors.end() ? nullptr : &*found;
}

}  // namespace sheaf::sim
