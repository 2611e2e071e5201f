// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Detached actors: what they ask for, and how a driver makes one.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "tests/sim/programs.h"

namespace sheaf::sim {

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
  const proto::LeaseSpec lease = LeaseOfDetached(state.random);
  const int restarts[] = {0, 2, -1, -1};
  if (co_await MakeDetached(process, state.random, lease, restarts[state.random.Below(4)], &actor))
    state.actors.push_back(std::move(actor));
}

// False: the wait was ended.
Async<bool> Workload::MakeDetached(Process& process, Random& random, const proto::LeaseSpec& lease,
                                   int max_restarts, ActorHandle* actor) {
  const std::string name = absl::StrCat("detached ", next_name_++);
  actor->detached = true;
  actor->max_task_retries = random.OneIn(2) ? 0 : 3;
  TemplateRecord& spec =
      process.Template(absl::StrCat("detached ", actor->max_task_retries, " ", max_restarts, " ",
                                    lease.SerializeAsString()),
                       [&](proto::TaskTemplate* made) {
                         made->set_kind(proto::TaskTemplate::ACTOR_CREATION);
                         made->set_num_returns(1);
                         made->mutable_actor()->set_max_restarts(max_restarts);
                         made->mutable_actor()->set_max_task_retries(actor->max_task_retries);
                         made->mutable_actor()->set_detached(true);
                         *made->mutable_lease() = lease;
                       });
  const CallArguments arguments = NewCall(Op::kConstruct, random);
  Arguments encoded;
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
  const proto::GcsReply reply =
      co_await process.RegisterDetached({}, spec, std::move(encoded), name, &actor->id);
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
  actor->handle = process.HandleOfActor(reply.actor());
  co_return true;
}

}  // namespace sheaf::sim
