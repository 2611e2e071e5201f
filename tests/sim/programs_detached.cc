// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors: what they ask for, and how a driver makes one.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "tests/sim/programs.h"

namespace sheaf::sim {
namespace {

constexpr uint64_t kSharedNames = 3;

}  // namespace

// What holds nothing while it runs, or a seat, or goes where a label is; all of it there is enough
// of, so each must start.
proto::LeaseSpec Workload::LeaseOfDetached(Random& random) {
  proto::LeaseSpec lease;
  auto& amounts = *lease.mutable_resources()->mutable_amounts();
  amounts["CPU"] = kUnit;
  (*lease.mutable_running()->mutable_amounts())["CPU"] = 0;
  if (random.OneIn(3)) lease.mutable_strategy()->set_kind(proto::Strategy::SPREAD);
  if (random.OneIn(3)) {  // Of one half of the nodes; any, where that half is gone.
    proto::LabelTerm* term = lease.mutable_strategy()->add_selectors()->add_terms();
    term->set_key("half");
    term->add_values(absl::StrCat(random.Below(2)));
    lease.mutable_strategy()->add_selectors();
  }
  // Who is away from the GCS for long leaves fewer seats than there were.
  const bool all_seats = world_.faults.away_every == 0 && world_.faults.cut_off_every == 0;
  if (seats_ > 0 && all_seats && random.OneIn(2)) {
    --seats_;
    amounts.clear();
    amounts["seat"] = kUnit;
    lease.clear_running();
    lease.mutable_strategy()->clear_selectors();  // Half of the nodes may have too few.
  }
  return lease;
}

Async<> Workload::Detached(Process& process, DriverState& state) {
  if (state.actors.size() >= 3) co_return;
  ActorHandle actor;
  if (state.random.OneIn(3)) co_return co_await SharedName(process, state);
  const proto::LeaseSpec lease = LeaseOfDetached(state.random);
  const int restarts[] = {0, 2, -1, -1};
  if (co_await MakeDetached(process, state.random, lease, restarts[state.random.Below(4)], &actor))
    state.actors.push_back(std::move(actor));
}

Async<> Workload::SharedName(Process& process, DriverState& state) {
  SeededRandom& random = state.random;
  const std::string name = absl::StrCat("shared ", random.Below(kSharedNames));
  proto::LeaseSpec lease;
  (*lease.mutable_resources()->mutable_amounts())["CPU"] = kUnit;
  (*lease.mutable_running()->mutable_amounts())["CPU"] = 0;
  ActorHandle actor;
  const int restarts[] = {0, -1};
  if (!co_await MakeDetached(process, random, lease, restarts[random.Below(2)], &actor, name))
    co_return;
  const ActorId id = actor.id;
  const bool known = std::any_of(state.actors.begin(), state.actors.end(),
                                 [&](const ActorHandle& other) { return other.id == id; });
  if (!known) state.actors.push_back(std::move(actor));
  if (!random.OneIn(3)) co_return;
  // Its end, and from the answer on the name is free.
  world_.oracle.ActorMayDie(id);
  proto::GcsRequest request;
  request.mutable_end_actor()->set_actor_id(id.Binary());
  request.mutable_end_actor()->mutable_death()->set_cause(proto::Death::KILLED);
  const proto::GcsReply reply = co_await process.AskGcs({}, std::move(request));
  if (reply.error() == 0) names_.IsOver(id);
}

// Somebody has the name that was asked for.
Async<bool> Workload::UseHolder(Process& process, const std::string& name, bool get_if_exists,
                                const std::set<ActorId>& over, const proto::GcsReply& reply,
                                ActorHandle* actor) {
  const ActorId holder = ActorId::FromBinary(reply.actor().actor_id()).value_or(ActorId());
  names_.IsTaken(name, holder, over);
  if (get_if_exists != (reply.error() == 0))
    world_.oracle.Fail("O3", absl::StrCat("'", name, "' is taken, and the answer is ",
                                          reply.error(), ": ", reply.message()));
  if (!get_if_exists) co_return false;
  proto::TaskTemplate creation;
  creation.ParseFromString(reply.actor().handle());
  actor->id = holder;
  actor->max_task_retries = creation.actor().max_task_retries();
  actor->handle = process.HandleOfActor(reply.actor());
  co_return true;
}

// False: the wait was ended, or the name of `shared` is taken.
Async<bool> Workload::MakeDetached(Process& process, Random& random, const proto::LeaseSpec& lease,
                                   int max_restarts, ActorHandle* actor,
                                   const std::string& shared) {
  const std::string name = shared.empty() ? absl::StrCat("detached ", next_name_++) : shared;
  const bool get_if_exists = !shared.empty() && random.OneIn(2);
  const std::set<ActorId> over = names_.over();
  actor->detached = true;
  actor->max_task_retries = random.OneIn(2) ? 0 : 3;
  const TemplateHandle& spec =
      process.Template(absl::StrCat(name, " ", actor->max_task_retries, " ", max_restarts, " ",
                                    get_if_exists, " ", lease.SerializeAsString()),
                       [&](proto::TaskTemplate* made) {
                         made->set_kind(proto::TaskTemplate::ACTOR_CREATION);
                         made->set_num_returns(1);
                         made->mutable_actor()->set_max_restarts(max_restarts);
                         made->mutable_actor()->set_max_task_retries(actor->max_task_retries);
                         made->mutable_actor()->set_detached(true);
                         made->mutable_actor()->set_name(name);
                         made->mutable_actor()->set_name_space("all");
                         made->mutable_actor()->set_get_if_exists(get_if_exists);
                         *made->mutable_lease() = lease;
                       });
  const CallArguments arguments = NewCall(Op::kConstruct, random);
  ArgumentList encoded;
  encoded.AddValue(AsBytes(arguments));
  const ActorId expected =
      ActorId::Make(process.self, process.owner().references.NextSequence() + 1);
  CallRecord& record =
      world_.oracle.Submitted({expected.maker_bits, expected.sequence_bits}, arguments);
  record.actor = expected;
  world_.oracle.ActorMade(expected, {}, max_restarts);
  if (lease.strategy().kind() == proto::Strategy::PLACEMENT_GROUP)
    world_.oracle.ActorMayDie(expected);
  detached_.push_back(expected);
  names_.Asks(name, expected);
  const proto::GcsReply reply =
      co_await process.RegisterDetached({}, spec, std::move(encoded), &actor->id);
  const bool taken = static_cast<ErrorKind>(reply.error()) == ErrorKind::kActorNameTaken ||
                     (reply.error() == 0 && reply.actor().actor_id() != expected.Binary());
  if (taken && !shared.empty())
    co_return co_await UseHolder(process, name, get_if_exists, over, reply, actor);
  if (reply.error() != 0) {
    const auto error = static_cast<ErrorKind>(reply.error());
    const bool left_out = error == ErrorKind::kNodeDied && world_.oracle.IsDead(process.self);
    const bool full = error == ErrorKind::kGcsStorageFull &&
                      world_.fault_counts[static_cast<size_t>(Fault::kGcsDiskFull)] > 0;
    if (error != ErrorKind::kSystem && !left_out && !full) {
      world_.oracle.Fail(
          "O1", absl::StrCat("the detached actor '", name, "' is refused: ", reply.message()));
    }
    co_return false;
  }
  names_.Has(name, expected);
  actor->handle = process.HandleOfActor(reply.actor());
  co_return true;
}

}  // namespace sheaf::sim
