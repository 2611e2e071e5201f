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
      [this](LeaseNumber lease) { return leases_.SweepLease(lease); });
  sweeper_.Add<ProcessId>(
      "workers", [this] { return KeysOf(pool_.workers()); },
      [this](ProcessId worker) { return leases_.SweepWorker(worker); });
  sweeper_.Add<ProcessId>(
      "reference holders", [this] { return references_.holders(); },
      [this](ProcessId holder) { return SweepHolder(holder); });
  sweeper_.Add<PlacementGroupId>(
      "placement groups", [this] { return KeysOf(groups_.states()); },
      [this](PlacementGroupId group) { return groups_.Sweep(group); });
  sweeper_.Add<JobNumber>(
      "jobs", [this] { return KeysOf(jobs_.all()); },
      [this](JobNumber job) { return SweepJob(job); });
  sweeper_.Add<ProcessId>(
      "objects of the dead", [this] { return deaths_.EndedWithin(kLateObjects, Now()); },
      [this](ProcessId process) { return SweepDead(process); });
  sweeper_.Add<ObjectId>(
      "orphans", [this] { return adoption_.orphans(); },
      [this](ObjectId id) {
        adoption_.ForgetIfUnheld(id);
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
          if (still.contains(maker) || adoption_.IsAdopted(object.id)) return;
          const bool here = maker.node == options_.node;
          if (here ? deaths_.IsAlive(maker) : !view_.complete || view_.Find(maker.node) != nullptr)
            return;
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
        adoption_.AdoptObjectsOf(maker);
        return false;
      });
}

bool Raylet::SweepHolder(ProcessId holder) {
  if (!references_.IsHolder(holder) || deaths_.IsAlive(holder) || remains_.contains(holder))
    return false;
  references_.DropHolder(holder);
  return true;
}

bool Raylet::SweepJob(JobNumber local) {
  const NodeJob* job = jobs_.Find(local);
  if (job == nullptr || job->ended || deaths_.IsReachable(job->driver)) return false;
  jobs_.End(local, deaths_.DeathOf(job->driver));
  return true;
}

bool Raylet::SweepDead(ProcessId process) {
  for (const ObjectId id : world_.store.ObjectsOf(process)) {
    if (adoption_.IsAdopted(id)) continue;
    adoption_.AdoptObjectsOf(process);
    return false;  // It came late; that is how it is meant to go.
  }
  return false;
}

}  // namespace sheaf
