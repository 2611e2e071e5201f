// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/state_rows.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "object_store/server/store_server.h"
#include "raylet/queries/merge_rows.h"
#include "raylet/queries/row_budget.h"
#include "raylet/queries/stack_rows.h"
#include "raylet/scheduling/pending_reason.h"
#include "telemetry/row_filters.h"
#include "telemetry/why_counts.h"

namespace sheaf {
namespace {

constexpr int kMaxReasons = 32;  // Of one answer: each looks at all leases.

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

const char* PolicyName(PlacementGroupPolicy policy) {
  switch (policy) {
    case PlacementGroupPolicy::kPack:
      return "PACK";
    case PlacementGroupPolicy::kSpread:
      return "SPREAD";
    case PlacementGroupPolicy::kStrictPack:
      return "STRICT_PACK";
    case PlacementGroupPolicy::kStrictSpread:
      return "STRICT_SPREAD";
  }
  return "";
}

proto::StoreRow ToRow(const StoreStats& stats) {
  proto::StoreRow row;
  row.set_capacity_bytes(stats.capacity_bytes);
  row.set_used_bytes(stats.used_bytes);
  row.set_pinned_bytes(stats.pinned_bytes);
  row.set_spilled_bytes(stats.spilled_bytes);
  row.set_objects(stats.objects);
  row.set_populated_bytes(stats.populated_bytes);
  return row;
}

// Of the actors here whose creators are on other nodes: no raylet but this one knows their pids.
void AddPids(const StateRows::Sources& from, StateAsked& asked) {
  google::protobuf::RepeatedPtrField<proto::WorkerRow> rows;
  for (const Lease* lease : from.queue.Leases()) {
    if (!lease->spec->actor || lease->demand.owner.node == from.options.node ||
        !telemetry::MayHold("actor_id", lease->spec->actor_id.ToHex(), asked.message.filters()))
      continue;
    const auto worker = from.worker_of.find(lease->number);
    if (worker == from.worker_of.end()) continue;
    const auto process = from.processes.find(worker->second);
    if (process == from.processes.end()) continue;
    proto::WorkerRow& row = *rows.Add();
    row.set_process(worker->second.packed());
    row.set_os_pid(process->second.info.os_pid);
  }
  AppendPids(&rows, asked);
}

}  // namespace

void StateRows::Fill(StateAsked& asked) const {
  switch (asked.message.what()) {
    case proto::StateQuery::STATUS:
      FillStatus(asked);
      return;
    case proto::StateQuery::DEMAND:
      FillDemand(asked);
      FillGroups(asked);
      return;
    case proto::StateQuery::OBJECTS:
      FillStore(asked);
      return;
    case proto::StateQuery::DIGEST:
      if (asked.message.node() == 0 || asked.message.node() == from_.options.node) {
        FillDigest(*asked.answer.add_digests());
      }
      return;
    case proto::StateQuery::WORKERS:
      FillWorkers(asked);
      return;
    case proto::StateQuery::GROUPS:
      FillGroups(asked);
      return;
    case proto::StateQuery::ACTORS:
      FillDetachedActors(asked);
      AddPids(from_, asked);
      return;
    case proto::StateQuery::WHY:
      FillWhy(asked);
      return;
    case proto::StateQuery::STACKS:
      FillStacks(asked);
      return;
    default:
      return;  // The GCS knows better; FillWithoutGcs is for when it does not answer.
  }
}

void StateRows::FillStatus(StateAsked& asked) const {
  RowBudget budget(asked);
  proto::StateAnswer& answer = asked.answer;
  answer.set_metrics_url(from_.options.metrics_url);
  for (const std::string& feature : from_.options.features) answer.add_features(feature);
  for (const LeaseQueue::Pending& pending : from_.queue.AllPending()) {
    if (!budget.HasRoom(answer.demand())) break;
    proto::DemandRow& row = *answer.add_demand();
    pending.spec->resources.ToMap(*row.mutable_resources()->mutable_amounts());
    row.set_count(pending.missing);
    if (answer.demand_size() <= kMaxReasons) row.set_words(NamedReasonOf(pending));
    budget.Count(row);
  }
  FillStore(asked);
  FillWorkers(asked);
}

// What each node lacks is counted there, once, wherever it came from. Work for placement groups
// waits for these, which are listed themselves.
void StateRows::FillDemand(StateAsked& asked) const {
  google::protobuf::RepeatedPtrField<proto::DemandRow> rows;
  for (const LeaseQueue::Pending& pending : from_.queue.AllPending()) {
    const proto::LeaseSpec spec = ToMessage(*pending.spec);
    if (pending.missing == 0 || spec.strategy().kind() == proto::Strategy::PLACEMENT_GROUP)
      continue;
    proto::DemandRow& row = *rows.Add();
    *row.mutable_resources() = spec.resources();
    *row.mutable_selectors() = spec.strategy().selectors();
    row.set_count(pending.missing);
    row.set_infeasible(pending.infeasible);
    if (rows.size() <= kMaxReasons) row.set_words(NamedReasonOf(pending));
  }
  MergeDemand(rows, asked);
}

void StateRows::FillStore(StateAsked& asked) const {
  *asked.answer.mutable_store() = ToRow(from_.store.Stats());
  if (asked.message.what() != proto::StateQuery::OBJECTS) return;
  if (asked.message.counts_only()) {
    if (from_.adopted.empty()) return;
    proto::CountRow& adopted = *asked.answer.add_counts();
    adopted.set_key("store");
    adopted.set_count(from_.adopted.size());
    for (const auto& [id, nested] : from_.adopted) {
      if (const auto info = from_.store.Describe(id); info.ok())
        adopted.set_bytes(adopted.bytes() + info->size_bytes);
    }
    return;
  }
  RowBudget budget(asked);
  for (const auto& [id, nested] : from_.adopted) {  // Nobody else can list them.
    proto::ObjectRow object;
    object.set_object_id(id.ToHex());
    object.set_where("store");
    object.set_owner(id.maker().packed());
    object.set_borrowing_nodes(1);
    if (const auto info = from_.store.Describe(id); info.ok()) {
      object.set_size_bytes(info->size_bytes);
    }
    if (!telemetry::FiltersHold(object, asked.message.filters())) continue;
    if (!budget.HasRoom(asked.answer.objects())) return;
    budget.Count(object);
    *asked.answer.add_objects() = std::move(object);
  }
}

void StateRows::FillDigest(proto::NodeDigest& digest) const {
  digest.set_node(from_.options.node);
  from_.ledger.total().ToMap(*digest.mutable_total()->mutable_amounts());
  from_.ledger.available().ToMap(*digest.mutable_available()->mutable_amounts());
  *digest.mutable_store() = ToRow(from_.store.Stats());
  for (const auto& [process, worker] : from_.pool.workers())
    ++(*digest.mutable_workers())[WorkerStateName(worker.state)];
  for (const auto& [process, entry] : from_.processes) {
    if (entry.info.role != ProcessRole::kTool) digest.set_processes(digest.processes() + 1);
  }
  for (const LeaseQueue::Pending& pending : from_.queue.AllPending()) {
    digest.set_waiting(digest.waiting() + pending.missing);
    if (pending.infeasible) digest.set_infeasible(digest.infeasible() + pending.missing);
  }
}

void StateRows::FillWithoutGcs(StateAsked& asked) const {
  proto::StateAnswer& answer = asked.answer;
  const proto::StateQuery::What what = asked.message.what();
  if ((what == proto::StateQuery::NODES || what == proto::StateQuery::STATUS) &&
      answer.nodes_size() == 0) {
    proto::NodeRow& row = *answer.add_nodes();
    row.set_node(from_.options.node);
    row.set_address(from_.options.address);
    row.set_state(from_.is_drained()                              ? "DRAINED"
                  : from_.view.Find(from_.options.node)->draining ? "DRAINING"
                                                                  : "ALIVE");
    from_.ledger.total().ToMap(*row.mutable_total()->mutable_amounts());
    row.mutable_labels()->insert(from_.options.labels.begin(), from_.options.labels.end());
    row.set_host_name(from_.options.host_name);
    row.set_metrics_url(from_.options.metrics_url);
    row.set_start_time_unix_s(UnixSecondsAt(from_.options, from_.started_at));
    row.set_version(from_.options.version);
    FillAvailable(&row);
  }
  if (what != proto::StateQuery::JOBS || answer.jobs_size() > 0) return;
  for (const auto& [local, job] : from_.jobs) {
    proto::JobRow& row = *answer.add_jobs();
    row.set_job(job.number);
    row.set_driver(job.driver.packed());
    if (const auto it = from_.processes.find(job.driver); it != from_.processes.end()) {
      row.set_os_pid(it->second.info.os_pid);
    }
    row.set_name_space(job.start.name_space());
    row.set_entrypoint(job.start.entrypoint());
    row.set_state(!job.ended ? "RUNNING" : job.failed ? "FAILED" : "FINISHED");
    row.set_start_time_unix_s(UnixSecondsAt(from_.options, job.started_at));
  }
}

void StateRows::FillAvailable(proto::NodeRow* row) const {
  row->clear_available();
  from_.ledger.available().ToMap(*row->mutable_available()->mutable_amounts());
}

void StateRows::FillWorkers(StateAsked& asked) const {
  RowBudget budget(asked);
  for (const auto& [process, worker] : from_.pool.workers()) {
    proto::WorkerRow row;
    row.set_process(process.packed());
    row.set_state(WorkerStateName(worker.state));
    if (const auto job = from_.jobs.find(worker.job); job != from_.jobs.end())
      row.set_job(job->second.number);
    const auto entry = from_.processes.find(process);
    const bool is_attached = entry != from_.processes.end();
    if (is_attached) row.set_os_pid(entry->second.info.os_pid);
    if (const Lease* lease = is_attached ? from_.queue.Find(entry->second.lease) : nullptr) {
      row.set_owner(lease->demand.owner.packed());
      row.set_running(NameOf(*lease));
    }
    if (!telemetry::FiltersHold(row, asked.message.filters())) continue;
    if (!budget.HasRoom(asked.answer.workers())) return;
    budget.Count(row);
    *asked.answer.add_workers() = std::move(row);
  }
}

void StateRows::FillGroups(StateAsked& asked) const {
  google::protobuf::RepeatedPtrField<proto::GroupRow> rows;
  for (const PlacementGroupLedger::Group* group : from_.groups.Groups()) {
    proto::GroupRow& row = *rows.Add();
    row.set_group_id(group->spec.id.ToHex());
    row.set_name(group->spec.name);
    row.set_state(StateName(group->state));
    row.set_placement(PolicyName(group->spec.policy));
    row.set_detached(group->spec.detached);
    for (const Resources& bundle : group->spec.bundles) {
      bundle.ToMap(*row.add_bundles()->mutable_amounts());
    }
    for (const NodeNumber node : group->nodes) row.add_bundle_nodes(node);
    for (const LabelSelector& selector : group->spec.selectors) {
      *row.add_selectors() = ToMessage(selector);
    }
  }
  AppendNewGroups(&rows, asked);
}

void StateRows::FillDetachedActors(StateAsked& asked) const {
  google::protobuf::RepeatedPtrField<proto::ActorRow> rows;
  for (const auto& [id, actor] : from_.detached) {
    proto::ActorRow& row = *rows.Add();
    row.set_actor_id(id.ToHex());
    row.set_class_name(actor.start.class_name());
    row.set_name(actor.start.name());
    row.set_name_space(actor.start.job().start().name_space());
    row.set_state(actor.started ? "ALIVE" : actor.worker.process != 0 ? "STARTING" : "PENDING");
    row.set_process(actor.worker.packed());
    if (const auto it = from_.processes.find(actor.worker); it != from_.processes.end()) {
      row.set_os_pid(it->second.info.os_pid);
    }
    row.set_restarts(actor.start.restarts());
    row.set_job(actor.start.job().job());
    row.set_detached(true);
  }
  AppendNewActors(&rows, asked);
}

void StateRows::FillWhy(StateAsked& asked) const {
  std::vector<std::string> words;
  const auto id = PlacementGroupId::FromHex(asked.message.id());
  if (!id.ok()) {
    asked.answer.set_error(std::string(id.status().message()));
    return;
  }
  if (from_.group_states.contains(*id)) {
    words.push_back(absl::StrCat("the placement group ",
                                 WhyGroup(from_.groups, from_.queue, *id,
                                          [this](const Lease& lease) { return NameOf(lease); })));
  }
  const ActorId actor{id->maker_bits, id->sequence_bits};
  if (const auto it = from_.detached.find(actor); it != from_.detached.end()) {
    const proto::ActorStateReport state = ReportOf(it->second, from_.processes);
    words.push_back(state.has_started()
                        ? "the detached actor is alive"
                        : absl::StrCat("the detached actor waits for: ", state.pending()));
    if (const std::string reason = ReasonOfLease(RayletOf(from_.options.node), it->second.key);
        !reason.empty())
      words.push_back(reason);
  }
  asked.answer.set_words(absl::StrJoin(words, "\n"));
}

void StateRows::AddReason(ProcessId owner, proto::StateAnswer& said) const {
  for (auto row = said.mutable_counts()->begin(); row != said.mutable_counts()->end(); ++row) {
    if (row->key() != telemetry::kWhyLease) continue;
    const std::string reason = ReasonOfLease(owner, row->count());
    if (!reason.empty()) said.set_words(absl::StrCat(said.words(), "\n", reason));
    said.mutable_counts()->erase(row);
    return;
  }
}

std::string StateRows::ReasonOfLease(ProcessId owner, uint64_t key) const {
  if (const auto pending = from_.queue.FindPending(owner, key)) return ReasonOf(*pending);
  for (const Lease* lease : from_.queue.Leases()) {
    if (lease->demand.owner != owner || lease->demand.key != key) continue;
    if (!from_.worker_of.contains(lease->number))
      return WhyNoWorker(*lease, from_.pool.CountStates().starting);
  }
  return "";
}

void StateRows::FillStacks(StateAsked& asked) const {
  RowBudget budget(asked);
  for (const auto& [process, entry] : from_.processes) {
    if (entry.info.role == ProcessRole::kTool || !IsAboutStacksOf(asked.message, process)) continue;
    if (!budget.HasRoom(asked.answer.stacks())) return;
    proto::ProcessStacks& row = *asked.answer.add_stacks();
    row.set_process(process.packed());
    row.set_os_pid(entry.info.os_pid);
    row.set_driver(entry.info.role == ProcessRole::kDriver);
    row.set_running(from_.switchboard.RunningOf(process));
    budget.Count(row);
  }
}

std::string StateRows::NamedReasonOf(const LeaseQueue::Pending& pending) const {
  // What no node can run is said of the nodes, else of who waits.
  const bool of_nodes = pending.infeasible && pending.missing != 0;
  return absl::StrCat(pending.spec->name.empty() ? "a task" : pending.spec->name,
                      of_nodes ? ": " : " ", ReasonOf(pending));
}

std::string StateRows::NameOf(const Lease& lease) const {
  std::string running;
  if (const auto worker = from_.worker_of.find(lease.number); worker != from_.worker_of.end())
    running = from_.switchboard.RunningOf(worker->second);
  return running.empty() ? lease.spec->name : running;
}

std::string StateRows::ReasonOf(const LeaseQueue::Pending& pending) const {
  std::string words =
      WhyPending(pending, from_.queue, [this](const Lease& lease) { return NameOf(lease); });
  JobNumber job = 0;
  if (pending.demand.owner == RayletOf(from_.options.node)) {
    job = JobOfDetached(from_.detached, pending.demand.key);
  } else if (const auto it = from_.processes.find(pending.demand.owner);
             it != from_.processes.end()) {
    job = it->second.job;
  }
  const std::string pool = from_.pool.Words(job, pending.spec->environment);
  if (!pool.empty()) absl::StrAppend(&words, "; ", pool);
  return words;
}

}  // namespace sheaf
