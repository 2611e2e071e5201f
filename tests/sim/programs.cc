// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/programs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"

namespace sheaf::sim {
namespace {

constexpr size_t kSmall = 64;
constexpr size_t kLarge = 100 * 1024;  // Lies in the store.
constexpr int kDeepest = 2;
constexpr uint64_t kLooksAtPace = 50;

}  // namespace

Mix Mix::Draw(Random& random) {
  Mix mix;
  for (uint32_t* weight :
       {&mix.tasks, &mix.chains, &mix.objects, &mix.large, &mix.nested, &mix.makes_object,
        &mix.fails, &mix.crashes, &mix.actors, &mix.actor_calls, &mix.streams, &mix.cancels,
        &mix.keys, &mix.groups, &mix.detached}) {
    if (random.OneIn(3)) *weight = 0;
    if (random.OneIn(6)) *weight *= 5;
  }
  mix.tasks += 1;
  mix.threads = 1 + static_cast<int>(random.Below(3));
  mix.burst = 1 + static_cast<uint32_t>(random.Below(random.OneIn(3) ? 40 : 8));
  mix.longest_run_us = random.OneIn(2) ? 200 : 5000;
  return mix;
}

Programs Workload::programs() {
  return {
      .driver = [this](Process& process) { return Driver(process); },
      .execute = [this](Process& process, std::shared_ptr<CallExecution> call,
                        Context context) { return Execute(process, std::move(call), context); }};
}

CallArguments Workload::NewCall(Op op, Random& random) {
  CallArguments call;
  call.id = next_id_++;
  call.op = op;
  call.size = 8 + random.Below(kSmall);
  call.run_us = static_cast<uint32_t>(
      random.Below(random.OneIn(10) ? 20 * mix_.longest_run_us : mix_.longest_run_us));
  return call;
}

ObjectHandle Workload::Submit(Process& process, Random&, const CallOptions& options,
                              const Context& context) {
  const Op op = options.arguments.op;
  const bool streaming = op == Op::kGenerator;
  const std::string group = options.group.is_nil() ? "" : options.group.ToHex();
  const TemplateHandle& spec = process.Template(
      absl::StrCat("task r", options.retries, " l", options.lease, " s", streaming, group),
      [&](proto::TaskTemplate* made) {
        made->set_kind(proto::TaskTemplate::TASK);
        made->set_max_retries(options.retries);
        made->set_num_returns(streaming ? 0 : 1);
        made->set_streaming(streaming);
        made->set_max_unconsumed(streaming ? 3 : 0);
        auto& amounts = *made->mutable_lease()->mutable_resources()->mutable_amounts();
        amounts["CPU"] = options.lease == 1 ? kUnit / 2 : kUnit;
        if (options.lease == 2) {
          amounts.clear();
          amounts["slot"] = kUnit;
        }
        if (!options.group.is_nil()) {
          amounts.clear();
          amounts["bundle"] = kUnit;
          made->mutable_lease()->mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
          made->mutable_lease()->mutable_strategy()->set_group_id(options.group.Binary());
          made->mutable_lease()->mutable_strategy()->set_bundle(-1);
        }
      });
  ArgumentList arguments;
  arguments.AddValue(AsBytes(options.arguments), options.inside);
  for (const ObjectHandle& reference : options.references) arguments.AddReference(reference);
  // The task may end at once, so the oracle must know it before: its number is the next one.
  const TaskId task = TaskId::Make(process.self, process.owner().references.NextSequence() + 1);
  CallRecord& record = world_.oracle.Submitted(task, options.arguments);
  record.retries = options.retries;
  record.parent = context.task;
  for (const ObjectHandle& reference : options.references) record.depends.push_back(reference.id());
  for (const ObjectHandle& inner : options.inside) record.inside.push_back(inner.id());
  world_.oracle.Made(ReturnOf(task, 0), options.arguments.id, options.arguments.size, task);
  return process.Submit(spec, std::move(arguments), context);
}

// --- Drivers. ---

Async<> Workload::Driver(Process& process) {
  auto state = std::make_shared<DriverState>(world_.random.Next());
  if (mix_.only_tasks > 0) {
    CallOptions call;
    for (uint64_t i = 0; i < mix_.only_tasks; ++i) {
      call.arguments = NewCall(Op::kPlain, state->random);
      state->results.push_back(Submit(process, state->random, call, {}));
    }
    for (ObjectHandle& result : state->results) co_await Read(process, {}, std::move(result));
    co_return;
  }
  for (int i = 0; i < mix_.threads; ++i) {
    ++state->threads;
    process.Spawn(DriverThread(process, state));
  }
  co_await Until(process, {}, kForever, [&] { return state->threads == 0; });
  co_await ReadSome(process, *state, 0);
  state->actors.clear();
}

void Workload::EndDetached(Process& process) {
  for (const ActorId actor : detached_) {
    world_.oracle.ActorMayDie(actor);
    process.EndDetachedActor(actor, true);
  }
  for (const PlacementGroupId group : detached_groups_) process.Spawn(EndGroup(process, group));
}

// The main thread need not wait for the others when the node ends.
Async<> Workload::DriverThread(Process& process, std::shared_ptr<DriverState> shared) {
  DriverState& state = *shared;
  while (!stopping_ && !process.node_over()) {
    if (world_.pace.IsAhead(world_.now(), world_.queue.events())) {
      co_await process.Sleep(
          {}, static_cast<Nanos>(state.random.Below(world_.pace.span / kLooksAtPace)));
      continue;
    }
    co_await Step(process, state);
    if (state.results.size() > 60) co_await ReadSome(process, state, 20);
    if (state.random.OneIn(3)) {
      co_await process.Sleep(
          {}, static_cast<Nanos>(state.random.Below(state.random.OneIn(20) ? 300'000 : 3'000)) *
                  kMicrosecond);
    }
  }
  --state.threads;
}

Async<> Workload::Step(Process& process, DriverState& state) {
  const std::pair<uint32_t, int> weights[] = {
      {mix_.tasks, 0},    {mix_.chains, 1},       {mix_.objects, 2},   {mix_.large, 3},
      {mix_.nested, 4},   {mix_.makes_object, 5}, {mix_.fails, 6},     {mix_.crashes, 7},
      {mix_.actors, 8},   {mix_.actor_calls, 9},  {mix_.streams, 10},  {mix_.cancels, 11},
      {mix_.keys, 12},    {mix_.groups, 13},      {mix_.detached, 14}, {mix_.control, 15},
      {mix_.commands, 16}};
  uint64_t all = 0;
  for (const auto& [weight, what] : weights) all += weight;
  uint64_t draw = state.random.Below(all);
  int chosen = 0;
  for (const auto& [weight, what] : weights) {
    if (draw < weight) {
      chosen = what;
      break;
    }
    draw -= weight;
  }
  SeededRandom& random = state.random;
  const int retry_choices[] = {0, 1, 3, -1};
  CallOptions call;
  call.retries = retry_choices[random.Below(4)];
  call.lease = static_cast<int>(random.Below(3));
  switch (chosen) {
    case 0: {
      const uint64_t count = 1 + random.Below(mix_.burst);
      for (uint64_t i = 0; i < count; ++i) {
        call.arguments = NewCall(random.OneIn(8) ? Op::kSlow : Op::kPlain, random);
        if (random.OneIn(mix_.one_large_in)) call.arguments.size = kLarge;
        state.results.push_back(Submit(process, random, call, {}));
      }
      break;
    }
    case 1: {
      ObjectHandle last;
      const uint64_t length = 2 + random.Below(4);
      const bool large = random.OneIn(4);
      for (uint64_t i = 0; i < length; ++i) {
        call.arguments = NewCall(Op::kPlain, random);
        if (large) call.arguments.size = kLarge;  // Its lineage is kept.
        call.references.clear();
        if (last) call.references.push_back(last);
        if (!state.results.empty() && random.OneIn(3))
          call.references.push_back(state.results[random.Below(state.results.size())]);
        last = Submit(process, random, call, {});
      }
      state.results.push_back(last);
      break;
    }
    case 2:
      co_await Objects(process, state, false);
      break;
    case 3:
      co_await Objects(process, state, true);
      break;
    case 4: {
      call.arguments = NewCall(Op::kNested, random);
      call.arguments.depth = static_cast<uint8_t>(random.Below(kDeepest));
      call.arguments.count = static_cast<uint16_t>(1 + random.Below(4));
      state.results.push_back(Submit(process, random, call, {}));
      break;
    }
    case 5:
      co_await MakesObject(process, state);
      break;
    case 6:
      call.arguments = NewCall(random.OneIn(2) ? Op::kFails : Op::kFlaky, random);
      if (call.retries == -1) call.retries = 1;
      state.results.push_back(Submit(process, random, call, {}));
      break;
    case 7:
      call.arguments = NewCall(Op::kCrashes, random);
      state.results.push_back(Submit(process, random, call, {}));
      break;
    case 8:
      co_await Actors(process, state);
      break;
    case 9:
      co_await ActorCalls(process, state);
      break;
    case 10:
      co_await Stream(process, state);
      break;
    case 11:
      co_await Cancels(process, state);
      break;
    case 12:
      co_await Keys(process, state);
      break;
    case 13:
      co_await Group(process, state);
      break;
    case 14:
      co_await Detached(process, state);
      break;
    case 16:
      co_await Command(process, state);
      break;
    default:
      co_await Control(process, state);
      break;
  }
  if (state.results.size() > 8 && random.OneIn(4)) {  // Some are never read.
    state.results.erase(state.results.begin() +
                        static_cast<ptrdiff_t>(random.Below(state.results.size())));
  }
}

Async<bool> Workload::Read(Process& process, Context context, ObjectHandle object) {
  if (world_.random.OneIn(4) && !co_await ReadPart(process, context, object)) co_return false;
  ObjectView view;
  if (!co_await process.Get(context, object, &view)) co_return false;
  Judge(process, object.id(), view);
  co_return true;
}

Async<bool> Workload::ReadPart(Process& process, Context context, ObjectHandle object) {
  const size_t size = world_.oracle.SizeOf(object.id());
  if (size == 0) co_return true;
  const uint64_t offset = world_.random.Below(size);
  const uint64_t bytes = 1 + world_.random.Below(size - offset);
  ObjectView view;
  ObjectPart part{object, offset, bytes};  // Named: GCC 12 ends a temporary of this kind twice.
  if (!co_await process.GetPart(context, std::move(part), &view)) co_return false;
  if (view.error != nullptr) {
    Judge(process, object.id(), view);
    co_return true;
  }
  if (view.handle.id() != object.id()) world_.Count(Fault::kPartFetched);
  if (view.bytes.size() != bytes) world_.oracle.Fail("O2", "a part has another size");
  world_.oracle.ReadPart(object.id(), offset, view.bytes);
  co_return true;
}

void Workload::Judge(Process& process, ObjectId object, const ObjectView& view) {
  if (view.error == nullptr) {
    world_.oracle.Read(object, ErrorKind::kNone, view.bytes, "");
  } else if (!world_.oracle.IsDead(process.job_driver) && !world_.oracle.IsDead(process.self)) {
    world_.oracle.Read(object, view.error->kind, {}, view.error->message);
  }
}

Async<> Workload::ReadSome(Process& process, DriverState& state, size_t keep) {
  while (state.results.size() > keep) {
    const size_t at = state.random.Below(state.results.size());
    ObjectHandle object = state.results[at];
    state.results.erase(state.results.begin() + static_cast<ptrdiff_t>(at));
    co_await Read(process, {}, object);
  }
}

Async<> Workload::Objects(Process& process, DriverState& state, bool large) {
  SeededRandom& random = state.random;
  const uint64_t id = next_id_++;
  const size_t size = large ? kLarge + random.Below(1000) : 8 + random.Below(kSmall);
  ObjectHandle object;
  if (large) {
    object = co_await process.PutLarge({}, world_.oracle.Value(id, size));
    if (!object) co_return;
  } else {
    object = process.Put(world_.oracle.Value(id, size));
  }
  world_.oracle.Made(object.id(), id, size, {});
  const uint64_t readers = random.Below(4);
  for (uint64_t i = 0; i < readers; ++i) {
    CallOptions call;
    call.arguments = NewCall(Op::kPlain, random);
    (random.OneIn(2) ? call.references : call.inside).push_back(object);
    ActorHandle* actor = nullptr;
    if (random.OneIn(4)) actor = co_await ChooseActor(process, state);
    if (actor != nullptr) {
      call.arguments.op = call.inside.empty() ? Op::kActorCall : Op::kActorHold;
      state.results.push_back(CallActor(process, *actor, call, {}));
    } else {
      state.results.push_back(Submit(process, random, call, {}));
    }
  }
  if (random.OneIn(2)) state.results.push_back(object);
}

// A worker's own object comes back inside a result; the worker may die, and its object be adopted.
Async<> Workload::MakesObject(Process& process, DriverState& state) {
  CallOptions call;
  call.arguments = NewCall(Op::kMakesObject, state.random);
  ObjectHandle result = Submit(process, state.random, call, {});
  ObjectView view;
  if (!co_await process.Get({}, result, &view)) co_return;
  Judge(process, result.id(), view);
  if (view.error != nullptr) co_return;
  if (view.nested.size() != 1) {
    world_.oracle.Fail("O2", "a result has lost the reference inside it");
    co_return;
  }
  const ObjectHandle inner = view.nested[0];
  if (state.random.OneIn(3))
    co_await process.Sleep({}, static_cast<Nanos>(state.random.Below(200'000)) * kMicrosecond);
  if (state.random.OneIn(3)) {  // Pass it on.
    CallOptions reader;
    reader.arguments = NewCall(Op::kPlain, state.random);
    (state.random.OneIn(2) ? reader.references : reader.inside).push_back(inner);
    state.results.push_back(Submit(process, state.random, reader, {}));
  }
  co_await Read(process, {}, inner);
}

Async<> Workload::Stream(Process& process, DriverState& state) {
  SeededRandom& random = state.random;
  CallOptions call;
  call.arguments = NewCall(Op::kGenerator, random);
  call.arguments.count = static_cast<uint16_t>(random.Below(12));
  call.retries = random.OneIn(3) ? 0 : 2;
  if (random.OneIn(3)) call.arguments.size = kLarge;
  ObjectHandle stream = Submit(process, random, call, {});
  const TaskId task = Process::TaskIdOf(stream);
  std::vector<std::pair<uint64_t, ObjectHandle>> held;
  const uint64_t wanted = random.OneIn(4) ? random.Below(4) : call.arguments.count + 1;
  for (uint64_t i = 0; i < wanted; ++i) {
    ObjectHandle item;
    if (!co_await process.NextItem({}, stream, &item)) break;
    if (!item) {
      if (i != call.arguments.count)
        world_.oracle.Fail(
            "O2", absl::StrCat("a stream of ", call.arguments.count, " items ended after ", i));
      break;
    }
    if (random.OneIn(2)) held.emplace_back(i, item);
    if (!co_await ReadItem(process, call.arguments, task, i, item)) co_return;
  }
  // What is kept has its value for as long as it is kept, also without the stream.
  if (random.OneIn(2)) stream = {};
  co_await process.Sleep({}, world_.Between(0, 20 * kMillisecond));
  for (const auto& [i, item] : held) {
    if (!co_await ReadItem(process, call.arguments, task, i, item)) co_return;
  }
}

// False: it is an error, which is the last item, or the wait was ended.
Async<bool> Workload::ReadItem(Process& process, const CallArguments& call, TaskId task,
                               uint64_t index, ObjectHandle item) {
  ObjectView view;
  if (!co_await process.Get({}, item, &view)) co_return false;
  if (view.error == nullptr) {
    if (view.bytes.size() != call.size ||
        !world_.oracle.IsValue(call.id + (index << 40), view.bytes)) {
      world_.oracle.Fail("O2", absl::StrCat("item ", index, " of a stream has another's value"));
    }
    co_return true;
  }
  world_.oracle.Made(item.id(), 0, 0, task);
  Judge(process, item.id(), view);
  co_return false;
}

Async<> Workload::Cancels(Process& process, DriverState& state) {
  SeededRandom& random = state.random;
  CallOptions call;
  call.arguments = NewCall(random.OneIn(2) ? Op::kForever : Op::kNested, random);
  call.arguments.count = 3;
  call.arguments.depth = 1;
  call.retries = random.OneIn(2) ? 0 : 2;
  call.lease = 2;
  const ObjectHandle result = Submit(process, random, call, {});
  co_await process.Sleep(
      {}, static_cast<Nanos>(random.Below(random.OneIn(3) ? 30'000 : 300)) * kMicrosecond);
  process.Cancel(result, random.OneIn(3), random.OneIn(2));
  co_await Read(process, {}, result);
}

Async<> Workload::Keys(Process& process, DriverState& state) {
  const std::string key = absl::StrCat("key of ", process.self.ToString());
  if (state.random.OneIn(2)) {
    if (state.written == UINT64_MAX) co_return;
    const uint64_t value = state.written + 1;
    state.written = UINT64_MAX;  // One writer at a time.
    proto::GcsRequest request;
    request.mutable_kv_put()->set_name_space("sim");
    request.mutable_kv_put()->set_key(key);
    request.mutable_kv_put()->set_value(absl::StrCat(value));
    request.mutable_kv_put()->set_overwrite(true);
    world_.oracle.Writes(key, value);
    const proto::GcsReply reply = co_await process.AskGcs({}, std::move(request));
    state.written = value;
    if (reply.error() == 0) world_.oracle.Acknowledged(key, value);
    co_return;
  }
  const uint64_t least = world_.oracle.LeastOf(key);
  proto::GcsRequest request;
  request.mutable_kv_get()->set_name_space("sim");
  request.mutable_kv_get()->add_keys(key);
  const proto::GcsReply reply = co_await process.AskGcs({}, std::move(request));
  if (reply.error() != 0) co_return;
  const std::string text =
      reply.kv_values().entries().empty() ? "0" : reply.kv_values().entries(0).value();
  world_.oracle.ReadsRegister(key, least, std::strtoull(text.c_str(), nullptr, 10));
}

Async<> Workload::Group(Process& process, DriverState& state) {
  proto::GroupRequest request;
  const uint64_t bundles = 1 + state.random.Below(2);
  for (uint64_t i = 0; i < bundles; ++i)
    (*request.add_bundles()->mutable_amounts())["bundle"] = kUnit;
  if (state.random.OneIn(2)) request.set_placement(proto::GroupRequest::SPREAD);
  const PlacementGroupId group = process.CreateGroup(std::move(request));
  const auto placed = [&] {
    const proto::GroupState* now = process.FindGroup(group);
    return now == nullptr || (now->state() != proto::GroupState::PENDING &&
                              now->state() != proto::GroupState::INFEASIBLE);
  };
  co_await Until(process, {}, kForever, placed, {Awaited::Kind::kGroup, {}});
  std::vector<ObjectHandle> results;
  for (uint64_t i = 0; i < 2; ++i) {
    CallOptions call;
    call.arguments = NewCall(Op::kPlain, state.random);
    call.group = group;
    results.push_back(Submit(process, state.random, call, {}));
  }
  for (const ObjectHandle& result : results) co_await Read(process, {}, result);
  if (state.random.OneIn(3)) {  // And an actor that lives in a bundle, as long as the group does.
    proto::LeaseSpec lease;
    (*lease.mutable_resources()->mutable_amounts())["bundle"] = kUnit;
    lease.mutable_strategy()->set_kind(proto::Strategy::PLACEMENT_GROUP);
    lease.mutable_strategy()->set_group_id(group.Binary());
    lease.mutable_strategy()->set_bundle(static_cast<int32_t>(state.random.Below(bundles + 1)) - 1);
    ActorHandle actor;
    if (co_await MakeDetached(process, state.random, lease, 0, &actor)) {
      CallOptions call;
      call.arguments = NewCall(Op::kActorCall, state.random);
      co_await Read(process, {}, CallActor(process, actor, call, {}));
    }
  }
  process.RemoveGroup(group);
}

}  // namespace sheaf::sim
