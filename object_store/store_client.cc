// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/store_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "object_store/arena_views.h"
#include "object_store/client_extents.h"
#include "object_store/client_slots.h"
#include "object_store/parallel_copy.h"
#include "object_store/store_refusal.h"
#include "object_store/unsealed_slot.h"

namespace sheaf {
namespace {

constexpr size_t kFlushAt = 256;  // Batched items.
// Or so many bytes to be freed: the next objects are written to the same warm memory.
constexpr uint64_t kFlushBytes = 2 << 20;
// Smaller objects of shared extents find their pages one by one.
constexpr uint64_t kEnteredFrom = 128 << 10;

}  // namespace
absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Open(ProcessId self, UniqueFd arena,
                                                               std::shared_ptr<Mapping> segment,
                                                               Channel& raylet,
                                                               LocatedHandler on_located) {
  SHEAF_ASSIGN_OR_RETURN(std::shared_ptr<ArenaViews> views,
                         ArenaViews::Map(std::move(arena), std::move(segment)));
  const ArenaHeader& header = views->header();
  auto slots = std::make_unique<ClientSlots>(views->arena_fd(), header.slot_count);
  auto extents =
      std::make_unique<ClientExtents>(views->arena_fd(), header.data_offset, header.arena_bytes);
  return std::unique_ptr<StoreClient>(new StoreClient(self, header.node, raylet,
                                                      std::move(on_located), std::move(views),
                                                      std::move(slots), std::move(extents)));
}

StoreClient::StoreClient(ProcessId self, NodeNumber node, Channel& raylet,
                         LocatedHandler on_located, std::shared_ptr<ArenaViews> views,
                         std::unique_ptr<ClientSlots> slots, std::unique_ptr<ClientExtents> extents)
    : self_(self),
      node_(node),
      raylet_(raylet),
      on_located_(std::move(on_located)),
      views_(std::move(views)),
      slots_(std::move(slots)),
      extents_(std::move(extents)) {}

StoreClient::~StoreClient() { views_->Close(); }

absl::StatusOr<MutableBuffer> StoreClient::Create(const ObjectSpec& spec) {
  DrainReleased();
  if (spec.size_bytes > kMaxPayloadBytes || spec.nested.size() > kMaxPayloadBytes / 32) {
    return absl::InvalidArgumentError(absl::StrCat(spec.size_bytes, " bytes in one object"));
  }
  const uint64_t footprint =
      std::max(FootprintBytes(spec.size_bytes, spec.nested.size()), kPayloadAlignment);
  if (footprint > capacity_bytes()) {
    return RefusalStatus(
        {.reason = StoreRefusalReason::kTooLarge, .capacity_bytes = capacity_bytes()});
  }
  if (const auto waiting = pending_.find(spec.id);
      waiting != pending_.end() && !waiting->second.refusal.ok()) {
    absl::Status refusal = std::move(waiting->second.refusal);
    pending_.erase(waiting);
    return refusal;
  }
  return footprint >= kDedicatedBytes ? CreateDedicated(spec, footprint)
                                      : CreateShared(spec, footprint);
}

absl::StatusOr<MutableBuffer> StoreClient::CreateDedicated(const ObjectSpec& spec,
                                                           uint64_t footprint) {
  for (bool harvested = false;;) {
    ClientExtent* extent = extents_->PopIdle(footprint);
    if (extent == nullptr) {
      if (harvested) break;
      HarvestDedicated(false);
      harvested = true;
      continue;
    }
    const uint32_t slot = extent->slot;
    uint64_t idle = slots_->at(slot).word.load(std::memory_order_acquire);
    const uint32_t generation = SlotWord::Unpack(idle).generation;
    const uint64_t created = SlotWord{generation, SlotState::kCreated}.packed();
    if (SlotWord::Unpack(idle).state != SlotState::kIdle ||
        !slots_->at(slot).word.compare_exchange_strong(idle, created, std::memory_order_acq_rel)) {
      extents_->Drop(extent);  // The raylet took it back.
      slots_->own(slot).extent = nullptr;
      slots_->PutBack(slot);
      continue;
    }
    CancelCreate(spec.id);
    slots_->own(slot) = {.generation = generation, .position = 0, .extent = extent};
    extents_->PushInUse(extent);
    return Prepare(spec, slot, *extent, extent->offset);
  }
  if (pending_.contains(spec.id)) return absl::UnavailableError("asked for memory");
  if (!slots_->any_free()) HarvestShared(true);
  const uint32_t slot = slots_->Take();
  if (slot == kNoSlot) return WaitFor(spec.id, AskForSlots(spec.wait));
  return WaitFor(spec.id, AskForExtent(footprint, footprint, slot, spec.wait));
}

absl::StatusOr<MutableBuffer> StoreClient::CreateShared(const ObjectSpec& spec,
                                                        uint64_t footprint) {
  // Looking at every slot in use must stay cheap per object made: only after a good part of them is
  // new.
  if (!slots_->any_free()) HarvestShared(false);
  const uint32_t slot = slots_->Take();
  if (slot == kNoSlot) return WaitFor(spec.id, AskForSlots(spec.wait));
  uint64_t offset = 0;
  ClientExtent* extent = extents_->Allocate(footprint, &offset);
  if (extent == nullptr) {
    HarvestShared(false);
    extent = extents_->Allocate(footprint, &offset);
  }
  if (extent == nullptr) {
    slots_->PutBack(slot);
    if (shared_request_ == 0) {
      shared_request_ = AskForExtent(std::max(footprint, extents_->NextSharedBytes()), footprint,
                                     kNoSlot, spec.wait);
    }
    return WaitFor(spec.id, shared_request_);
  }
  CancelCreate(spec.id);
  const uint32_t generation = slots_->Word(slot).generation;
  slots_->own(slot) = {.generation = generation, .position = 0, .extent = extent};
  slots_->Track(slot);
  slots_->at(slot).word.store(SlotWord{generation, SlotState::kCreated}.packed(),
                              std::memory_order_release);
  return Prepare(spec, slot, *extent, offset);
}

MutableBuffer StoreClient::Prepare(const ObjectSpec& spec, uint32_t slot, ClientExtent& extent,
                                   uint64_t offset) {
  ++counts_.creates;
  if (extent.slot == kNoSlot) shared_since_harvest_ += spec.size_bytes;
  Slot& shared = slots_->at(slot);
  shared.id = spec.id;
  shared.data_offset = offset;
  shared.data_bytes = spec.size_bytes;
  shared.attempt = spec.attempt;
  shared.nested_count = static_cast<uint32_t>(spec.nested.size());
  shared.flags = spec.flags;
  std::byte* memory = extent.mapping->data() + (offset - extent.offset);
  if (!spec.nested.empty()) {
    std::memcpy(memory + NestedOffset(spec.size_bytes), spec.nested.data(),
                spec.nested.size_bytes());
  }
  MutableBuffer buffer(std::make_unique<UnsealedSlot>(views_, extent.mapping, slot), memory,
                       spec.size_bytes);
  const uint64_t end = offset - extent.offset + spec.size_bytes;
  if (end > extent.written) {
    buffer.cold_ = extent.slot != kNoSlot || spec.size_bytes >= kEnteredFrom;
    extent.written = end;
  }
  return buffer;
}

ObjectId StoreClient::IdOf(const MutableBuffer& buffer) const {
  SHEAF_CHECK(buffer.slot_ != nullptr && buffer.slot_->views() == views_.get(),
              "a buffer that this store did not make");
  return slots_->at(buffer.slot_->slot()).id;
}

ObjectLocation StoreClient::Seal(MutableBuffer buffer) {
  SHEAF_CHECK(buffer.slot_ != nullptr && buffer.slot_->views() == views_.get(),
              "a buffer that this store did not make");
  const uint32_t slot = buffer.slot_->slot();
  buffer.slot_->Disarm();
  ClientSlots::Own& own = slots_->own(slot);
  if (own.extent->slot != kNoSlot) {
    extents_->RevokePointers(own.extent);
  } else {
    extents_->Sealed(own.extent);
  }
  Slot& shared = slots_->at(slot);
  const ObjectLocation location{node_, slot, own.generation, shared.attempt};
  shared.word.store(SlotWord{own.generation, SlotState::kSealed}.packed(),
                    std::memory_order_release);
  SHEAF_FAILPOINT("store.sealed");
  sealed_.push_back({slot, own.generation});
  if (sealed_.size() >= kFlushAt) Flush();
  return location;
}

absl::StatusOr<ObjectLocation> StoreClient::Put(const ObjectSpec& spec, std::string_view bytes) {
  SHEAF_CHECK(bytes.size() == spec.size_bytes, "the size of the spec is that of the bytes");
  SHEAF_ASSIGN_OR_RETURN(MutableBuffer buffer, Create(spec));
  ParallelCopy(buffer.data(), bytes.data(), bytes.size(), buffer.pages());
  return Seal(std::move(buffer));
}

absl::StatusOr<StoredObject> StoreClient::Get(ObjectId id, const ObjectLocation& location) {
  DrainReleased();
  const ArenaHeader& header = views_->header();
  if (location.node != node_ || location.slot >= header.slot_count) {
    return absl::NotFoundError("no location on this node");
  }
  const Slot& slot = views_->slot(location.slot);
  const SlotWord wanted{location.generation, SlotState::kSealed};
  Pin* pin = nullptr;
  const auto known = pins_.find(location.slot);
  if (known != pins_.end() && known->second->generation == location.generation &&
      known->second->TryRef()) {
    pin = known->second;  // Pinned already: the fields cannot change, whatever the state is.
  } else {
    const uint64_t hazard = views_->SetHazard(location.slot, location.generation);
    if (hazard == HazardList::kCapacity) {
      return absl::ResourceExhaustedError("this process views too many objects at once");
    }
    if (SlotWord::Unpack(slot.word.load(std::memory_order_seq_cst)) != wanted) {
      views_->ClearHazard(hazard);
      return absl::NotFoundError("not at this location any more");
    }
    pin = new Pin(views_, location.slot, location.generation, hazard);
    pins_[location.slot] = pin;
  }
  // The writer of these fields is another process: they are read once and checked.
  const uint64_t offset = slot.data_offset;
  const uint64_t size = slot.data_bytes;
  const uint64_t nested = slot.nested_count;
  const bool in_arena = size <= kMaxPayloadBytes && offset >= header.data_offset &&
                        offset <= header.arena_bytes && offset % kPayloadAlignment == 0 &&
                        FootprintBytes(size, nested) <= header.arena_bytes - offset;
  const std::byte* payload = views_->arena() + (in_arena ? offset : 0);
  Buffer bytes(pin, payload, in_arena ? size : 0);
  if (!in_arena || slot.id != id || slot.attempt != location.attempt) {
    return absl::NotFoundError("another object is at this location");
  }
  return StoredObject{
      .bytes = std::move(bytes),
      .attempt = location.attempt,
      .flags = slot.flags,
      .nested = {reinterpret_cast<const ObjectId*>(payload + NestedOffset(size)), nested}};
}

bool StoreClient::Has(const ObjectLocation& location) const {
  if (location.node != node_ || location.slot >= views_->header().slot_count) return false;
  const SlotWord wanted{location.generation, SlotState::kSealed};
  return SlotWord::Unpack(views_->slot(location.slot).word.load(std::memory_order_acquire)) ==
         wanted;
}

void StoreClient::Lookup(std::span<const ObjectId> ids) {
  Flush();  // What this process sealed is known before it is looked up.
  while (!ids.empty()) {
    const auto batch = ids.first(std::min(ids.size(), kMaxStoreItems));
    raylet_.Send(Lane::kControl, kStoreLookup, ItemsAsBytes(batch));
    ids = ids.subspan(batch.size());
  }
}

void StoreClient::Free(ObjectId id, const ObjectLocation& location) {
  freed_.push_back({id, location});
  // Warm memory of this process is wanted back soon.
  const bool own = location.node == node_ && slots_->Owns(location.slot);
  const ClientExtent* extent = own ? slots_->own(location.slot).extent : nullptr;
  const bool dedicated = extent != nullptr && extent->slot != kNoSlot;
  if (dedicated) soon_idle_.push_back({location.slot, location.generation});
  if (own) freed_bytes_ += slots_->at(location.slot).data_bytes;
  if (dedicated || freed_.size() >= kFlushAt || freed_bytes_ >= kFlushBytes) Flush();
}

void StoreClient::Flush() {
  if (!sealed_.empty()) {
    raylet_.Send(Lane::kControl, kStoreSealed, ItemsAsBytes(std::span<const SealedSlot>(sealed_)));
    sealed_.clear();
    SHEAF_FAILPOINT("store.reported");
  }
  if (!freed_.empty()) {
    raylet_.Send(Lane::kControl, kStoreFree, ItemsAsBytes(std::span<const ObjectName>(freed_)));
    freed_.clear();
    freed_bytes_ = 0;
  }
}

uint64_t StoreClient::capacity_bytes() const {
  return views_->header().arena_bytes - views_->header().data_offset;
}

StoreClient::Stats StoreClient::stats() const {
  Stats stats = counts_;
  stats.views = pins_.size();
  stats.held_bytes = extents_->held_bytes();
  stats.idle_bytes = extents_->idle_bytes();
  stats.slots = slots_->count();
  return stats;
}

}  // namespace sheaf
