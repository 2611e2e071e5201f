// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What this raylet itself can say to a state query: its workers, demands, store, groups, and the
// detached actors that it hosts.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "object_store/store_owner.h"
#include "raylet/raylet.h"
#include "raylet/row_budget.h"
#include "raylet/scheduling/pending_reason.h"

namespace sheaf {
namespace {

constexpr size_t kMaxWhyRows = 3;

const char* StateName(proto::GroupState::State state) {
  switch (state) {
    case proto::GroupState::PENDING:
      return "PENDING";
    case proto::GroupState::CREATED:
      return "CREATED";
    case proto::GroupState::INFEASIBLE:
      return "INFEASIBLE";
    default:
      return "REMOVED";
  }
}

const char* PolicyName(GroupPolicy policy) {
  switch (policy) {
    case GroupPolicy::kPack:
      return "PACK";
    case GroupPolicy::kSpread:
      return "SPREAD";
    case GroupPolicy::kStrictPack:
      return "STRICT_PACK";
    case GroupPolicy::kStrictSpread:
      return "STRICT_SPREAD";
  }
  return "";
}

}  // namespace

void Raylet::FillFromHere(Query* query) {
  switch (query->message.what()) {
    case proto::StateQuery::STATUS:
      FillStatus(query);
      return;
    case proto::StateQuery::OBJECTS:
      FillStore(query);
      return;
    case proto::StateQuery::WORKERS:
      FillWorkers(query);
      return;
    case proto::StateQuery::GROUPS:
      FillGroups(query);
      return;
    case proto::StateQuery::ACTORS:
      FillDetachedActors(query);
      return;
    case proto::StateQuery::WHY:
      FillWhy(query);
      return;
    default:
      return;  // The GCS knows better; see FinishQuery for when it does not answer.
  }
}

void Raylet::FillStatus(Query* query) {
  RowBudget budget(query->answer, query->limit);
  proto::StateAnswer& answer = query->answer;
  answer.set_metrics_url(options_.metrics_url);
  for (const std::string& feature : options_.features) answer.add_features(feature);
  for (const LeaseQueue::Pending& pending : queue_.AllPending()) {
    if (!budget.HasRoom(answer.demand())) break;
    proto::DemandRow& row = *answer.add_demand();
    pending.spec->resources.ToMap(*row.mutable_resources()->mutable_amounts());
    row.set_count(pending.missing);
    row.set_words(WordsFor(pending));
    budget.Count(row);
  }
  FillStore(query);
  FillWorkers(query);
}

void Raylet::FillStore(Query* query) {
  const StoreStats stats = world_.store.Stats();
  proto::StoreRow& row = *query->answer.mutable_store();
  row.set_capacity_bytes(stats.capacity_bytes);
  row.set_used_bytes(stats.used_bytes);
  row.set_pinned_bytes(stats.pinned_bytes);
  row.set_spilled_bytes(stats.spilled_bytes);
  row.set_objects(stats.objects);
  row.set_populated_bytes(stats.populated_bytes);
  if (query->message.what() != proto::StateQuery::OBJECTS) return;
  RowBudget budget(query->answer, query->limit);
  for (const auto& [id, nested] : adopted_) {  // Nobody else can list them.
    if (!budget.HasRoom(query->answer.objects())) return;
    proto::ObjectRow& object = *query->answer.add_objects();
    object.set_object_id(id.ToHex());
    object.set_where("store");
    object.set_owner(id.maker().packed());
    object.set_borrowing_nodes(1);
    if (const auto info = world_.store.Describe(id); info.ok()) {
      object.set_size_bytes(info->size_bytes);
    }
    budget.Count(object);
  }
}

void Raylet::FillWithoutGcs(Query* query) {
  proto::StateAnswer& answer = query->answer;
  const proto::StateQuery::What what = query->message.what();
  if ((what == proto::StateQuery::NODES || what == proto::StateQuery::STATUS) &&
      answer.nodes_size() == 0) {
    proto::NodeRow& row = *answer.add_nodes();
    row.set_node(options_.node);
    row.set_address(options_.address);
    row.set_state(shutting_down_ ? "DRAINING" : "ALIVE");
    ledger_.total().ToMap(*row.mutable_total()->mutable_amounts());
    row.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
    row.set_host_name(options_.host_name);
    row.set_metrics_url(options_.metrics_url);
    row.set_start_time_unix_s(UnixSeconds(started_at_));
    row.set_version(options_.version);
    FillAvailable(&row);
  }
  if (what != proto::StateQuery::JOBS || answer.jobs_size() > 0) return;
  for (const auto& [local, job] : jobs_) {
    proto::JobRow& row = *answer.add_jobs();
    row.set_job(job.number);
    row.set_driver(job.driver.packed());
    if (const auto it = processes_.find(job.driver); it != processes_.end()) {
      row.set_os_pid(it->second.info.os_pid);
    }
    row.set_name_space(job.start.name_space());
    row.set_entrypoint(job.start.entrypoint());
    row.set_state(!job.ended ? "RUNNING" : job.failed ? "FAILED" : "FINISHED");
    row.set_start_time_unix_s(UnixSeconds(job.started_at));
  }
}

void Raylet::FillAvailable(proto::NodeRow* row) const {
  row->clear_available();
  ledger_.available().ToMap(*row->mutable_available()->mutable_amounts());
}

void Raylet::FillWorkers(Query* query) {
  RowBudget budget(query->answer, query->limit);
  for (const auto& [process, worker] : pool_.workers()) {
    if (!budget.HasRoom(query->answer.workers())) return;
    proto::WorkerRow& row = *query->answer.add_workers();
    row.set_process(process.packed());
    row.set_state(WorkerStateName(worker.state));
    if (const auto job = jobs_.find(worker.job); job != jobs_.end())
      row.set_job(job->second.number);
    const auto entry = processes_.find(process);
    if (entry == processes_.end()) continue;
    row.set_os_pid(entry->second.info.os_pid);
    if (const Lease* lease = queue_.Find(entry->second.lease)) {
      row.set_owner(lease->demand.owner.packed());
      const std::string running = world_.switchboard.RunningOf(process);
      row.set_running(running.empty() ? lease->spec->name : running);
    }
    budget.Count(row);
  }
}

void Raylet::FillGroups(Query* query) {
  RowBudget budget(query->answer, query->limit);
  for (const GroupLedger::Group* group : groups_.Groups()) {
    if (!budget.HasRoom(query->answer.groups())) return;
    proto::GroupRow& row = *query->answer.add_groups();
    row.set_group_id(group->spec.id.ToHex());
    row.set_name(group->spec.name);
    row.set_state(StateName(group->state));
    row.set_placement(PolicyName(group->spec.policy));
    row.set_detached(group->spec.detached);
    for (const Resources& bundle : group->spec.bundles) {
      bundle.ToMap(*row.add_bundles()->mutable_amounts());
    }
    for (const NodeNumber node : group->nodes) row.add_bundle_nodes(node);
    budget.Count(row);
  }
}

void Raylet::FillDetachedActors(Query* query) {
  RowBudget budget(query->answer, query->limit);
  for (const auto& [id, actor] : detached_) {
    if (!budget.HasRoom(query->answer.actors())) return;
    proto::ActorRow& row = *query->answer.add_actors();
    row.set_actor_id(id.ToHex());
    row.set_class_name(actor.start.class_name());
    row.set_name(actor.start.name());
    row.set_name_space(actor.start.job().start().name_space());
    row.set_state(actor.started ? "ALIVE" : actor.worker.process != 0 ? "STARTING" : "PENDING");
    row.set_process(actor.worker.packed());
    if (const auto it = processes_.find(actor.worker); it != processes_.end()) {
      row.set_os_pid(it->second.info.os_pid);
    }
    row.set_restarts(actor.start.restarts());
    row.set_job(actor.start.job().job());
    row.set_detached(true);
    budget.Count(row);
  }
}

void Raylet::FillWhy(Query* query) {
  std::vector<std::string> words;
  const auto id = PlacementGroupId::FromHex(query->message.id());
  if (!id.ok()) {
    query->answer.set_error(std::string(id.status().message()));
    return;
  }
  if (group_states_.contains(*id)) {
    words.push_back(absl::StrCat("the placement group ", WhyGroup(groups_, queue_, *id)));
  }
  const ActorId actor{id->maker_bits, id->sequence_bits};
  ProcessId owner = id->maker();
  if (const auto it = detached_.find(actor); it != detached_.end()) {
    const proto::ActorStateReport state = StateOf(it->second);
    words.push_back(state.has_started()
                        ? "the detached actor is alive"
                        : absl::StrCat("the detached actor waits for: ", state.pending()));
    owner = RayletOf(options_.node);
  }
  for (const LeaseQueue::Pending& pending : queue_.AllPending()) {
    if (pending.demand.owner != owner || words.size() >= kMaxWhyRows) continue;
    words.push_back(WordsFor(pending));
  }
  for (const Lease* lease : queue_.Leases()) {
    if (lease->demand.owner != owner || worker_of_.contains(lease->number)) continue;
    if (words.size() >= kMaxWhyRows) break;
    words.push_back(WhyNoWorker(*lease, pool_.CountStates().starting));
  }
  query->answer.set_words(absl::StrJoin(words, "\n"));
}

std::string Raylet::WordsFor(const LeaseQueue::Pending& pending) const {
  std::string words = absl::StrCat(pending.spec->name.empty() ? "a task" : pending.spec->name, " ",
                                   WhyPending(pending, queue_));
  JobNumber job = 0;
  if (pending.demand.owner == RayletOf(options_.node)) {
    job = DetachedJobOf(pending.demand.key);
  } else if (const auto it = processes_.find(pending.demand.owner); it != processes_.end()) {
    job = it->second.job;
  }
  const std::string pool = pool_.Words(job, pending.spec->environment);
  if (!pool.empty()) absl::StrAppend(&words, "; ", pool);
  return words;
}

}  // namespace sheaf
