// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/queries/merge_rows.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "base/message_limits.h"

namespace sheaf {
namespace {

constexpr uint32_t kMaxFunctionRows = 10'000;
constexpr int kMaxCounts = 64;

// Equal for equal shapes: the order of a map that travels is not.
std::string ShapeOf(const proto::DemandRow& row) {
  const absl::btree_map<std::string, int64_t> amounts(row.resources().amounts().begin(),
                                                      row.resources().amounts().end());
  std::string shape;
  for (const auto& [name, amount] : amounts) absl::StrAppend(&shape, name, ":", amount, ",");
  for (const proto::LabelSelector& selector : row.selectors()) {
    absl::StrAppend(&shape, ";", selector.SerializeAsString());
  }
  return shape;
}

constexpr auto kActorId = [](const proto::ActorRow& row) -> const std::string& {
  return row.actor_id();
};
constexpr auto kGroupId = [](const proto::GroupRow& row) -> const std::string& {
  return row.group_id();
};

// Those rows whose id is not among `to` yet: several may know of an actor, or of a placement group.
template <class Rows, class Id>
void AppendNew(Rows* from, Rows* to, Id id, RowBudget* budget) {
  absl::btree_set<std::string> known;
  for (const auto& row : *to) known.insert(id(row));
  for (auto it = from->begin(); it != from->end();) {
    it = known.contains(id(*it)) ? from->erase(it) : it + 1;
  }
  budget->Append(from, to);
}

}  // namespace

void MergeEnded(google::protobuf::RepeatedPtrField<proto::TaskRow>* rows, StateAsked& asked) {
  auto* const to = asked.answer.mutable_tasks();
  const int before = to->size();
  for (proto::TaskRow& row : *rows) *to->Add() = std::move(row);
  // Both parts are in this order.
  std::inplace_merge(to->pointer_begin(), to->pointer_begin() + before, to->pointer_end(),
                     [](const proto::TaskRow* a, const proto::TaskRow* b) {
                       const int64_t ended = a->end_unix_ns(), other = b->end_unix_ns();
                       return (ended == 0) != (other == 0) ? ended == 0 : ended > other;
                     });
  int kept = 0;
  for (size_t bytes = 0;
       kept < to->size() && static_cast<uint32_t>(kept) < asked.limit && bytes < kMaxStateBytes;
       ++kept) {
    bytes += to->Get(kept).ByteSizeLong();
  }
  if (kept == to->size()) return;
  to->DeleteSubrange(kept, to->size() - kept);
  asked.answer.set_truncated(true);
}

void MergeFunctions(const google::protobuf::RepeatedPtrField<proto::FunctionRow>& rows,
                    proto::StateAnswer& answer) {
  using Key = std::tuple<uint32_t, std::string, std::string>;
  const auto key = [](const proto::FunctionRow& row) {
    return Key{row.job(), row.type(), row.name()};
  };
  absl::btree_map<Key, proto::FunctionRow*> known;
  for (proto::FunctionRow& row : *answer.mutable_functions()) known[key(row)] = &row;
  for (const proto::FunctionRow& row : rows) {
    proto::FunctionRow*& sum = known[key(row)];
    if (sum == nullptr) {
      if (static_cast<uint32_t>(answer.functions_size()) >= kMaxFunctionRows) {
        answer.set_truncated(true);
        return;
      }
      sum = answer.add_functions();
      *sum = row;
      continue;
    }
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
                 proto::StateAnswer& answer) {
  if (rows.empty()) return;
  absl::btree_map<std::string, proto::DemandRow*> known;
  for (proto::DemandRow& row : *answer.mutable_demand()) known[ShapeOf(row)] = &row;
  for (const proto::DemandRow& row : rows) {
    proto::DemandRow*& sum = known[ShapeOf(row)];
    if (sum != nullptr) {
      sum->set_count(sum->count() + row.count());
      sum->set_infeasible(sum->infeasible() || row.infeasible());
      continue;
    }
    if (answer.demand_size() >= kMaxShapes) {
      answer.set_truncated(true);
      return;
    }
    sum = answer.add_demand();
    *sum = row;
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

void AppendNewActors(google::protobuf::RepeatedPtrField<proto::ActorRow>* rows,
                     proto::StateAnswer& answer, RowBudget& budget) {
  AppendNew(rows, answer.mutable_actors(), kActorId, &budget);
}

void AppendNewGroups(google::protobuf::RepeatedPtrField<proto::GroupRow>* rows,
                     proto::StateAnswer& answer, RowBudget& budget) {
  AppendNew(rows, answer.mutable_groups(), kGroupId, &budget);
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
  RowBudget budget(asked.answer, asked.limit);
  AppendNewGroups(&rows, asked.answer, budget);
}

}  // namespace sheaf
