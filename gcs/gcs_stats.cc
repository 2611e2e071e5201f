// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GCS counts, of all its parts.
#include <string_view>

#include "gcs/gcs_service.h"
#include "gcs/submissions/waiting_demand.h"

namespace sheaf {

GcsStats GcsService::Stats() const {
  GcsStats stats;
  for (size_t body = 0; body < kBodies; ++body) {
    if (requests_[body] == 0) continue;
    const GcsOperation operation = OperationOf(static_cast<Body>(body));
    stats.requests.emplace_back(operation.name, requests_[body]);
    stats.by_table[static_cast<size_t>(operation.table)] += requests_[body];
  }
  stats.errors = pipeline_.errors();
  stats.malformed = malformed_;
  stats.repeats = pipeline_.repeats();
  stats.deferred = deferrals_;
  stats.commits = pipeline_.commits();
  stats.in_progress = pipeline_.in_progress();
  stats.deltas = publisher_.deltas();
  stats.subscriptions = publisher_.subscriptions();
  stats.nodes = nodes_.table().members();
  for (const auto& [node, info] : nodes_.table().all()) {
    if (info.state() == proto::NodeInfo::DEAD) {
      ++stats.nodes_dead;
    } else if (info.suspect()) {
      ++stats.nodes_suspect;
    } else if (info.state() == proto::NodeInfo::DRAINING) {
      ++stats.nodes_draining;
    }
  }
  stats.node_deaths = nodes_.deaths();
  stats.jobs = jobs_.table().running();
  stats.jobs_told = jobs_.told();
  stats.submissions = submissions_.table().by_state();
  stats.submissions_told = submissions_.told();
  stats.infeasible_actors = InfeasibleActors(actors_.table());
  stats.infeasible_submissions = InfeasibleSubmissions(submissions_.table());
  const auto count = [&stats](std::string_view state) {
    if (state == "ALIVE") {
      ++stats.actors_alive;
    } else if (state == "RESTARTING") {
      ++stats.actors_restarting;
    } else if (state == "DEAD") {
      ++stats.actors_dead;
    } else {
      ++stats.actors_pending;
    }
  };
  const std::map<ActorId, proto::ActorRow>& rows = actors_.table().rows();
  for (const auto& [id, entry] : actors_.table().all()) {
    if (!rows.contains(id)) count(proto::ActorInfo::State_Name(entry.info().state()));
  }
  for (const auto& [id, row] : rows) count(row.state());
  stats.actor_restarts = actors_.restarts();
  stats.groups = groups_.table().all().size();
  stats.keys = key_values_.table().size();
  stats.key_value_bytes = key_values_.table().bytes();
  stats.term = term_;
  stats.read_only = storage_.read_only();
  stats.recovering = recovering_;
  return stats;
}

}  // namespace sheaf
