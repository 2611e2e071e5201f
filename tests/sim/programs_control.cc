// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What drivers ask of the GCS besides the work of the other programs, so that each of its methods
// is used. Every answer is compared with what it must be, however often the question was lost or
// came.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "tests/sim/programs.h"

namespace sheaf::sim {
namespace {

constexpr size_t kFunctionBytes = 300;

// The wait was ended, or the process has no say any more: nothing follows from the answer.
bool IsOver(const proto::GcsReply& reply) {
  const auto error = static_cast<ErrorKind>(reply.error());
  return error == ErrorKind::kSystem || error == ErrorKind::kNodeDied;
}

// It did not happen, and whoever wants it asks again later.
bool IsFull(const proto::GcsReply& reply) {
  return static_cast<ErrorKind>(reply.error()) == ErrorKind::kGcsStorageFull;
}

}  // namespace

Mix Mix::OfJobs(Random& random) {
  Mix mix;
  for (uint32_t* weight :
       {&mix.tasks, &mix.chains, &mix.objects, &mix.large, &mix.nested, &mix.makes_object,
        &mix.fails, &mix.crashes, &mix.actors, &mix.actor_calls, &mix.streams, &mix.cancels,
        &mix.keys, &mix.groups, &mix.detached})
    *weight = 0;
  mix.commands = 1;
  mix.threads = 1 + static_cast<int>(random.Below(3));
  return mix;
}

Mix Mix::OfMethods(Random& random) {
  Mix mix;
  mix.control = 20;
  mix.detached = 4;
  mix.groups = 4;
  mix.threads = 1 + static_cast<int>(random.Below(3));
  return mix;
}

Async<> Workload::Control(Process& process, DriverState& state) {
  switch (state.random.Below(8)) {
    case 0:
      co_await Functions(process, state);
      break;
    case 1:
      co_await OneKey(process);
      break;
    case 2:
      co_await Lists(process);
      break;
    case 3:
      co_await NamedActor(process);
      break;
    case 4: {  // Somebody's: those that call it see it die.
      if (detached_.empty()) break;
      const ActorId actor = detached_[state.random.Below(detached_.size())];
      world_.oracle.ActorMayDie(actor);
      process.EndDetachedActor(actor, true);
      break;
    }
    case 5:
    case 6:
      co_await Command(process, state);
      break;
    default:
      co_await DetachedGroup(process);
      break;
  }
}

Async<> Workload::Functions(Process& process, DriverState&) {
  const uint64_t id = next_id_++;
  const std::string hash = absl::StrCat("function ", id);
  const std::string data = world_.oracle.Value(id, kFunctionBytes);
  proto::GcsRequest put;
  put.mutable_kv_put()->set_name_space("functions");
  put.mutable_kv_put()->set_key(hash);
  put.mutable_kv_put()->set_value(data);
  put.mutable_kv_put()->set_owner(process.job());
  const proto::GcsReply kept = co_await process.AskGcs({}, std::move(put));
  if (IsOver(kept)) co_return;
  proto::GcsRequest get;
  get.mutable_kv_get()->set_name_space("functions");
  get.mutable_kv_get()->add_keys(hash);
  const proto::GcsReply found = co_await process.AskGcs({}, std::move(get));
  if (IsOver(found)) co_return;
  proto::GcsRequest own, list;
  own.mutable_kv_own()->set_name_space("functions");
  own.mutable_kv_own()->add_keys(hash);
  own.mutable_kv_own()->set_owner(process.job());
  const proto::GcsReply owned = co_await process.AskGcs({}, std::move(own));
  if (IsOver(owned)) co_return;
  list.mutable_kv_list()->set_name_space("functions");
  list.mutable_kv_list()->set_prefix(hash);
  const proto::GcsReply listed = co_await process.AskGcs({}, std::move(list));
  if (IsOver(listed)) co_return;
  const auto& rows = listed.kv_listing().entries();
  const bool is_listed = std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
    return row.key() == hash && row.bytes() == data.size() && row.owners_size() == 1 &&
           row.owners(0) == process.job();
  });
  if (kept.error() != 0 || found.error() != 0 || found.kv_values().entries_size() != 1 ||
      found.kv_values().entries(0).value() != data || owned.kv_count().count() != 1 || !is_listed)
    world_.oracle.Fail(
        "O3", absl::StrCat("the function '", hash, "' is not what was put: ", kept.message(), " ",
                           found.message(), " ", owned.message(), " ", listed.message()));
}

// A key that nobody else knows: each command is done once.
Async<> Workload::OneKey(Process& process) {
  const std::string key = absl::StrCat("one key ", next_id_++, ".");  // The begin of no other.
  const auto with_key = [&key](auto* body) {
    body->set_name_space("control");
    body->set_key(key);
  };
  std::string wrong;
  for (const bool is_new : {true, false}) {
    proto::GcsRequest put;
    with_key(put.mutable_kv_put());
    put.mutable_kv_put()->set_value("value");
    const proto::GcsReply reply = co_await process.AskGcs({}, std::move(put));
    if (IsOver(reply)) co_return;
    if (reply.error() != 0 || reply.kv_put().added() != is_new)
      absl::StrAppend(&wrong, " put (", is_new, ") says ", reply.kv_put().added());
  }
  const uint64_t subscription = next_id_++;
  proto::GcsRequest follow;
  follow.mutable_subscribe()->set_subscription(subscription);
  follow.mutable_subscribe()->set_channel(proto::Subscribe::KEY_VALUES);
  follow.mutable_subscribe()->set_name_space("control");
  follow.mutable_subscribe()->set_key(key);
  const proto::GcsReply followed = co_await process.AskGcs({}, std::move(follow));
  if (IsOver(followed)) co_return;
  if (followed.error() != 0 || followed.snapshot().items_size() != 1)
    absl::StrAppend(&wrong, " its snapshot has ", followed.snapshot().items_size(), " items");
  for (const uint64_t there : {1, 0, 0}) {
    proto::GcsRequest exists, keys, remove;
    exists.mutable_kv_exists()->set_name_space("control");
    exists.mutable_kv_exists()->add_keys(key);
    keys.mutable_kv_keys()->set_name_space("control");
    keys.mutable_kv_keys()->set_prefix(key);
    with_key(remove.mutable_kv_delete());
    const proto::GcsReply seen = co_await process.AskGcs({}, std::move(exists));
    if (IsOver(seen)) co_return;
    const proto::GcsReply listed = co_await process.AskGcs({}, std::move(keys));
    if (IsOver(listed)) co_return;
    const proto::GcsReply removed = co_await process.AskGcs({}, std::move(remove));
    if (IsOver(removed)) co_return;
    const auto listed_count = static_cast<uint64_t>(listed.kv_keys().keys_size());
    if (seen.kv_count().count() != there || listed_count != there ||
        removed.kv_count().count() != there)
      absl::StrAppend(&wrong, " with ", there, " there: exists ", seen.kv_count().count(),
                      ", listed ", listed_count, ", deleted ", removed.kv_count().count());
  }
  proto::GcsRequest leave;
  leave.mutable_unsubscribe()->set_subscription(subscription);
  const proto::GcsReply left = co_await process.AskGcs({}, std::move(leave));
  if (IsOver(left)) co_return;
  if (left.error() != 0) absl::StrAppend(&wrong, " unsubscribe: ", left.message());
  if (!wrong.empty()) world_.oracle.Fail("O3", absl::StrCat("'", key, "':", wrong));
}

// A command that nobody else knows is accepted once, runs, is stopped or not, ends once, and is
// forgotten.
Async<> Workload::Command(Process& process, DriverState& state) {
  const std::string id = absl::StrCat("command.", next_id_++);
  proto::GcsRequest submit;
  submit.mutable_submit_entrypoint()->mutable_entrypoint()->set_submission_id(id);
  submit.mutable_submit_entrypoint()->mutable_entrypoint()->set_command("true");
  submit.mutable_submit_entrypoint()->set_idempotency_key(id);
  const proto::GcsReply accepted = co_await process.AskGcs({}, std::move(submit));
  if (IsOver(accepted) || IsFull(accepted)) co_return;
  if (accepted.error() != 0)
    world_.oracle.Fail("O3", absl::StrCat("'", id, "' is refused: ", accepted.message()));
  const bool stopped = state.random.OneIn(2);
  if (stopped) {
    co_await process.Sleep({}, world_.Between(0, 50 * kMillisecond));
    proto::GcsRequest stop;
    stop.mutable_stop_submission()->set_submission_id(id);
    const proto::GcsReply told = co_await process.AskGcs({}, std::move(stop));
    if (IsOver(told) || IsFull(told)) co_return;
    if (told.error() != 0)
      world_.oracle.Fail("O3", absl::StrCat("'", id, "' is not there to stop: ", told.message()));
  }
  proto::Submission last;
  for (int looks = 0; last.state() <= proto::Submission::RUNNING && looks < 40; ++looks) {
    co_await process.Sleep({}, world_.Between(kMillisecond, 50 * kMillisecond));
    proto::GcsRequest get;
    get.mutable_get_submission()->set_submission_id(id);
    const proto::GcsReply found = co_await process.AskGcs({}, std::move(get));
    if (IsOver(found)) co_return;
    if (found.error() != 0)
      world_.oracle.Fail("O3", absl::StrCat("'", id, "' is lost: ", found.message()));
    last = found.submission();
  }
  const bool ended = last.state() > proto::Submission::RUNNING;
  if (ended) world_.oracle.CommandIsOver(id, last.state(), stopped);
  proto::GcsRequest list, forget;
  list.mutable_list_submissions()->set_limit(10'000);
  const proto::GcsReply listed = co_await process.AskGcs({}, std::move(list));
  if (IsOver(listed)) co_return;
  const auto& rows = listed.submissions().submissions();
  if (std::count_if(rows.begin(), rows.end(), [&](const proto::Submission& row) {
        return row.entrypoint().submission_id() == id;
      }) != 1)
    world_.oracle.Fail("O3", absl::StrCat("'", id, "' is not listed once"));
  forget.mutable_delete_submission()->set_submission_id(id);
  const proto::GcsReply forgotten = co_await process.AskGcs({}, std::move(forget));
  if (IsOver(forgotten) || IsFull(forgotten)) co_return;
  // Asked again after an answer that was lost, it is gone already.
  const auto refused = static_cast<ErrorKind>(forgotten.error());
  if (ended && refused != ErrorKind::kNone && refused != ErrorKind::kNotFound)
    world_.oracle.Fail(
        "O3", absl::StrCat("'", id, "' has ended and cannot be deleted: ", forgotten.message()));
}

Async<> Workload::Lists(Process& process) {
  proto::GcsRequest cluster, nodes, jobs, actors, groups, events, demand;
  cluster.mutable_describe_cluster();
  nodes.mutable_list_nodes();
  jobs.mutable_list_jobs();
  actors.mutable_list_actors()->set_all_name_spaces(true);
  groups.mutable_list_groups();
  events.mutable_list_events();
  demand.mutable_list_demand();
  const proto::GcsReply happened = co_await process.AskGcs({}, std::move(events));
  if (IsOver(happened)) co_return;
  if (happened.error() != 0)
    world_.oracle.Fail("O3", absl::StrCat("events are not listed: ", happened.message()));
  const proto::GcsReply described = co_await process.AskGcs({}, std::move(cluster));
  if (IsOver(described)) co_return;
  if (cluster_id_.empty()) cluster_id_ = described.cluster().cluster_id();
  if (described.cluster().cluster_id() != cluster_id_)
    world_.oracle.Fail("O3", "the cluster has another id than before");
  const proto::GcsReply listed = co_await process.AskGcs({}, std::move(nodes));
  if (IsOver(listed)) co_return;
  const auto& rows = listed.nodes().nodes();
  if (std::none_of(rows.begin(), rows.end(),
                   [&](const auto& row) { return row.node() == process.self.node; }))
    world_.oracle.Fail("O3", absl::StrCat("node ", process.self.node, " is not listed"));
  const proto::GcsReply running = co_await process.AskGcs({}, std::move(jobs));
  if (IsOver(running)) co_return;
  const auto& all = running.jobs().jobs();
  if (std::none_of(all.begin(), all.end(), [&](const auto& row) {
        return row.job() == process.job() && row.state() == proto::JobInfo::RUNNING;
      }))
    world_.oracle.Fail("O3", absl::StrCat("job ", process.job(), " is not listed as running"));
  const proto::GcsReply living = co_await process.AskGcs({}, std::move(actors));
  if (IsOver(living)) co_return;
  const proto::GcsReply placed = co_await process.AskGcs({}, std::move(groups));
  if (IsOver(placed)) co_return;
  const proto::GcsReply waiting = co_await process.AskGcs({}, std::move(demand));
  if (IsOver(waiting)) co_return;
  if (living.error() != 0 || placed.error() != 0 || waiting.error() != 0)
    world_.oracle.Fail(
        "O3", absl::StrCat(living.message(), " ", placed.message(), " ", waiting.message()));
}

// An actor that its creator looks after: the GCS knows its name, until it is told of its end.
Async<> Workload::NamedActor(Process& process) {
  const std::string name = absl::StrCat("named ", next_name_++);
  const auto registration = [&] {
    proto::GcsRequest request;
    proto::RegisterActor& actor = *request.mutable_register_actor();
    actor.set_actor_id(
        ActorId::Make(process.self, process.owner().references.NextSequence()).Binary());
    actor.set_name(name);
    actor.set_name_space("control");
    actor.set_job(process.job());
    return request;
  };
  proto::GcsRequest first = registration();
  const std::string id = first.register_actor().actor_id();
  const proto::GcsReply made = co_await process.AskGcs({}, std::move(first));
  if (IsOver(made)) co_return;
  const proto::GcsReply refused = co_await process.AskGcs({}, registration());
  if (IsOver(refused)) co_return;
  proto::GcsRequest by_name;
  by_name.mutable_lookup_actor()->set_name(name);
  by_name.mutable_lookup_actor()->set_name_space("control");
  const proto::GcsReply found = co_await process.AskGcs({}, by_name);
  if (IsOver(found)) co_return;
  proto::GcsRequest end;
  end.mutable_end_actor()->set_actor_id(id);
  end.mutable_end_actor()->mutable_death()->set_cause(proto::Death::LEFT);
  const proto::GcsReply ended = co_await process.AskGcs({}, std::move(end));
  if (IsOver(ended)) co_return;
  const proto::GcsReply gone = co_await process.AskGcs({}, std::move(by_name));
  if (IsOver(gone)) co_return;
  // What was done before a crash of the GCS, and is asked again behind it, finds nothing to end.
  const auto end_error = static_cast<ErrorKind>(ended.error());
  if (made.error() != 0 || static_cast<ErrorKind>(refused.error()) != ErrorKind::kActorNameTaken ||
      found.actor().actor_id() != id ||
      (end_error != ErrorKind::kNone && end_error != ErrorKind::kNotFound) ||
      static_cast<ErrorKind>(gone.error()) != ErrorKind::kNotFound)
    world_.oracle.Fail("O3", absl::StrCat("'", name, "': registered ", made.error(), " again ",
                                          refused.error(), " found ", found.error(), " ended ",
                                          ended.error(), " then found ", gone.error()));
}

Async<> Workload::DetachedGroup(Process& process) {
  const std::string name = absl::StrCat("group ", next_name_++);
  proto::GroupRequest request;
  (*request.add_bundles()->mutable_amounts())["bundle"] = kUnit;
  request.set_name(name);
  request.set_detached(true);
  const PlacementGroupId group = process.CreateGroup(std::move(request));
  detached_groups_.push_back(group);
  const auto placed = [&] {
    const proto::GroupState* now = process.FindGroup(group);
    return now == nullptr || (now->state() != proto::GroupState::PENDING &&
                              now->state() != proto::GroupState::INFEASIBLE);
  };
  const Waited waited = co_await Until(process, {}, kForever, placed, {Awaited::Kind::kGroup, {}});
  if (waited != Waited::kDone) co_return;
  proto::GcsRequest lookup;
  lookup.mutable_lookup_group()->set_group_id(group.Binary());
  const proto::GcsReply found = co_await process.AskGcs({}, std::move(lookup));
  if (IsOver(found)) co_return;
  if (found.error() != 0 || found.group().name() != name)
    world_.oracle.Fail("O3",
                       absl::StrCat("the group '", name, "' is not found: ", found.message()));
  if (world_.random.OneIn(2)) co_return;  // It stays until the end of the run.
  process.RemoveGroup(group);
}

Async<> Workload::EndGroup(Process& process, PlacementGroupId group) {
  proto::GcsRequest request;
  request.mutable_remove_group()->set_group_id(group.Binary());
  co_await process.AskGcs({}, std::move(request));
}

}  // namespace sheaf::sim
