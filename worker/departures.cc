// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/departures.h"

#include <algorithm>

namespace sheaf {
namespace {

constexpr Nanos kGrantPatience = 100 * kMillisecond;  // Without a word about memory.
constexpr Nanos kMostPatience = 5 * kSecond;
// A store that is full holds up one call in this time, not each.
constexpr Nanos kFullFor = kSecond;
constexpr Nanos kExitFunctionsPatience = 30 * kSecond;  // For the calls that they make.
// With calls that nobody executes: they wait for what may never be there.
constexpr Nanos kIdlePatience = 60 * kSecond;

}  // namespace

void Departures::Await(Driver::Lock& lock) {
  const ReferenceTable& references = core_.owner.references;
  const Nanos begun = clock_.Now();
  if (begun < full_until_) return;
  const Driver::WithoutInterrupts until_the_end;  // Nobody here could pass an exception on.
  for (Nanos now = begun; references.unpromoted() != 0; now = clock_.Now()) {
    const uint64_t version = core_.store->room_version();
    const absl::Status status = driver_.DriveUntil(
        lock, std::min(begun + kMostPatience, now + kGrantPatience),
        [&] { return references.unpromoted() == 0 || core_.store->room_version() != version; },
        WaitsFor::kRoom);
    if (absl::IsDeadlineExceeded(status)) full_until_ = clock_.Now() + kFullFor;
    if (!status.ok()) return;
  }
}

void Departures::AwaitCalls(Driver::Lock& lock, Nanos deadline) {
  const Driver::WithoutInterrupts until_the_end;
  TaskTable& tasks = core_.owner.tasks;
  const uint64_t end = core_.owner.references.NextSequence() << 16;
  const auto is_awaited = [end](const TaskRecord& task) {
    const ActorClient* const actor = task.target.actor();
    return task.state != TaskState::kFinished && task.sequence_bits < end &&
           (actor == nullptr || !actor->own) &&
           task.spec->spec.kind() != proto::TaskTemplate::ACTOR_CREATION;
  };
  // Of many calls one is looked at, most likely the last to end.
  uint32_t cookie = 0;
  uint64_t last = 0;
  const auto have_ended = [&] {
    const TaskRecord* const known = last == 0 ? nullptr : tasks.Find(cookie, last);
    if (hurries_) return true;
    if (known != nullptr && is_awaited(*known)) return false;
    last = 0;
    tasks.ForEach([&](const TaskRecord& task) {
      if (task.sequence_bits < last || !is_awaited(task)) return;
      cookie = task.cookie;
      last = task.sequence_bits;
    });
    return last == 0;
  };
  const auto left = [&] {
    size_t pushed = 0, others = 0;
    tasks.ForEach([&](const TaskRecord& task) {
      if (is_awaited(task)) ++(task.state == TaskState::kPushed ? pushed : others);
    });
    return std::pair(pushed, others);
  };
  auto before = left();
  for (Nanos now = clock_.Now(); now < deadline; now = clock_.Now()) {
    const absl::Status status = driver_.DriveUntil(lock, std::min(deadline, now + kIdlePatience),
                                                   have_ended, WaitsFor::kEnd);
    if (!absl::IsDeadlineExceeded(status)) return;
    const auto after = left();
    if (after.first == 0 && after == std::exchange(before, after)) return;
  }
}

void Departures::OnAskedToLeave(bool for_good) {
  leaves_once_free_ = leaves_once_free_ || for_good;
  if (leaves_) return;  // It has said so.
  if (IsFree()) {
    Leave();
  } else if (!for_good) {
    Answer(proto::Goodbye::STAYS);
  }
}

void Departures::Tick() {
  if (leaves_once_free_ && !leaves_ && IsFree()) Leave();
}

// Once: its patience with the calls of exit functions does not begin anew.
void Departures::Leave() {
  leaves_ = true;
  Answer(proto::Goodbye::LEAVES);
  leave_(kExitFunctionsPatience);
}

void Departures::Answer(proto::Goodbye::Step step) {
  proto::Goodbye answer;
  answer.set_step(step);
  SendMessage(core_.raylet(), FrameKind::kGoodbye, answer);
}

bool Departures::IsFree() const {
  bool free = !core_.executor.is_leased() && core_.executor.queued() == 0 &&
              !core_.owner.created_actors.HasAny();
  core_.executor.ForEachRunning([&](const CallExecution&) { free = false; });
  if (!free) return false;
  core_.owner.tasks.ForEach(
      [&](const TaskRecord& task) { free = free && task.state == TaskState::kFinished; });
  return free;
}

// False: some value finds no memory.
bool Departures::StoreSmall(ObjectEntry& entry) {
  if (!entry.owned || entry.state != ObjectState::kValue || entry.location.known()) return true;
  core_.owner.references.Outgoing(entry);
  return entry.location.known();
}

absl::Status Departures::StoreNested(Driver::Lock& lock, const ArgumentList& arguments) {
  const size_t before = core_.owner.references.unpromoted();
  bool stored = true;
  for (const ObjectHandle& handle : arguments.nested())
    stored = StoreSmall(*handle.entry()) && stored;
  // A small value that is an argument itself travels with the call, and takes what is in it along.
  ArgumentCodec::ForEachReference(arguments, [&](const ObjectHandle& handle) {
    const ObjectEntry& entry = *handle.entry();
    if (!entry.extra || !entry.owned || entry.state != ObjectState::kValue) return;
    for (ObjectEntry* inner : entry.extra->nested) stored = StoreSmall(*inner) && stored;
  });
  // What lies deeper shows there.
  if (stored && core_.owner.references.unpromoted() <= before) return absl::OkStatus();
  if (WithoutWaiting::IsOn()) return absl::UnavailableError("memory of the store is on its way");
  Await(lock);
  return absl::OkStatus();
}

}  // namespace sheaf
