// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/departures.h"

#include <algorithm>

namespace sheaf {
namespace {

constexpr Nanos kGrantPatience = 100 * kMillisecond;  // Without a word about memory.
constexpr Nanos kMostPatience = 5 * kSecond;
// A store that is full holds up one call in this time, not each.
constexpr Nanos kFullFor = kSecond;

}  // namespace

void Departures::Await(Driver::Lock& lock) {
  const ReferenceTable& references = core_.owner.references;
  const Nanos begun = clock_.Now();
  if (begun < full_until_) return;
  const Driver::WithoutInterrupts until_the_end;  // Nobody here could pass an exception on.
  for (Nanos now = begun; references.has_unpromoted(); now = clock_.Now()) {
    const uint64_t version = core_.store->room_version();
    const absl::Status status = driver_.DriveUntil(
        lock, std::min(begun + kMostPatience, now + kGrantPatience),
        [&] { return !references.has_unpromoted() || core_.store->room_version() != version; },
        WaitsFor::kRoom);
    if (absl::IsDeadlineExceeded(status)) full_until_ = clock_.Now() + kFullFor;
    if (!status.ok()) return;
  }
}

void Departures::AwaitCalls(Driver::Lock& lock, Nanos deadline) {
  const Driver::WithoutInterrupts until_the_end;
  TaskTable& tasks = core_.owner.tasks;
  uint32_t cookie = 0;
  uint64_t awaited = 0;
  const auto is_under_way = [](const TaskRecord& task) {
    const ActorClient* const actor = task.target.actor();
    return task.state != TaskState::kFinished && (actor == nullptr || !actor->own) &&
           task.spec->spec.kind() != proto::TaskTemplate::ACTOR_CREATION;
  };
  // Of many calls one is looked at, most likely the last to end.
  (void)driver_.DriveUntil(lock, deadline, [&] {
    const TaskRecord* const known = awaited == 0 ? nullptr : tasks.Find(cookie, awaited);
    if (known != nullptr && is_under_way(*known)) return false;
    awaited = 0;
    tasks.ForEach([&](const TaskRecord& task) {
      if (task.sequence_bits < awaited || !is_under_way(task)) return;
      cookie = task.cookie;
      awaited = task.sequence_bits;
    });
    return awaited == 0;
  });
}

absl::Status Departures::StoreNested(Driver::Lock& lock, std::span<const ObjectHandle> nested) {
  bool stored = true;
  for (const ObjectHandle& handle : nested) {
    ObjectEntry& entry = *handle.entry();
    if (!entry.owned || entry.state != ObjectState::kValue || entry.location.known()) continue;
    core_.owner.references.Outgoing(entry);
    stored = stored && entry.location.known();
  }
  if (stored) return absl::OkStatus();
  if (WithoutWaiting::IsOn()) return absl::UnavailableError("memory of the store is on its way");
  Await(lock);
  return absl::OkStatus();
}

}  // namespace sheaf
