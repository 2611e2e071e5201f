// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What other nodes have to do with the store of this one: copies that arrive, bytes that are sent,
// questions and frees of owners that live elsewhere.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "object_store/store_owner.h"

namespace sheaf {

// A copy from its first byte until it is sealed or given up.
struct Receiving {
  StoreOwner::Arrival arrival;
  std::function<void(absl::StatusOr<std::span<char>>)> ready;
  Extent* extent = nullptr;  // Null: it waits for room.
  ExtentRange range;         // Of its footprint.
  bool over = false;
  uint32_t pins = 0;                     // Blocks that are sent from it meanwhile.
  std::shared_ptr<ObjectRecord> sealed;  // What it became; has the pins then.
};

namespace {

// Copies up to this footprint lie side by side; larger ones have granules of their own.
constexpr uint64_t kSmallCopyBytes = 64 * 1024;
constexpr uint64_t kShelfBytes = 512 * 1024;

bool IsSmall(uint64_t footprint) { return footprint <= kSmallCopyBytes; }
uint64_t FootprintOf(const StoreOwner::Arrival& arrival) {
  return std::max(FootprintBytes(arrival.size_bytes, arrival.nested_count), kPayloadAlignment);
}

}  // namespace

std::shared_ptr<ObjectRecord> StoreOwner::FindSealed(ObjectId id, const ObjectLocation& hint) {
  if (hint.node == options_.node && hint.known()) LearnSealed(hint.slot);
  std::shared_ptr<ObjectRecord> record = table_.Find(id);
  if (record == nullptr) {
    LearnUnannounced();
    record = table_.Find(id);
  }
  return record;
}

void StoreOwner::Locate(ProcessId asker, ObjectId id, const ObjectLocation& hint) {
  std::vector<LocatedObject> answers;
  AnswerLookup(asker, FindSealed(id, hint), id, &answers);
  for (const LocatedObject& answer : answers) {
    world_.transport.To(asker).Send(Lane::kControl, kStoreLocated, AsBytes(answer));
  }
}

void StoreOwner::OnRemoteFree(ProcessId from, std::span<const ObjectName> names) {
  std::vector<ObjectName> own;
  for (const ObjectName& name : names) {
    if (name.id.maker() == from) own.push_back(name);
  }
  OnFree(from, own);
}

std::shared_ptr<const void> StoreOwner::Hold(std::function<void()> release) {
  static constexpr char kHeld = 0;
  ++holds_;
  return std::shared_ptr<const void>(
      &kHeld, [this, gate = gate_, alive = std::weak_ptr<bool>(alive_),
               release = std::move(release)](const void*) mutable {
        gate->Post([this, alive = std::move(alive), release = std::move(release)] {
          if (alive.expired()) return;
          --holds_;
          release();
        });
      });
}

StoreOwner::Pinned StoreOwner::PinNow(const std::shared_ptr<ObjectRecord>& record) {
  table_.Touch(*record);
  ++record->pins;
  const uint64_t bytes =
      record->info.nested.empty()
          ? record->info.size_bytes
          : NestedOffset(record->info.size_bytes) + record->info.nested.size() * sizeof(ObjectId);
  return {
      .info = record->info,
      .bytes = {reinterpret_cast<const char*>(world_.arena.data()) + record->bytes.offset, bytes},
      .hold = Hold([this, record] {
        if (--record->pins == 0) new_frees_ = true;
      })};
}

void StoreOwner::Pin(ObjectId id, const ObjectLocation& hint,
                     std::function<void(absl::StatusOr<Pinned>)> done) {
  const std::shared_ptr<ObjectRecord> record = FindSealed(id, hint);
  if (record == nullptr) return done(absl::NotFoundError("no such object on this node"));
  if (record->place == ObjectPlace::kMemory) return done(PinNow(record));
  record->hooks.push_back([this, record, done = std::move(done)](LookupOutcome outcome) {
    switch (outcome) {
      case LookupOutcome::kFound:
        return done(PinNow(record));
      case LookupOutcome::kDataLoss:
        return done(absl::DataLossError("its spilled copy is damaged or gone"));
      case LookupOutcome::kFull:
        return done(absl::ResourceExhaustedError("no room to restore it on its node"));
      case LookupOutcome::kNotFound:
      case LookupOutcome::kComing:  // No outcome.
        return done(absl::NotFoundError("it was freed"));
    }
  });
  if (record->place == ObjectPlace::kDisk) StartRestore(record);
}

void StoreOwner::Announce(const std::shared_ptr<Receiving>& arrival,
                          absl::StatusOr<std::span<char>> room) {
  world_.loop.Post([alive = std::weak_ptr<bool>(alive_), arrival, room = std::move(room)] {
    if (!alive.expired() && !(room.ok() && arrival->over)) arrival->ready(room);
  });
}

void StoreOwner::BeginReceive(const Arrival& arrival, Nanos wait,
                              std::function<void(absl::StatusOr<std::span<char>>)> ready) {
  auto receiving = std::make_shared<Receiving>();
  receiving->arrival = arrival;
  receiving->ready = std::move(ready);
  const uint64_t capacity = shape_.arena_bytes - shape_.data_offset;
  if (arrival.size_bytes > kMaxPayloadBytes || FootprintOf(arrival) > capacity) {
    return Announce(receiving, absl::ResourceExhaustedError(absl::StrCat(
                                   "the object has ", arrival.size_bytes, " bytes, the store ",
                                   capacity, "; start the node with a larger one")));
  }
  if (!receiving_.emplace(arrival.id, receiving).second) {
    return Announce(receiving, absl::AlreadyExistsError("it is arriving already"));
  }
  const uint64_t footprint = FootprintOf(arrival);
  if (const auto room = IsSmall(footprint) ? TakeFromShelf(footprint) : std::nullopt) {
    receiving->extent = shelf_;
    receiving->range = *room;
    return Announce(
        receiving, std::span(reinterpret_cast<char*>(world_.arena.data()) + receiving->range.offset,
                             arrival.bytes()));
  }
  auto waiting = std::make_shared<Waiting>();
  waiting->receive = receiving;
  waiting->bytes = IsSmall(footprint) ? kShelfBytes : AlignUp(footprint, kGranuleBytes);
  waiting->since = world_.clock.Now();
  waiting->deadline = Deadline(waiting->since, wait);
  waiting_.push_back(std::move(waiting));
  ServeWaiting();
}

std::optional<ExtentRange> StoreOwner::TakeFromShelf(uint64_t footprint) {
  footprint = AlignUp(footprint, kPayloadAlignment);
  if (shelf_ == nullptr || shelf_->range.bytes - shelf_used_ < footprint) return std::nullopt;
  const ExtentRange taken{shelf_->range.offset + shelf_used_, footprint};
  shelf_used_ += footprint;
  table_.AddObject(*shelf_);
  return taken;
}

std::pair<Extent*, ExtentRange> StoreOwner::TakeFrom(ExtentRange room, uint64_t footprint,
                                                     bool shared) {
  if (!shared) {
    Extent* extent = table_.AddExtent(room, ProcessId{}, kNoSlot);
    table_.AddObject(*extent);
    return {extent, {room.offset, footprint}};
  }
  if (const auto taken = TakeFromShelf(footprint)) {  // Another has brought a shelf meanwhile.
    allocator_.Free(room, /*populated=*/true);
    return {shelf_, *taken};
  }
  if (shelf_ != nullptr) LeaveShelf();
  shelf_ = table_.AddExtent(room, ProcessId{}, kNoSlot);
  table_.AddObject(*shelf_);  // So that it stays while it is the shelf.
  shelf_used_ = 0;
  const ExtentRange taken = *TakeFromShelf(footprint);
  return {shelf_, taken};
}

void StoreOwner::DropFrom(Extent* extent) {
  table_.DropObject(*extent, world_.clock.Now());
  if (extent == shelf_) {
    if (extent->objects == 1) LeaveShelf();
  } else if (extent->objects == 0) {
    EndLease(extent);
  }
}

void StoreOwner::LeaveShelf() {
  Extent* left = std::exchange(shelf_, nullptr);
  table_.DropObject(*left, world_.clock.Now());
  if (left->objects == 0) EndLease(left);
}

void StoreOwner::ReceiveInto(const std::shared_ptr<Receiving>& arrival, ExtentRange range) {
  std::tie(arrival->extent, arrival->range) =
      TakeFrom(range, FootprintOf(arrival->arrival), IsSmall(FootprintOf(arrival->arrival)));
  Announce(arrival, std::span(reinterpret_cast<char*>(world_.arena.data()) + arrival->range.offset,
                              arrival->arrival.bytes()));
}

void StoreOwner::RefuseArrival(const std::shared_ptr<Receiving>& arrival) {
  ++counts_.refusals;
  receiving_.erase(arrival->arrival.id);
  Announce(arrival, absl::ResourceExhaustedError("no room for the copy came free in time"));
}

void StoreOwner::GiveUpRoom(Receiving& arrival) {
  if (arrival.extent == nullptr || arrival.pins != 0) return;
  DropFrom(std::exchange(arrival.extent, nullptr));
  new_frees_ = true;  // Who waits for room is served at the end of this turn.
}

void StoreOwner::AbortReceive(ObjectId id) {
  const auto found = receiving_.find(id);
  if (found == receiving_.end()) return;
  const std::shared_ptr<Receiving> arrival = found->second;
  receiving_.erase(found);
  arrival->over = true;
  std::erase_if(waiting_, [&](const std::shared_ptr<Waiting>& waiting) {
    if (waiting->receive != arrival) return false;
    waiting->gone = true;
    return !waiting->populating;
  });
  GiveUpRoom(*arrival);
}

absl::Status StoreOwner::EndReceive(ObjectId id) {
  const auto found = receiving_.find(id);
  if (found == receiving_.end() || found->second->extent == nullptr) {
    return absl::FailedPreconditionError("no such copy has got room");
  }
  const std::shared_ptr<Receiving> arrival = found->second;
  receiving_.erase(found);
  arrival->over = true;
  const Arrival& about = arrival->arrival;
  if (const std::shared_ptr<ObjectRecord> known = table_.Find(id)) {
    if (known->info.attempt >= about.attempt) {
      GiveUpRoom(*arrival);
      return absl::OkStatus();
    }
    BeginFree(known);
  }
  const uint32_t slot = TakeOwnSlot();
  if (slot == kNoSlot) {
    GiveUpRoom(*arrival);
    return absl::ResourceExhaustedError("the table of objects is full");
  }
  auto record = std::make_shared<ObjectRecord>();
  record->info = {.id = id,
                  .attempt = about.attempt,
                  .size_bytes = about.size_bytes,
                  .flags = about.flags,
                  .writer = RayletOf(options_.node),
                  .nested = {}};
  const auto* nested = reinterpret_cast<const ObjectId*>(
      world_.arena.data() + arrival->range.offset + NestedOffset(about.size_bytes));
  record->info.nested.assign(nested, nested + about.nested_count);
  record->slot = slot;
  record->generation = table_.GenerationOf(slot);
  record->extent = arrival->extent;
  record->bytes = arrival->range;
  record->pins = std::exchange(arrival->pins, 0);
  arrival->sealed = record;
  Slot& shared = table_.at(slot);
  shared.id = id;
  shared.data_offset = arrival->range.offset;
  shared.data_bytes = about.size_bytes;
  shared.attempt = about.attempt;
  shared.nested_count = about.nested_count;
  shared.flags = about.flags;
  table_.Bind(slot, record.get());
  table_.SetState(slot, SlotState::kSealed);
  table_.Insert(record);
  ++counts_.copies;
  counts_.copied_bytes += about.bytes();
  world_.observer.OnObjectSealed(record->info);
  return absl::OkStatus();
}

std::shared_ptr<const void> StoreOwner::HoldArriving(ObjectId id) {
  const std::shared_ptr<Receiving> arrival = receiving_.at(id);
  ++arrival->pins;
  return Hold([this, arrival] {
    if (arrival->sealed != nullptr) {
      if (--arrival->sealed->pins == 0) new_frees_ = true;
    } else if (--arrival->pins == 0 && arrival->over) {
      GiveUpRoom(*arrival);
    }
  });
}

}  // namespace sheaf
