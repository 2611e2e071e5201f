// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/parallel_copy.h"
#include "worker/core/gathering.h"
#include "worker/core/object_creation.h"
#include "worker/core/part_gathering.h"
#include "worker/get_briefly.h"
#include "worker/limits.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

// For room in the store. The raylet says when it was in vain: later than this while its disk goes on
// (StoreOptions::waits_for_slow_disk).
constexpr Nanos kStoreWait = 30 * kSecond;
constexpr Nanos kStoreAnswer = 330 * kSecond;
// Programs look for these words.
constexpr char kNotReady[] = "Get timed out: some object(s) not ready: ";

// Waits for room as long as `deadline` says, or the raylet.
absl::StatusOr<MutableBuffer> CreateNamed(ProcessCore& core, Driver& driver, Driver::Lock& lock,
                                          Nanos now, ObjectSpec spec, Nanos deadline,
                                          std::span<const ObjectHandle> nested) {
  spec.wait = std::clamp<Nanos>(deadline - now, kMillisecond, kStoreWait);
  ObjectCreation creation(core, spec, nested);
  return creation.End(driver.DriveUntil(
      lock, std::min(deadline, now + kStoreAnswer), [&] { return creation.Look(); },
      WaitsFor::kRoom));
}

}  // namespace

absl::StatusOr<ObjectHandle> PutInStore(Runtime& runtime, std::string_view bytes,
                                        std::span<const ObjectHandle> nested) {
  absl::StatusOr<MutableBuffer> buffer = runtime.Create(bytes.size(), kForever, nested);
  if (!buffer.ok()) return buffer.status();
  ParallelCopy(buffer->data(), bytes.data(), bytes.size(), buffer->pages());
  return runtime.Seal(*std::move(buffer), nested);
}

std::optional<ObjectLocation> RuntimeImpl::StoreIfBehind(const CallExecution& call, ObjectId id,
                                                         std::string_view bytes,
                                                         std::span<const ObjectHandle> nested) {
  if (!core_->executor.some_owner_behind()) [[likely]]
    return std::nullopt;
  {
    Lock lock(*driver_);
    if (!core_->executor.IsOwnerBehind(call)) return std::nullopt;
  }
  absl::StatusOr<ObjectLocation> location = StoreValue(id, call.attempt(), bytes, nested);
  if (!location.ok()) return std::nullopt;
  return *location;
}

absl::StatusOr<ObjectHandle> RuntimeImpl::Put(std::string_view bytes,
                                              std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  if (bytes.size() <= kInlineValue) {
    Lock lock(*driver_);
    departures_->Reserve();
    if (core_->owner.references.HasRoomFor(bytes.size())) [[likely]]
      return core_->PutValue(bytes, nested);
  }
  return PutInStore(*this, bytes, nested);
}

absl::StatusOr<MutableBuffer> RuntimeImpl::Create(size_t size, Nanos deadline,
                                                  std::span<const ObjectHandle> nested) {
  if (absl::Status few = CheckNested(nested.size()); !few.ok()) return few;
  Lock lock(*driver_);
  return CreateNamed(*core_, *driver_, lock, clock_.Now(),
                     {.id = core_->NextName(), .size_bytes = size}, deadline, nested);
}

absl::StatusOr<ObjectHandle> RuntimeImpl::Seal(MutableBuffer buffer,
                                               std::span<const ObjectHandle> nested) {
  Lock lock(*driver_);
  return core_->SealOwned(std::move(buffer), nested);
}

ObjectLocation RuntimeImpl::SealValue(MutableBuffer buffer) {
  Lock lock(*driver_);
  return core_->Seal(std::move(buffer));
}

absl::StatusOr<MutableBuffer> RuntimeImpl::CreateValue(ObjectId id, uint32_t attempt, size_t size,
                                                       std::span<const ObjectHandle> nested) {
  Lock lock(*driver_);
  return CreateNamed(*core_, *driver_, lock, clock_.Now(),
                     {.id = id, .attempt = attempt, .size_bytes = size}, kForever, nested);
}

absl::StatusOr<ObjectLocation> RuntimeImpl::StoreValue(ObjectId id, uint32_t attempt,
                                                       std::string_view bytes,
                                                       std::span<const ObjectHandle> nested) {
  absl::StatusOr<MutableBuffer> buffer = CreateValue(id, attempt, bytes.size(), nested);
  if (!buffer.ok()) return buffer.status();
  ParallelCopy(buffer->data(), bytes.data(), bytes.size(), buffer->pages());
  return SealValue(*std::move(buffer));
}

ObjectId RuntimeImpl::NextStoredName() {
  Lock lock(*driver_);
  return core_->NextName();
}

absl::Status RuntimeImpl::Get(std::span<const ObjectHandle> objects, Nanos deadline,
                              std::vector<ObjectView>* views) {
  Lock lock(*driver_);
  views->clear();
  views->resize(objects.size());
  for (const ObjectHandle& object : objects) {
    if (!object) return absl::InvalidArgumentError("an empty reference has no value");
    if (!object.entry()->owned || object.entry()->released)
      core_->owner.resolver.Want(*object.entry());
  }
  if (objects.size() == 1 && core_->TryView(objects[0], &views->front())) [[likely]]
    return absl::OkStatus();
  Gathering gathering(*core_, objects, views);
  std::string silence;
  absl::Status status = driver_->DriveUntil(lock, deadline, [&] {
    if (gathering.Look()) return true;
    if (driver_->ended()) return false;  // Nothing comes any more.
    silence = core_->owner.WordsOfSilence(*objects[gathering.next()].entry());
    return !silence.empty();
  });
  if (status.ok() && !silence.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat(kNotReady, core_->WhatItWaitsFor(*objects[gathering.next()].entry()), ": ",
                     silence, ". It stays pending: get it again to go on waiting"));
  }
  if (status.ok()) status = gathering.status();
  if (absl::IsDeadlineExceeded(status)) {
    const auto is_there = [](const ObjectView& view) { return static_cast<bool>(view.handle); };
    const auto there = std::count_if(views->begin(), views->end(), is_there);
    status = absl::DeadlineExceededError(
        absl::StrCat(kNotReady, there, " of ", objects.size(), " were ready in time; ",
                     core_->WhatItWaitsFor(*objects[gathering.next()].entry())));
  }
  return status;
}

bool GetBriefly(Runtime& runtime, const ObjectHandle& object, ObjectView* view) {
  auto& own = static_cast<RuntimeImpl&>(runtime);  // There is no other.
  Driver::Lock lock(*own.driver_);
  const ObjectEntry& entry = *object.entry();
  if (!entry.owned || entry.released) return false;
  return own.driver_->DriveBriefly(
      lock, [&] { return entry.state == ObjectState::kValue && own.core_->TryView(object, view); });
}

absl::Status RuntimeImpl::GetParts(std::span<const ObjectPart> parts, Nanos deadline,
                                   std::vector<ObjectView>* views) {
  for (const ObjectPart& part : parts) {
    const bool fits =
        part.bytes <= kMaxPayloadBytes && part.offset <= kMaxPayloadBytes - part.bytes;
    if (!part.object || part.bytes == 0 || !fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("no object has a part of ", part.bytes, " bytes at ", part.offset));
    }
  }
  Lock lock(*driver_);
  PartGathering gathering(*core_, parts, views);
  const absl::Status status = driver_->DriveUntil(lock, deadline, [&] { return gathering.Look(); });
  if (!absl::IsDeadlineExceeded(status)) return status.ok() ? gathering.status() : status;
  return absl::DeadlineExceededError(absl::StrCat(
      kNotReady, "a part of ", core_->WhatItWaitsFor(*gathering.next().object.entry())));
}

std::vector<absl::Status> GiveUp(Runtime& runtime, std::span<const ObjectHandle> objects,
                                 bool though_used) {
  auto& own = static_cast<RuntimeImpl&>(runtime);  // There is no other.
  std::vector<absl::Status> refusals;
  Driver::Lock lock(*own.driver_);
  for (const ObjectHandle& object : objects)
    refusals.push_back(GiveUp(own.core_->owner.tasks, *object.entry(), though_used));
  return refusals;
}

std::vector<ObjectPlaces> RuntimeImpl::PlacesOf(std::span<const ObjectHandle> objects) {
  std::vector<ObjectPlaces> places(objects.size());
  Lock lock(*driver_);
  for (size_t i = 0; i < objects.size(); ++i) {
    ObjectEntry& entry = *objects[i].entry();
    if (!entry.owned) core_->owner.resolver.Want(entry);  // Nothing is made for this.
    ObjectPlaces& out = places[i];
    out.ready = entry.ready();
    out.in_reach = core_->owner.resolver.IsHere(entry);
    out.size = entry.size;
    if (entry.state == ObjectState::kValue) {
      out.nodes = {self_.node};
      out.size = entry.value.size();
    } else if (entry.state == ObjectState::kStore) {
      if (entry.location.node != 0) out.nodes.push_back(entry.location.node);
      if (!entry.extra) continue;
      for (const ObjectLocation& copy : entry.extra->copies) {
        if (copy.node != entry.location.node) out.nodes.push_back(copy.node);
      }
    }
  }
  return places;
}

absl::StatusOr<std::vector<size_t>> RuntimeImpl::Wait(std::span<const ObjectHandle> objects,
                                                      size_t num_returns, Nanos deadline,
                                                      bool bring) {
  if (num_returns == 0 || num_returns > objects.size()) {
    return absl::InvalidArgumentError(absl::StrCat("num_returns is ", num_returns, "; want 1 to ",
                                                   objects.size(), ", the number of references"));
  }
  for (const ObjectHandle& object : objects) {
    if (!object) return absl::InvalidArgumentError("an empty reference is never ready");
  }
  std::vector<size_t> ready;
  ready.reserve(num_returns);
  // Of those in a store. What was here once need not be here at the end: there may be no room. (A
  // value that goes to the store meanwhile, and from there to disk, is brought back.)
  std::vector<bool> came;
  const auto has_reached = [&](size_t i) {
    if (came.empty()) came.resize(objects.size());
    if (!came[i]) came[i] = core_->owner.resolver.IsHere(*objects[i].entry());
    return static_cast<bool>(came[i]);
  };
  const auto has_come = [&](size_t i) {
    const ObjectState state = objects[i].entry()->state;
    return bring && state == ObjectState::kStore ? has_reached(i) : state != ObjectState::kPending;
  };
  const auto look = [&] {
    ready.clear();
    size_t coming = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < objects.size(); ++i) {
      if (has_come(i)) {
        ready.push_back(i);
      } else if (ObjectEntry& entry = *objects[i].entry();
                 entry.ready() && coming < Gathering::kObjects &&
                 (coming == 0 || bytes + entry.size <= Gathering::kBytes)) {
        core_->owner.resolver.Missing(entry);
        ++coming;
        bytes += entry.size;
      }
      if (ready.size() == num_returns) return true;
    }
    return false;
  };
  Lock lock(*driver_);
  if (look()) return ready;
  for (const ObjectHandle& object : objects) core_->owner.resolver.Want(*object.entry());
  // All that may still come is with silent nodes.
  std::string silence;
  const auto is_silent = [&](const ObjectHandle& object) {
    if (has_come(static_cast<size_t>(&object - objects.data()))) return true;
    silence = core_->owner.WordsOfSilence(*object.entry());
    return !silence.empty();
  };
  const absl::Status status = driver_->DriveUntil(lock, deadline, [&] {
    return look() || (deadline == kForever && core_->owner.knows_silence() && !driver_->ended() &&
                      std::ranges::all_of(objects, is_silent));
  });
  if (status.ok() && ready.size() < num_returns) {
    return absl::DeadlineExceededError(absl::StrCat(ready.size(), " of ", num_returns,
                                                    " are ready: ", silence,
                                                    ". The others stay pending: wait again"));
  }
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
  return ready;
}

bool RuntimeImpl::IsReady(const ObjectHandle& object) {
  Lock lock(*driver_);
  ObjectEntry& entry = *object.entry();
  core_->owner.resolver.Want(entry);
  if (core_->owner.resolver.IsHere(entry)) return true;
  if (entry.ready()) core_->owner.resolver.Missing(entry);
  return false;
}

void RuntimeImpl::OnReady(const ObjectHandle& object, std::function<void()> callback) {
  bool now = false;
  {
    Lock lock(*driver_);
    now = driver_->ended() || core_->owner.resolver.IsHere(*object.entry());
    if (!now) {
      ready_hooks_.When(core_->owner.resolver, *object.entry(),
                        [this, callback] { callbacks_.Post(callback); });
    }
  }
  if (now) callback();
}

void RuntimeImpl::SignalReady(const ObjectHandle& object, std::function<void()> signal) {
  Lock lock(*driver_);
  ready_hooks_.When(core_->owner.resolver, *object.entry(), std::move(signal));
}

absl::StatusOr<ObjectHandle> RuntimeImpl::HandleFor(ObjectId id, bool borrows) {
  Lock lock(*driver_);
  ReferenceTable& references = core_->owner.references;
  ObjectEntry* entry = borrows ? references.Incoming({id, {}}) : references.Find(id);
  if (entry == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no reference to ", id.ToHex(), " came to this process"));
  }
  return ObjectHandle(entry);
}

}  // namespace sheaf
