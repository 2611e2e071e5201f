// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The end of a run: nothing goes wrong any more, all waits end in time, and nothing is left.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kLivenessLimit = 120 * kSecond;  // Of all waits together.
constexpr Nanos kLookAtWaitsEvery = 100 * kMillisecond;
constexpr Nanos kEmptyLimit = 60 * kSecond;
constexpr Nanos kLongestAway = 200 * kSecond;  // Of the GCS.
constexpr Nanos kUntilFenced = 3 * kSecond;    // Of a node that is back, until it has ended.
// Of two that do not hear each other: until both know that, the GCS has gathered what others hear,
// and the lease of the one that ends is over.
constexpr Nanos kUntilVerdict = 25 * kSecond;

}  // namespace

void Cluster::Finish() {
  if (!world_.oracle.ok()) return;
  workload_.Stop();
  world_.faults = {};
  if (methods_ != nullptr) methods_->End();
  RunUntil(kLongestAway, [&] { return gcs_.up() && world_.now() >= gcs_.well_at(); });
  // The GCS must have found who is dead, and partitions are over.
  const Nanos settled = std::max(world_.now() + (between_.lost_links() > 0 ? kUntilVerdict
                                                 : options_.nodes > 1      ? kLongestApart + kSecond
                                                                           : 0),
                                 cut_off_until_ == 0 ? 0 : cut_off_until_ + kUntilFenced);
  const Nanos quiet = std::max(settled, LastPause());
  const bool finished = RunUntil(kLivenessLimit, [&] {
    Replenish();
    LookAtWaits(quiet);
    return world_.now() >= quiet && gcs_.up() && DriversFinished();
  });
  EndCrashed();
  if (!world_.oracle.ok()) return;
  if (!finished) {
    world_.oracle.Fail("O1", absl::StrCat("not all calls have ended ", kLivenessLimit / kSecond,
                                          " s after the last fault:", Describe()));
    return;
  }
  if (!RunUntil(kLivenessLimit, [&] { return gcs_.up() && LivingCommands() == 0; }) &&
      world_.oracle.ok()) {
    const GcsStats gcs = gcs_.service().Stats();
    world_.oracle.Fail(
        "O1", absl::StrCat(gcs.submissions[proto::Submission::PENDING], " commands that wait, ",
                           gcs.submissions[proto::Submission::STARTING], " that start and ",
                           gcs.submissions[proto::Submission::RUNNING], " that run have not ended ",
                           kLivenessLimit / kSecond, " s after the last call",
                           gcs.recovering ? "; the GCS still recovers" : ""));
    return;
  }
  if (Process* driver = AnyDriver()) workload_.EndDetached(*driver);
  RunUntil(kRest, [] { return false; });
  // A worker that is let go just now has died a moment ago, and the GCS is being told.
  RunUntil(kSecond, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](auto& node) {
      const NodeStats stats = node->raylet().figures().Get();
      return stats.ended_processes == 0 && stats.unanswered_gcs_commands == 0;
    });
  });
  CheckAtRest();
  if (!world_.oracle.ok()) return;
  for (auto& node : nodes_) {
    for (Process* driver : node->Living(ProcessRole::kDriver)) driver->Leave();
  }
  RunUntil(kEmptyLimit, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](auto& node) {
      const NodeStats stats = node->raylet().figures().Get();
      return stats.processes == 0 && stats.ended_processes == 0 && node->starting() == 0;
    });
  });
  RunUntil(2 * kSecond, [] { return false; });
  CheckEmpty();
}

Nanos Cluster::LastPause() const {
  Nanos last = 0;
  for (const auto& node : nodes_) {
    last = std::max(last, node->paused_until);
    for (const auto& [id, process] : node->processes())
      last = std::max(last, process->paused_until);
  }
  return last;
}

void Cluster::LookAtWaits(Nanos quiet) {
  if (world_.now() < std::max(quiet, next_look_at_waits_)) return;
  next_look_at_waits_ = world_.now() + kLookAtWaitsEvery;
  waits_.Look(nodes_);
}

// All nodes are up, and the programs of all living drivers have ended.
bool Cluster::DriversFinished() {
  if (at_work_node_ < nodes_.size()) {
    const Process* driver = nodes_[at_work_node_]->Find(at_work_);
    if (driver != nullptr && driver->alive && !driver->finished()) return false;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i]->up()) return false;
    for (Process* driver : nodes_[i]->Living(ProcessRole::kDriver)) {
      if (driver->finished()) continue;
      at_work_ = driver->self;
      at_work_node_ = i;
      return false;
    }
  }
  return true;
}

Process* Cluster::AnyDriver() {
  for (auto& node : nodes_) {
    const std::vector<Process*> drivers = node->Living(ProcessRole::kDriver);
    if (!drivers.empty()) return drivers.front();
  }
  return nullptr;
}

void Cluster::CheckAtRest() {
  between_.CheckAtRest();
  const auto happened = [&](Fault fault) {
    return world_.fault_counts[static_cast<size_t>(fault)];
  };
  // Who is away from the GCS again and again is taken for dead.
  if (happened(Fault::kNodeAwayGcs) + happened(Fault::kNodeCutOff) +
              happened(Fault::kNodeStopped) ==
          0 &&
      happened(Fault::kNodeFenced) > happened(Fault::kLinkLost)) {
    world_.oracle.Fail("O1", absl::StrCat(happened(Fault::kNodeFenced), " nodes have ended for ",
                                          happened(Fault::kLinkLost), " links that were lost"));
  }
  for (auto& node : nodes_) {
    const NodeStats stats = node->raylet().figures().Get();
    const StoreStats store = node->store().Stats();
    std::string left;
    auto expect_none = [&](uint64_t count, const char* what) {
      if (count != 0) absl::StrAppend(&left, " ", count, " ", what, ";");
    };
    expect_none(stats.leases, "leases");
    expect_none(stats.scheduler_queue, "demands");
    expect_none(stats.groups + stats.pending_groups, "placement groups");
    expect_none(stats.held_references, "borrowed references");
    expect_none(stats.adopted_objects, "adopted objects");
    expect_none(stats.orphans, "orphans");
    expect_none(stats.ended_processes, "processes of which something is left");
    expect_none(stats.workers.leased + stats.workers.blocked + stats.workers.actor, "busy workers");
    expect_none(stats.unanswered_gcs_commands, "commands that the GCS did not answer");
    expect_none(store.objects, "objects in the store");
    expect_none(store.waiting_requests, "requests for memory");
    expect_none(stats.swept,
                absl::StrCat("repairs by the sweeper, the last in ", stats.last_swept).c_str());
    for (ProcessRole role : {ProcessRole::kDriver, ProcessRole::kWorker}) {
      for (Process* process : node->Living(role)) {
        expect_none(process->owner().tasks.size(),
                    absl::StrCat("calls in ", process->self.ToString()).c_str());
        expect_none(process->owner().references.size(),
                    absl::StrCat("objects in ", process->self.ToString()).c_str());
        expect_none(process->owner().transits.size(),
                    absl::StrCat("transits in ", process->self.ToString()).c_str());
        expect_none(process->executor().queued(),
                    absl::StrCat("queued calls in ", process->self.ToString()).c_str());
      }
    }
    const ResourceLedger& ledger = node->raylet().ledger();
    expect_none(ledger.bundles().size(), "bundles");
    if (!(ledger.available() == ledger.total()))
      absl::StrAppend(&left, " ", ledger.available().ToString(), " free of ",
                      ledger.total().ToString(), ";");
    if (!left.empty())
      world_.oracle.Fail(
          "O4", absl::StrCat("at rest node ", node->number(), " still has", left, Describe()));
  }
}

uint64_t Cluster::LivingCommands() {
  const auto submissions = gcs_.service().Stats().submissions;
  return submissions[proto::Submission::PENDING] + submissions[proto::Submission::STARTING] +
         submissions[proto::Submission::RUNNING];
}

void Cluster::CheckEmpty() {
  for (auto& node : nodes_) {
    const NodeStats stats = node->raylet().figures().Get();
    const StoreStats store = node->store().Stats();
    std::string left;
    auto expect_none = [&](uint64_t count, const char* what) {
      if (count != 0) absl::StrAppend(&left, " ", count, " ", what, ";");
    };
    expect_none(stats.processes, "attached processes");
    expect_none(stats.ended_processes, "processes of which something is left");
    expect_none(node->starting(), "workers on their way");
    expect_none(node->Living(ProcessRole::kWorker).size(), "living workers of ended jobs");
    expect_none(stats.rings, "rings");
    expect_none(store.used_bytes, "bytes in the store");
    expect_none(store.pinned_bytes, "pinned bytes");
    expect_none(store.violations, "violations of the store's rules");
    expect_none(stats.swept,
                absl::StrCat("repairs by the sweeper, the last in ", stats.last_swept).c_str());
    if (!left.empty())
      world_.oracle.Fail("O4", absl::StrCat("after the last job node ", node->number(),
                                            " still has", left, Describe()));
  }
  if (!gcs_.up()) return;
  const GcsStats gcs = gcs_.service().Stats();
  // Rows for listings are soft: a frame that was repeated late may bring one back.
  const uint64_t late = world_.fault_counts[static_cast<size_t>(Fault::kGcsFrameDuplicated)] +
                        world_.fault_counts[static_cast<size_t>(Fault::kGcsFrameDelayed)];
  const uint64_t actors =
      late != 0 ? 0 : gcs.actors_alive + gcs.actors_pending + gcs.actors_restarting;
  if (gcs.jobs != 0 || actors != 0 || gcs.nodes != nodes_.size()) {
    world_.oracle.Fail(
        "O4", absl::StrCat("after the last job the GCS has ", gcs.jobs, " running jobs, ",
                           gcs.actors_alive, " living, ", gcs.actors_pending, " pending and ",
                           gcs.actors_restarting, " restarting actors, ", gcs.nodes, " nodes"));
  }
}

std::string Cluster::Describe() {
  std::string words;
  for (auto& node : nodes_) {
    if (!node->up()) {
      absl::StrAppend(&words, "\n  the node with index ", node->index(), " is not up");
      continue;
    }
    const NodeStats stats = node->raylet().figures().Get();
    std::string processes;
    for (ProcessRole role : {ProcessRole::kDriver, ProcessRole::kWorker}) {
      for (Process* process : node->Living(role)) {
        if (!process->is_at_rest()) absl::StrAppend(&processes, "\n  ", process->Describe());
      }
    }
    if (processes.empty() && stats.leases + stats.scheduler_queue + stats.ended_processes == 0 &&
        stats.unanswered_gcs_commands == 0 && node->store().Stats().objects == 0)
      continue;
    absl::StrAppend(&words, "\n  node ", node->number(), ": ", stats.leases, " leases, ",
                    stats.scheduler_queue, " wanted, ", stats.ended_processes,
                    " ended processes not forgotten, ", stats.unanswered_gcs_commands,
                    " commands unanswered; workers: ", stats.workers.starting, " starting ",
                    stats.workers.idle, " idle ", stats.workers.leased, " leased ",
                    stats.workers.blocked, " blocked ", stats.workers.actor, " actors ",
                    stats.workers.dying, " dying");
    node->store().ForEach([&](const StoreObjectInfo& object) {
      absl::StrAppend(&words, "\n    stored ", object.id.ToHex());
    });
    words += processes;
  }
  return words;
}

}  // namespace sheaf::sim
