// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The half of StoreClient that asks the raylet, hears its answers, and finds out what became free
// meanwhile.
#include <algorithm>
#include <utility>

#include "object_store/arena_views.h"
#include "object_store/client_extents.h"
#include "object_store/client_slots.h"
#include "object_store/store_client.h"
#include "object_store/store_refusal.h"

namespace sheaf {
namespace {

constexpr uint32_t kLargestSlotGrant = 16;  // Pages.
// Empty shared extents kept warm; what is beyond goes back to the raylet.
constexpr size_t kWarmSharedExtents = 4;
constexpr uint64_t kBytesPerLook = 1024;
constexpr uint64_t kReservedBytes = 64 * 1024;
constexpr Nanos kReserveWait = kSecond;

}  // namespace

uint64_t StoreClient::AskForSlots(Nanos wait) {
  if (slot_request_ != 0) return slot_request_;
  ++counts_.requests;
  const uint32_t held = slots_->count() / kSlotsPerPage;
  const SlotRequest request{.request = next_request_++,
                            .pages = std::clamp(held, 1u, kLargestSlotGrant),
                            .wait_ns = wait};
  slot_request_ = request.request;
  requests_[request.request] = {};
  Flush();
  raylet_.Send(Lane::kControl, kStoreSlotRequest, AsBytes(request));
  return request.request;
}

uint64_t StoreClient::AskForExtent(uint64_t bytes, uint64_t least, uint32_t slot, Nanos wait) {
  ++counts_.requests;
  const ExtentRequest request{
      .request = next_request_++,
      .bytes = bytes,
      .wait_ns = wait,
      .slot = slot,
      .least_granules = static_cast<uint32_t>(AlignUp(least, kGranuleBytes) / kGranuleBytes)};
  requests_[request.request] = {.slot = slot};
  Flush();  // Frees first: they may be what makes the room.
  raylet_.Send(Lane::kControl, kStoreExtentRequest, AsBytes(request));
  return request.request;
}

void StoreClient::Reserve() {
  if (!slots_->any_free()) AskForSlots(kReserveWait);
  if (extents_->held_bytes() == 0 && shared_request_ == 0)
    shared_request_ = AskForExtent(kReservedBytes, kReservedBytes, kNoSlot, kReserveWait);
}

absl::Status StoreClient::WaitFor(ObjectId id, uint64_t request) {
  pending_[id].request = request;
  return absl::UnavailableError("asked the raylet for room");
}

void StoreClient::CancelCreate(ObjectId id) {
  const auto waiting = pending_.find(id);
  if (waiting == pending_.end()) return;
  const uint64_t number = waiting->second.request;
  pending_.erase(waiting);
  const auto request = requests_.find(number);
  // Shared room and slots are asked for on behalf of all.
  if (request == requests_.end() || request->second.slot == kNoSlot) return;
  raylet_.Send(Lane::kControl, kStoreExtentCancel, AsBytes(ExtentCancel{number}));
}

void StoreClient::HarvestDedicated(bool everything) {
  ForgetTakenBack();
  for (const SealedSlot& freed : std::exchange(soon_idle_, {})) {
    if (!slots_->Owns(freed.slot)) continue;  // Harvested otherwise, and its page returned.
    const ClientSlots::Own& own = slots_->own(freed.slot);
    if (own.generation != freed.generation || own.extent == nullptr || own.extent->slot == kNoSlot)
      continue;
    if (!HarvestIfFreed(own.extent)) soon_idle_.push_back(freed);  // Somebody views it still.
  }
  // What others freed: looking at all must stay cheap per object made.
  const size_t count = extents_->in_use().size();
  if (!everything && counts_.creates - harvested_dedicated_at_ < count / 4) return;
  harvested_dedicated_at_ = counts_.creates;
  for (size_t i = 0; i < extents_->in_use().size();) {
    if (!HarvestIfFreed(extents_->in_use()[i])) ++i;
  }
}

bool StoreClient::HarvestIfFreed(ClientExtent* extent) {
  const SlotWord word = slots_->Word(extent->slot);
  ClientSlots::Own& own = slots_->own(extent->slot);
  if (word.generation == own.generation) return false;  // Only the raylet, freeing, raises it.
  own.generation = word.generation;
  extents_->TakeInUse(extent);
  if (word.state == SlotState::kIdle) {
    extents_->PushIdle(extent);
  } else {
    own.extent = nullptr;
    slots_->PutBack(extent->slot);
    extents_->Drop(extent);
  }
  return true;
}

void StoreClient::ForgetTakenBack() {
  for (ClientExtent* extent : extents_->idle()) {
    if (slots_->Word(extent->slot).state == SlotState::kIdle) continue;
    slots_->own(extent->slot).extent = nullptr;
    slots_->PutBack(extent->slot);
    extents_->DropIdle(extent);
  }
}

void StoreClient::HarvestShared(bool everything) {
  // Looking at every slot must stay cheap per object made: only when a good part of them is new, or
  // so much was written that the looks are as nothing.
  const size_t count = slots_->tracked().size();
  if (!everything && counts_.creates - harvested_at_ < count / 4 &&
      shared_since_harvest_ < count * kBytesPerLook)
    return;
  harvested_at_ = counts_.creates;
  shared_since_harvest_ = 0;
  for (size_t i = 0; i < slots_->tracked().size();) {
    const uint32_t slot = slots_->tracked()[i];
    ClientSlots::Own& own = slots_->own(slot);
    if (slots_->Word(slot).generation == own.generation) {
      ++i;
      continue;
    }
    slots_->Untrack(slot);
    ClientExtent* const extent = std::exchange(own.extent, nullptr);
    if (extent != nullptr) extents_->Freed(extent);
    slots_->PutBack(slot);
  }
  ReturnEmptyExtents(kWarmSharedExtents);
}

void StoreClient::ReturnSealedExtents() {
  for (const uint32_t slot : slots_->tracked()) {
    ClientExtent*& extent = slots_->own(slot).extent;
    if (extent != nullptr && extent->IsSealed()) extent = nullptr;
  }
  SendReturn<ExtentRange>(kStoreExtentReturn, extents_->TakeSealed());
}

void StoreClient::ReturnEmptyExtents(size_t keep) {
  SendReturn<ExtentRange>(kStoreExtentReturn, extents_->TakeEmpty(keep));
}

void StoreClient::ReturnFreePages(size_t keep) {
  SendReturn<SlotPages>(kStoreSlotReturn, slots_->TakeFreePages(keep));
}

template <class T>
void StoreClient::SendReturn(FrameKind kind, std::span<const T> ranges) {
  if (!ranges.empty()) Flush();
  while (!ranges.empty()) {
    const auto batch = ranges.first(std::min(ranges.size(), kMaxStoreItems));
    raylet_.Send(Lane::kControl, kind, ItemsAsBytes(batch));
    ranges = ranges.subspan(batch.size());
  }
}

void StoreClient::DrainReleased() {
  std::vector<std::unique_ptr<Pin>> pins;
  std::vector<uint32_t> unsealed;
  views_->TakeReleased(&pins, &unsealed);
  for (const auto& pin : pins) {
    const auto known = pins_.find(pin->slot);
    if (known != pins_.end() && known->second == pin.get()) pins_.erase(known);
  }
  for (const uint32_t slot : unsealed) Unseal(slot);
}

void StoreClient::Unseal(uint32_t slot) {
  ClientSlots::Own& own = slots_->own(slot);
  ClientExtent* extent = own.extent;
  auto& word = slots_->at(slot).word;
  ++room_version_;
  if (extent->slot == kNoSlot) {
    slots_->Untrack(slot);
    extents_->Aborted(std::exchange(own.extent, nullptr));
    word.store(SlotWord{own.generation, SlotState::kFree}.packed(), std::memory_order_release);
    slots_->PutBack(slot);
    return;
  }
  extents_->TakeInUse(extent);
  extents_->RevokePointers(extent);
  word.store(SlotWord{own.generation, SlotState::kIdle}.packed(), std::memory_order_release);
  extents_->PushIdle(extent);
}

void StoreClient::OnFrame(FrameKind kind, std::string_view body) {
  DrainReleased();
  if (kind == kStoreExtentGrant) {
    if (const auto* grant = FrameHead<ExtentGrant>(body)) OnExtentGrant(*grant);
  } else if (kind == kStoreSlotGrant) {
    if (const auto* grant = FrameHead<SlotGrant>(body)) OnSlotGrant(*grant);
  } else if (kind == kStoreRefused) {
    if (const auto* refusal = FrameHead<StoreRefusal>(body)) {
      Answered(refusal->request, RefusalStatus(*refusal));
    }
  } else if (kind == kStoreAlreadyYours) {
    if (const auto* answer = FrameHead<ExtentCancel>(body)) {
      HarvestDedicated(true);  // Others freed it; else this process asks again until it is gone.
      Answered(answer->request, absl::OkStatus());
    }
  } else if (kind == kStoreRecall) {
    HarvestDedicated(true);
    HarvestShared(true);
    ReturnEmptyExtents(0);
    const auto* recall = FrameHead<StoreRecall>(body);
    if (recall != nullptr && recall->with_objects != 0) ReturnSealedExtents();
    ReturnFreePages(recall != nullptr ? recall->keep_pages : 1);
    ++room_version_;
  } else if (kind == kStoreLocated) {
    OnLocated(FrameItems<LocatedObject>(body));
  }
}

void StoreClient::Answered(uint64_t number, const absl::Status& outcome) {
  const auto request = requests_.find(number);
  if (request == requests_.end()) return;
  if (request->second.slot != kNoSlot) slots_->PutBack(request->second.slot);
  requests_.erase(request);
  if (number == shared_request_) shared_request_ = 0;
  if (number == slot_request_) slot_request_ = 0;
  ++room_version_;
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->second.request != number) {
      ++it;
    } else if (outcome.ok()) {
      pending_.erase(it++);
    } else {
      it->second.refusal = outcome;
      ++it;
    }
  }
}

void StoreClient::OnExtentGrant(const ExtentGrant& grant) {
  const auto request = requests_.find(grant.request);
  if (request == requests_.end() || request->second.slot != grant.slot) return;
  HarvestDedicated(true);  // The range may have been this process's before.
  const absl::StatusOr<ClientExtent*> extent = extents_->Add(grant);
  if (!extent.ok()) {
    const ExtentRange unusable{grant.offset, grant.bytes};
    raylet_.Send(Lane::kControl, kStoreExtentReturn, AsBytes(unusable));
    Answered(grant.request, extent.status());
    return;
  }
  if (grant.slot != kNoSlot) {
    request->second.slot = kNoSlot;  // It stays with its extent.
    ClientSlots::Own& own = slots_->own(grant.slot);
    own.generation = slots_->Word(grant.slot).generation;
    own.extent = *extent;
    extents_->PushIdle(*extent);
    slots_->at(grant.slot)
        .word.store(SlotWord{own.generation, SlotState::kIdle}.packed(), std::memory_order_release);
  }
  Answered(grant.request, absl::OkStatus());
}

void StoreClient::OnSlotGrant(const SlotGrant& grant) {
  if (!requests_.contains(grant.request)) return;
  Answered(grant.request, slots_->AddPages(grant.first_page, grant.pages));
}

void StoreClient::OnLocated(std::span<const LocatedObject> objects) {
  for (const LocatedObject& object : objects) {
    switch (object.outcome) {
      case LookupOutcome::kFound:
        on_located_(object.id, object.location);
        break;
      case LookupOutcome::kDataLoss:
        on_located_(object.id, absl::DataLossError("its spilled copy is damaged or gone"));
        break;
      case LookupOutcome::kFull:
        on_located_(object.id, absl::ResourceExhaustedError(
                                   "it is spilled, and the store has no room to restore it"));
        break;
      case LookupOutcome::kOutOfRange:
        on_located_(object.id, absl::OutOfRangeError("the object has no such part"));
        break;
      case LookupOutcome::kComing:
        on_located_(object.id, absl::UnavailableError("on its way"));
        break;
      default:
        on_located_(object.id, absl::NotFoundError("not on this node"));
        break;
    }
  }
}

}  // namespace sheaf
