// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/merge_rows.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/message_limits.h"
#include "raylet/queries/row_budget.h"
#include "scheduling/demand_shape.h"
#include "telemetry/row_filters.h"

namespace sheaf {
namespace {

constexpr int kMaxFunctionRows = 10'000;
constexpr int kMaxCounts = 64;

// Equal for equal shapes: the order of a map that travels is not.
const std::string& ActorIdOf(const proto::ActorRow& row) { return row.actor_id(); }
const std::string& GroupIdOf(const proto::GroupRow& row) { return row.group_id(); }

// Those rows that are wanted and whose id is not `known` yet: several may know of an actor, or of a
// placement group.
template <class Rows>
void AppendNew(Rows* from, Rows* to, const std::string& (*id)(const typename Rows::value_type& row),
               absl::flat_hash_set<std::string>& known, StateAsked& asked) {
  RowBudget budget(asked);
  for (auto& row : *from) {
    if (!telemetry::FiltersHold(row, asked.message.filters()) || known.contains(id(row))) continue;
    if (!budget.HasRoom(*to)) return;
    known.insert(id(row));
    budget.Count(row);
    *to->Add() = std::move(row);
  }
}

}  // namespace

void MergeEnded(google::protobuf::RepeatedPtrField<proto::TaskRow>* rows, StateAsked& asked) {
  auto* const to = asked.answer.mutable_tasks();
  const int before = to->size();
  for (proto::TaskRow& row : *rows) {
    asked.bytes += row.ByteSizeLong();
    *to->Add() = std::move(row);
  }
  // Both parts are in this order.
  std::inplace_merge(to->pointer_begin(), to->pointer_begin() + before, to->pointer_end(),
                     [](const proto::TaskRow* a, const proto::TaskRow* b) {
                       const int64_t ended = a->end_unix_ns(), other = b->end_unix_ns();
                       return (ended == 0) != (other == 0) ? ended == 0 : ended > other;
                     });
  int kept = to->size();
  while (kept > 0 && (static_cast<uint32_t>(kept) > asked.limit || asked.bytes > kMaxStateBytes))
    asked.bytes -= to->Get(--kept).ByteSizeLong();
  if (kept == to->size()) return;
  to->DeleteSubrange(kept, to->size() - kept);
  asked.answer.set_truncated(true);
}

void MergeFunctions(const google::protobuf::RepeatedPtrField<proto::FunctionRow>& rows,
                    StateAsked& asked) {
  proto::StateAnswer& answer = asked.answer;
  for (const proto::FunctionRow& row : rows) {
    const auto [known, is_new] = asked.function_places.try_emplace(
        std::tuple(row.job(), row.type(), row.name()), answer.functions_size());
    if (is_new) {
      if (answer.functions_size() >= kMaxFunctionRows) {
        asked.function_places.erase(known);
        answer.set_truncated(true);
        continue;  // Others may be there already.
      }
      *answer.add_functions() = row;
      continue;
    }
    proto::FunctionRow* const sum = answer.mutable_functions(known->second);
    sum->set_finished(sum->finished() + row.finished());
    sum->set_failed(sum->failed() + row.failed());
    sum->set_cancelled(sum->cancelled() + row.cancelled());
    sum->set_timed(sum->timed() + row.timed());
    sum->set_waiting_for_arguments(sum->waiting_for_arguments() + row.waiting_for_arguments());
    sum->set_waiting_for_place(sum->waiting_for_place() + row.waiting_for_place());
    sum->set_pushed(sum->pushed() + row.pushed());
    sum->set_running(sum->running() + row.running());
    sum->set_run_ns(sum->run_ns() + row.run_ns());
    sum->set_longest_ns(std::max(sum->longest_ns(), row.longest_ns()));
    if (sum->run_time_size() == 0) {
      *sum->mutable_run_time() = row.run_time();
      continue;
    }
    for (int i = 0; i < std::min(sum->run_time_size(), row.run_time_size()); ++i)
      sum->set_run_time(i, sum->run_time(i) + row.run_time(i));
  }
}

void MergeDemand(const google::protobuf::RepeatedPtrField<proto::DemandRow>& rows,
                 StateAsked& asked) {
  proto::StateAnswer& answer = asked.answer;
  for (const proto::DemandRow& row : rows) {
    const auto [known, is_new] =
        asked.demand_places.try_emplace(ShapeOf(row), answer.demand_size());
    if (!is_new) {
      proto::DemandRow& sum = *answer.mutable_demand(known->second);
      sum.set_count(sum.count() + row.count());
      sum.set_infeasible(sum.infeasible() || row.infeasible());
    } else if (answer.demand_size() >= kMaxShapes) {
      asked.demand_places.erase(known);
      answer.set_truncated(true);
    } else {
      *answer.add_demand() = row;
    }
  }
}

void KeepWaiting(proto::StateAnswer& answer) {
  auto* const groups = answer.mutable_groups();
  for (auto at = groups->begin(); at != groups->end();) {
    const bool waits = at->state() != "CREATED" && at->state() != "REMOVED";
    at = waits ? at + 1 : groups->erase(at);
  }
}

void MergeProfile(const google::protobuf::RepeatedPtrField<proto::ProfileNode>& rows,
                  StateAsked& asked) {
  auto* const to = asked.answer.mutable_profile();
  std::vector<uint32_t> places{0};  // Of the rows, from 1.
  for (const proto::ProfileNode& row : rows) {
    // Of another node, which may say anything.
    const uint32_t parent = row.parent() < places.size() ? places[row.parent()] : 0;
    const auto [known, is_new] = asked.profile_places.try_emplace(
        std::tuple(parent, row.job(), row.line(), row.function(), row.file()), to->size() + 1);
    if (is_new && to->size() >= kMaxProfileNodes) {
      asked.profile_places.erase(known);
      asked.answer.set_truncated(true);
      if (parent != 0) {
        proto::ProfileNode& above = *to->Mutable(static_cast<int>(parent) - 1);
        above.set_self_us(above.self_us() + row.self_us());
      }
      places.push_back(parent);
      continue;
    }
    places.push_back(known->second);
    if (is_new) {
      *to->Add() = row;
      to->Mutable(to->size() - 1)->set_parent(parent);
    } else {
      proto::ProfileNode& sum = *to->Mutable(static_cast<int>(known->second) - 1);
      sum.set_self_us(sum.self_us() + row.self_us());
    }
  }
}

void MergeCounts(const google::protobuf::RepeatedPtrField<proto::CountRow>& rows,
                 proto::StateAnswer& answer) {
  for (const proto::CountRow& row : rows) {
    auto& counts = *answer.mutable_counts();
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.key() == row.key(); });
    if (known == counts.end()) {
      if (counts.size() < kMaxCounts) *counts.Add() = row;
      continue;
    }
    known->set_count(known->count() + row.count());
    known->set_bytes(known->bytes() + row.bytes());
  }
}

void AppendNewActors(google::protobuf::RepeatedPtrField<proto::ActorRow>* rows, StateAsked& asked) {
  // A raylet that starts an actor anew does not know how the one before ended; the GCS does.
  absl::flat_hash_map<std::string_view, std::string_view> deaths;
  for (const proto::ActorRow& row : *rows) {
    const bool starts = row.state() != "ALIVE" && row.state() != "DEAD";
    if (starts && !row.death().empty() && asked.actors.contains(row.actor_id()))
      deaths.emplace(row.actor_id(), row.death());
  }
  for (proto::ActorRow& known : *asked.answer.mutable_actors()) {
    if (deaths.empty()) break;
    const auto death = deaths.find(known.actor_id());
    if (death != deaths.end() && known.state() == "PENDING")
      known.set_death(std::string(death->second));
  }
  AppendNew(rows, asked.answer.mutable_actors(), &ActorIdOf, asked.actors, asked);
}

void AppendPids(google::protobuf::RepeatedPtrField<proto::WorkerRow>* rows, StateAsked& asked) {
  for (proto::WorkerRow& row : *rows) {
    if (asked.bytes >= kMaxStateBytes) return;
    asked.bytes += row.ByteSizeLong();
    *asked.answer.add_workers() = std::move(row);
  }
}

void GivePids(proto::StateAnswer& answer) {
  absl::flat_hash_map<uint64_t, int32_t> pids;
  for (const proto::WorkerRow& worker : answer.workers())
    pids.emplace(worker.process(), worker.os_pid());
  answer.clear_workers();
  for (proto::ActorRow& actor : *answer.mutable_actors()) {
    const auto pid = pids.find(actor.process());
    if (actor.os_pid() == 0 && pid != pids.end()) actor.set_os_pid(pid->second);
  }
}

void AppendNewGroups(google::protobuf::RepeatedPtrField<proto::GroupRow>* rows, StateAsked& asked) {
  AppendNew(rows, asked.answer.mutable_groups(), &GroupIdOf, asked.groups, asked);
}

void AppendGroupsOfGcs(const proto::GroupList& groups, StateAsked& asked) {
  google::protobuf::RepeatedPtrField<proto::GroupRow> rows;
  for (const proto::GroupInfo& info : groups.groups()) {
    proto::GroupRow& row = *rows.Add();
    const auto id = PlacementGroupId::FromBinary(info.group_id());
    row.set_group_id(id.ok() ? id->ToHex() : "");
    row.set_name(info.name());
    row.set_state(proto::GroupInfo::State_Name(info.state()));
    row.set_placement(proto::GroupRequest::Placement_Name(info.placement()));
    row.set_detached(info.detached());
    *row.mutable_bundles() = info.bundles();
    *row.mutable_bundle_nodes() = info.bundle_nodes();
    *row.mutable_selectors() = info.selectors();
  }
  AppendNewGroups(&rows, asked);
}

}  // namespace sheaf
