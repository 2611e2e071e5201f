// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "gcs/submissions/waiting_demand.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "scheduling/demand_shape.h"

namespace sheaf {
namespace {

// One that a raylet was told to start is in the queue of that one.
template <class Visit>
void ForEachWaiting(const ActorTable& actors, const Visit& visit) {
  for (const ActorId& id : actors.Starting()) {
    if (const ActorEntry* entry = actors.Find(id); entry != nullptr && entry->asked == 0)
      visit(*entry);
  }
}

template <class Visit>
void ForEachWaiting(const SubmissionTable& submissions, const Visit& visit) {
  for (const std::string& id : submissions.living()) {
    const SubmissionEntry& entry = *submissions.Find(id);
    if (entry.info.state() == proto::Submission::PENDING) visit(entry);
  }
}

std::string WordsOf(const std::string& who, bool infeasible, const std::string& reason) {
  return absl::StrCat(who, infeasible ? ": " : " waits for ", reason.empty() ? "a node" : reason);
}

class Shapes {
 public:
  void Add(proto::DemandRow row) {
    const auto [known, is_new] = places_.try_emplace(ShapeOf(row), list_.demand_size());
    if (!is_new) {
      proto::DemandRow& sum = *list_.mutable_demand(known->second);
      sum.set_count(sum.count() + row.count());
      sum.set_infeasible(sum.infeasible() || row.infeasible());
    } else if (list_.demand_size() >= kMaxShapes) {
      places_.erase(known);
      list_.set_more(true);
    } else {
      *list_.add_demand() = std::move(row);
    }
  }
  proto::DemandList Done() { return std::move(list_); }

 private:
  proto::DemandList list_;
  absl::flat_hash_map<std::string, int> places_;
};

}  // namespace

proto::DemandList DemandOf(const ActorTable& actors, const SubmissionTable& submissions) {
  Shapes shapes;
  ForEachWaiting(actors, [&](const ActorEntry& entry) {
    const proto::LeaseSpec& lease = entry.record.lease();
    // Of a group that waits, or that has the room already.
    if (lease.strategy().kind() == proto::Strategy::PLACEMENT_GROUP) return;
    proto::DemandRow row;
    *row.mutable_resources() = lease.resources();
    *row.mutable_selectors() = lease.strategy().selectors();
    row.set_count(1);
    row.set_infeasible(entry.infeasible);
    row.set_words(WordsOf(absl::StrCat("detached actor ", entry.info().class_name()),
                          entry.infeasible, entry.info().words()));
    shapes.Add(std::move(row));
  });
  ForEachWaiting(submissions, [&](const SubmissionEntry& entry) {
    const proto::Entrypoint& entrypoint = entry.info.entrypoint();
    proto::DemandRow row;
    *row.mutable_resources() = entrypoint.resources();
    if (!entrypoint.labels().terms().empty()) *row.add_selectors() = entrypoint.labels();
    row.set_count(1);
    row.set_infeasible(entry.infeasible);
    row.set_words(WordsOf(absl::StrCat("job ", entrypoint.submission_id()), entry.infeasible,
                          entry.pending_words));
    shapes.Add(std::move(row));
  });
  return shapes.Done();
}

uint64_t InfeasibleActors(const ActorTable& actors) {
  uint64_t count = 0;
  ForEachWaiting(actors, [&](const ActorEntry& entry) { count += entry.infeasible; });
  return count;
}

uint64_t InfeasibleSubmissions(const SubmissionTable& submissions) {
  uint64_t count = 0;
  ForEachWaiting(submissions, [&](const SubmissionEntry& entry) { count += entry.infeasible; });
  return count;
}

}  // namespace sheaf
