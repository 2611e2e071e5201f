// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/arrivals.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sheaf {
namespace {

// Copies up to this footprint lie side by side; larger ones have granules of their own.
constexpr uint64_t kSmallBytes = 64 * 1024;
constexpr uint64_t kShelfBytes = 512 * 1024;

bool IsSmall(uint64_t footprint) { return footprint <= kSmallBytes; }
uint64_t FootprintOf(const Arrival& arrival) {
  return std::max(FootprintBytes(arrival.size_bytes, arrival.nested_count), kPayloadAlignment);
}

}  // namespace

void Arrivals::Begin(const Arrival& arrival, Nanos wait, Ready ready) {
  auto receiving = std::make_shared<Receiving>();
  receiving->arrival = arrival;
  receiving->ready = std::move(ready);
  if (arrival.size_bytes > kMaxPayloadBytes || FootprintOf(arrival) > options_.capacity_bytes) {
    return Announce(receiving, absl::ResourceExhaustedError(absl::StrCat(
                                   "the object has ", arrival.size_bytes, " bytes, the store ",
                                   options_.capacity_bytes, "; start the node with a larger one")));
  }
  if (!receiving_.emplace(arrival.id, receiving).second)
    return Announce(receiving, absl::AlreadyExistsError("it is arriving already"));
  const uint64_t footprint = FootprintOf(arrival);
  if (const auto place = IsSmall(footprint) ? deps_.shelf.Take(footprint) : std::nullopt)
    return OnRoom(receiving, *place);
  auto request = std::make_shared<RoomRequest>();
  request->bytes = IsSmall(footprint) ? kShelfBytes : AlignUp(footprint, kGranuleBytes);
  request->since = deps_.clock.Now();
  request->deadline = Deadline(request->since, wait);
  request->granted = [this, receiving, footprint](ExtentRange room) {
    OnRoom(receiving, IsSmall(footprint) ? deps_.shelf.TakeFrom(room, footprint)
                                         : deps_.shelf.TakeAll(room, footprint));
  };
  request->refused = [this, receiving](StoreRefusalReason) { OnRefused(receiving); };
  receiving->request = request;
  deps_.room.Add(std::move(request));
}

void Arrivals::OnRoom(const ReceivingPtr& receiving, Shelf::Place place) {
  receiving->place = place;
  Announce(receiving, std::span(reinterpret_cast<char*>(deps_.arena.data()) + place.range.offset,
                                receiving->arrival.bytes()));
}

void Arrivals::OnRefused(const ReceivingPtr& receiving) {
  ++counts_.refusals;
  receiving_.erase(receiving->arrival.id);
  Announce(receiving, absl::ResourceExhaustedError("no room for the copy came free in time"));
}

void Arrivals::Announce(const ReceivingPtr& receiving, absl::StatusOr<std::span<char>> room) {
  deps_.loop.Post([receiving, room = std::move(room)] {
    if (!(room.ok() && receiving->over)) receiving->ready(room);
  });
}

void Arrivals::GiveUpRoom(Receiving& receiving) {
  if (receiving.place.extent == nullptr || receiving.pins != 0) return;
  deps_.shelf.Drop(std::exchange(receiving.place.extent, nullptr));
  deps_.freed.LookAgain();  // Who waits for room is served at the end of this turn.
}

void Arrivals::Abort(ObjectId id) {
  const auto found = receiving_.find(id);
  if (found == receiving_.end()) return;
  const ReceivingPtr receiving = found->second;
  receiving_.erase(found);
  receiving->over = true;
  deps_.room.Cancel(receiving->request.lock());
  GiveUpRoom(*receiving);
}

absl::Status Arrivals::End(ObjectId id) {
  const auto found = receiving_.find(id);
  if (found == receiving_.end() || found->second->place.extent == nullptr)
    return absl::FailedPreconditionError("no such copy has got room");
  const ReceivingPtr receiving = found->second;
  receiving_.erase(found);
  receiving->over = true;
  if (const std::shared_ptr<ObjectRecord> known = deps_.table.Find(id)) {
    if (known->info.attempt >= receiving->arrival.attempt) {
      GiveUpRoom(*receiving);
      return absl::OkStatus();
    }
    deps_.index.Free(known);
  }
  const uint32_t slot = deps_.slots.TakeOwnSlot();
  if (slot == kNoSlot) {
    GiveUpRoom(*receiving);
    return absl::ResourceExhaustedError("the table of objects is full");
  }
  receiving->sealed = Seal(*receiving, slot);
  ++counts_.copies;
  counts_.copied_bytes += receiving->arrival.bytes();
  deps_.observer.OnObjectSealed(receiving->sealed->info);
  return absl::OkStatus();
}

std::shared_ptr<ObjectRecord> Arrivals::Seal(Receiving& receiving, uint32_t slot) {
  const Arrival& arrival = receiving.arrival;
  auto record = std::make_shared<ObjectRecord>();
  record->info = {.id = arrival.id,
                  .attempt = arrival.attempt,
                  .size_bytes = arrival.size_bytes,
                  .flags = arrival.flags,
                  .writer = RayletOf(options_.node),
                  .nested = {}};
  const auto* nested = reinterpret_cast<const ObjectId*>(
      deps_.arena.data() + receiving.place.range.offset + NestedOffset(arrival.size_bytes));
  record->info.nested.assign(nested, nested + arrival.nested_count);
  record->slot = slot;
  record->extent = receiving.place.extent;
  record->bytes = receiving.place.range;
  record->pins = std::exchange(receiving.pins, 0);
  deps_.table.Publish(*record);
  deps_.table.Insert(record);
  return record;
}

std::shared_ptr<const void> Arrivals::Hold(ObjectId id) {
  const ReceivingPtr receiving = receiving_.at(id);
  ++receiving->pins;
  return deps_.loop.Hold([this, receiving] {
    if (receiving->sealed != nullptr) {
      if (--receiving->sealed->pins == 0) deps_.freed.LookAgain();
    } else if (--receiving->pins == 0 && receiving->over) {
      GiveUpRoom(*receiving);
    }
  });
}

}  // namespace sheaf
