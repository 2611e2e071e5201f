// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is compared with live owners every few seconds. Each check only looks for what no event
// should have left behind.
#include "object_store/server/store_owner.h"
#include "raylet/raylet.h"

namespace sheaf {
namespace {

// An object of a dead owner can still be announced by the worker that made it, for as long as that
// takes to die.
constexpr Nanos kLateObjects = 30 * kSecond;
constexpr Nanos kKillAgain = 3 * kSecond;
// Objects of makers that nobody knows: how long one that is on its way may be unknown, and how
// often all objects are looked at, if there are few or many of them.
constexpr Nanos kUnknownFor = 10 * kSecond;
constexpr Nanos kLookAtFew = 5 * kSecond;
constexpr Nanos kLookAtMany = 60 * kSecond;
constexpr size_t kMany = 20'000;

template <class Map>
auto KeysOf(const Map& map) {
  std::vector<typename Map::key_type> keys;
  keys.reserve(map.size());
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

void Raylet::AddSweeps() {
  sweeper_.Add<LeaseNumber>(
      "leases",
      [this] {
        std::vector<LeaseNumber> numbers;
        for (const Lease* lease : queue_.Leases()) numbers.push_back(lease->number);
        return numbers;
      },
      [this](LeaseNumber lease) { return SweepLease(lease); });
  sweeper_.Add<ProcessId>(
      "workers", [this] { return KeysOf(pool_.workers()); },
      [this](ProcessId worker) { return SweepWorker(worker); });
  sweeper_.Add<ProcessId>(
      "reference holders", [this] { return references_.holders(); },
      [this](ProcessId holder) { return SweepHolder(holder); });
  sweeper_.Add<PlacementGroupId>(
      "placement groups", [this] { return KeysOf(group_states_); },
      [this](PlacementGroupId group) { return SweepGroup(group); });
  sweeper_.Add<JobNumber>(
      "jobs", [this] { return KeysOf(jobs_); }, [this](JobNumber job) { return SweepJob(job); });
  sweeper_.Add<ProcessId>(
      "objects of the dead",
      [this] {
        while (!recently_dead_.empty() && Now() - recently_dead_.front().first > kLateObjects) {
          recently_dead_.pop_front();
        }
        std::vector<ProcessId> dead;
        for (const auto& [at, process] : recently_dead_) dead.push_back(process);
        return dead;
      },
      [this](ProcessId process) { return SweepDead(process); });
  sweeper_.Add<ObjectId>(
      "orphans", [this] { return orphans_.ids(); },
      [this](ObjectId id) {
        // Dropped while its owner was alive, for all that was known here.
        if (!references_.IsHeld(id)) orphans_.Remove(id);
        return false;
      });
  // A writer that scribbled over the name of its object before it was learned gave it to nobody.
  sweeper_.Add<ProcessId>(
      "objects of nobody",
      [this, next = Nanos{0}, unknown = absl::btree_map<ProcessId, Nanos>()]() mutable {
        std::vector<ProcessId> nobody;
        if (Now() < next) return nobody;
        size_t objects = 0;
        absl::btree_map<ProcessId, Nanos> still;
        world_.store.ForEach([&](const StoreObjectInfo& object) {
          ++objects;
          const ProcessId maker = object.id.maker();
          if (still.contains(maker) || adopted_.contains(object.id)) return;
          const bool here = maker.node == options_.node;
          if (here ? IsAlive(maker) : !view_.complete || view_.Find(maker.node) != nullptr) return;
          const auto since = unknown.find(maker);
          still[maker] = since == unknown.end() ? Now() : since->second;
        });
        for (const auto& [maker, since] : still) {
          if (Now() - since >= kUnknownFor) nobody.push_back(maker);
        }
        unknown = std::move(still);
        next = Now() + (objects > kMany ? kLookAtMany : kLookAtFew);
        return nobody;
      },
      [this](ProcessId maker) {
        AdoptObjectsOf(maker);
        return false;
      });
}

bool Raylet::SweepLease(LeaseNumber number) {
  const Lease* lease = queue_.Find(number);
  if (lease == nullptr) return false;
  const ProcessId owner = lease->demand.owner;
  if (owner == RayletOf(options_.node)) {
    if (FindDetached(lease->demand.key) == nullptr && !lease->ending) {
      EndLease(number, ErrorKind::kOwnerDied, "its actor is not wanted any more");
      return true;
    }
  } else if (!MayHear(owner) && !lease->ending) {
    queue_.OnOwnerGone(owner, Now());
    return true;
  }
  const auto bound = worker_of_.find(number);
  if (bound != worker_of_.end()) {
    const auto process = processes_.find(bound->second);
    if (process != processes_.end() && process->second.lease == number) return false;
    ReturnLease(number);
    return true;
  }
  if (pool_.IsNeeded(number)) return false;
  FindWorker(*lease);
  return true;
}

bool Raylet::SweepWorker(ProcessId process) {
  const WorkerPool::Worker* worker = pool_.Find(process);
  if (worker == nullptr) return false;
  switch (worker->state) {
    case WorkerState::kStarting:
      return false;  // The pool's own timeout.
    case WorkerState::kDying:
      // Told once, and the launcher does it; said again in case that was lost, which is no repair.
      if (Now() - worker->since > kKillAgain) world_.launcher.Kill(process, "it did not end");
      return false;
    default:
      break;
  }
  const auto entry = processes_.find(process);
  if (entry == processes_.end()) {
    pool_.Kill(process, "it is not attached");
    return true;
  }
  if (worker->state == WorkerState::kIdle) return false;
  const auto bound = worker_of_.find(entry->second.lease);
  if (bound != worker_of_.end() && bound->second == process) return false;
  pool_.OnReturned(process, /*discard=*/true);
  return true;
}

bool Raylet::SweepHolder(ProcessId holder) {
  if (!references_.IsHolder(holder) || IsAlive(holder) || remains_.contains(holder)) return false;
  references_.DropHolder(holder);
  return true;
}

bool Raylet::SweepGroup(PlacementGroupId id) {
  const GroupLedger::Group* group = groups_.Find(id);
  if (group == nullptr) return group_states_.erase(id) > 0;
  if (group->spec.detached || MayHear(group->creator)) {
    return false;
  }
  groups_.OnOwnerGone(group->creator, Now());
  return true;
}

bool Raylet::SweepJob(JobNumber local) {
  const auto it = jobs_.find(local);
  if (it == jobs_.end() || it->second.ended || MayHear(it->second.driver)) return false;
  EndJob(local, DeathOf(it->second.driver));
  return true;
}

bool Raylet::SweepDead(ProcessId process) {
  for (const ObjectId id : world_.store.ObjectsOf(process)) {
    if (adopted_.contains(id)) continue;
    AdoptObjectsOf(process);
    return false;  // It came late; that is how it is meant to go.
  }
  return false;
}

}  // namespace sheaf
