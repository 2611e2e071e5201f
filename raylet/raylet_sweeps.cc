// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is compared with live owners every few seconds. Each check only looks for what no event
// should have left behind.
#include "raylet/raylet.h"

namespace sheaf {
namespace {

// An object of a dead owner can still be announced by the worker that made it, for as long as that
// takes to die.
constexpr Nanos kLateObjects = 30 * kSecond;
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
      "reference holders", [this] { return objects_.references().holders(); },
      [this](ProcessId holder) {
        if (!objects_.references().IsHolder(holder) || deaths_.IsAlive(holder) ||
            ended_.contains(holder)) {
          return false;
        }
        objects_.references().DropHolder(holder);
        return true;
      });
  sweeper_.Add<PlacementGroupId>(
      "placement groups", [this] { return KeysOf(groups_.states()); },
      [this](PlacementGroupId group) { return groups_.Sweep(group); });
  sweeper_.Add<JobNumber>(
      "jobs", [this] { return KeysOf(jobs_.all()); },
      [this](JobNumber job) { return jobs_.Sweep(job); });
  sweeper_.Add<ProcessId>(
      "objects of the dead", [this] { return deaths_.EndedWithin(kLateObjects, Now()); },
      [this](ProcessId process) {
        objects_.adoption().AdoptLateObjectsOf(process);
        return false;  // It came late; that is how it is meant to go.
      });
  sweeper_.Add<ObjectId>(
      "orphans", [this] { return objects_.adoption().orphans(); },
      [this](ObjectId id) {
        objects_.adoption().ForgetIfUnheld(id);
        return false;
      });
  sweeper_.Add<ProcessId>(
      "objects of nobody", [this] { return objects_.adoption().FindUnknownMakers(); },
      [this](ProcessId maker) {
        objects_.adoption().AdoptObjectsOf(maker);
        return false;
      });
}

}  // namespace sheaf
