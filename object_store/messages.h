// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a process and the raylet of its node say to each other about objects. All on the control
// lane. A body is a head, or an array of items; lengths and numbers are checked by the receiver,
// whoever sent them. The raylet answers each ExtentRequest and SlotRequest exactly once, with the
// same number: by its grant, by kStoreAlreadyYours or by a StoreRefusal. A request that is
// cancelled in time is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/frame.h"
#include "base/ids.h"
#include "object_store/layout.h"

namespace sheaf {

// Process -> raylet.
inline constexpr FrameKind kStoreExtentRequest{128};  // ExtentRequest.
inline constexpr FrameKind kStoreExtentCancel{129};   // ExtentCancel.
// ExtentRange[]: shared extents in which nothing is being written, or any without objects. What is
// sealed there becomes the store's own.
inline constexpr FrameKind kStoreExtentReturn{130};
inline constexpr FrameKind kStoreSlotRequest{131};  // SlotRequest.
inline constexpr FrameKind kStoreSealed{132};  // SealedSlot[]: for the raylet's index; sent lazily.
inline constexpr FrameKind kStoreFree{133};    // ObjectName[]: free every copy on this node.
inline constexpr FrameKind kStoreLookup{
    134};  // ObjectId[]: where are they? Restores what is spilled.
// FetchWanted[]: they lie on another node; bring them here. Answered as a lookup, once a copy is
// sealed here; asked again meanwhile, by kComing. To the raylet that the hint names it only asks
// whether the object is there still.
inline constexpr FrameKind kStoreFetch{135};
// SlotPages[]: pages in which every slot is free and reserved for nothing, and into which the
// sender can no longer write. What it announces and frees before this comes before this.
inline constexpr FrameKind kStoreSlotReturn{136};
// PartWanted[]: parts of objects, which are brought here as objects of the sender, or are not wanted
// any more (docs/design/parts.md). Answered as a fetch, under the names of the parts.
inline constexpr FrameKind kStorePart{138};
// HoldHead, then HeldObject[]: a worker wants to hold the arguments of a call, or says what became
// of that (raylet/objects/argument_ledger.h).
inline constexpr FrameKind kStoreHold{137};
// Raylet -> process.
inline constexpr FrameKind kStoreExtentGrant{144};  // ExtentGrant.
inline constexpr FrameKind kStoreAlreadyYours{
    145};  // ExtentCancel: look again, an idle extent of yours fits.
inline constexpr FrameKind kStoreSlotGrant{146};  // SlotGrant.
inline constexpr FrameKind kStoreRefused{147};    // StoreRefusal.
inline constexpr FrameKind kStoreRecall{148};     // StoreRecall: return shared extents and pages.
inline constexpr FrameKind kStoreLocated{
    149};  // LocatedObject[]: answers to lookups, in any order.
// Raylet -> the owner of the objects, on any node. ObjectName[]: here are copies of your objects.
// Answered by kStoreFree for those that the owner does not know (any more).
inline constexpr FrameKind kStoreCopied{150};

// HoldAdmitted: the arguments of that call may be held.
inline constexpr FrameKind kStoreHeld{151};

constexpr bool IsStoreFrame(FrameKind kind) {
  return kind >= FrameKind::kStoreFirst && kind <= FrameKind::kStoreLast;
}

struct ExtentRequest {
  uint64_t request = 0;  // Chosen by the process, increasing, from 1.
  uint64_t bytes = 0;    // At least this many.
  int64_t wait_ns = 0;   // How long the raylet may make room before it refuses.
  // The slot of the one object that will lie there; kNoSlot: many small ones.
  uint32_t slot = kNoSlot;
  // Many small ones: so many granules will do when `bytes` cannot be had. 0: they will not.
  uint32_t least_granules = 0;
};
struct ExtentCancel {
  uint64_t request = 0;
};
struct ExtentGrant {
  uint64_t request = 0;
  uint64_t offset = 0;  // In the arena. All its pages are populated.
  uint64_t bytes = 0;
  uint32_t slot = kNoSlot;
  uint32_t unused = 0;
};
struct ExtentRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
struct StoreRecall {
  uint32_t with_objects = 0;  // 0: the empty ones. Else those with sealed objects in them, too.
  uint32_t keep_pages = 0;    // So many wholly free slot pages may stay.
};
struct SlotRequest {
  uint64_t request = 0;
  uint32_t pages = 0;  // At most.
  uint32_t unused = 0;
  int64_t wait_ns = 0;  // How long the raylet may look for pages before it refuses.
};
struct SlotGrant {
  uint64_t request = 0;
  uint32_t first_page = 0;  // Pages of kSlotsPerPage slots, all kFree.
  uint32_t pages = 0;
};
struct SlotPages {
  uint32_t first = 0;
  uint32_t count = 0;
};

enum class StoreRefusalReason : uint32_t {
  kFull = 1,       // Nothing could be freed or spilled in time.
  kOutOfDisk = 2,  // What could be spilled finds no room on the disk.
  kTooLarge = 3,   // More than the whole store.
  kTableFull = 4,  // No slots came free in time.
  kInvalid = 5,    // The request made no sense.
  kCancelled = 6,
};
struct StoreRefusal {
  uint64_t request = 0;
  StoreRefusalReason reason = StoreRefusalReason::kFull;
  uint32_t unused = 0;
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t pinned_bytes = 0;
};

struct SealedSlot {
  uint32_t slot = kNoSlot;
  uint32_t generation = 0;
};
struct ObjectName {
  ObjectId id;
  // `node` 0: any attempt is meant. Else attempts up to this one.
  // The sender's last knowledge; may be stale or unknown, `id` decides then.
  ObjectLocation location;
};
struct FetchWanted {
  ObjectId id;
  ObjectLocation hint;  // Where a copy was said to be; slot kNoSlot: somewhere on `hint.node`.
  uint64_t size = 0;    // Of the payload; 0: not known.
};
struct PartWanted {
  ObjectId id;  // Of the part; its maker is the sender.
  ObjectId of;
  ObjectLocation
      hint;  // Where a copy of `of` was said to be; slot kNoSlot: somewhere on that node.
  uint64_t offset = 0;  // In its payload.
  uint64_t bytes = 0;   // More than 0.
  uint32_t cancel = 0;  // 1: it is not wanted any more.
  uint32_t unused = 0;
};
enum class LookupOutcome : uint32_t {
  kFound = 0,
  kNotFound = 1,    // Not on this node, as far as the raylet knows.
  kDataLoss = 2,    // It was spilled and its copy on disk is damaged or gone.
  kFull = 3,        // It is spilled and there was no room to restore it in time.
  kComing = 4,      // No answer yet: the raylet is at it.
  kOutOfRange = 5,  // The object has no such part.
};
struct LocatedObject {
  ObjectId id;
  ObjectLocation location;  // kFound.
  LookupOutcome outcome = LookupOutcome::kNotFound;
  uint32_t flags = 0;
};
enum class HoldStep : uint32_t {
  kAsk = 0,      // Answered by kStoreHeld, when they may be held.
  kSuspend = 1,  // The call waits for others;
  kResume = 2,   // it goes on.
  kEnd = 3,      // It holds them no more, or does not want to.
};
struct HoldHead {
  uint64_t ticket = 0;  // Of the call; chosen by the process, increasing, from 1.
  uint64_t caller = 0;  // kAsk: the process that made the call, packed.
  HoldStep step = HoldStep::kAsk;
  uint32_t count = 0;  // kAsk: of the objects that follow.
};
struct HeldObject {
  ObjectId id;
  uint64_t bytes = 0;
};
struct HoldAdmitted {
  uint64_t ticket = 0;
};
static_assert(sizeof(HoldHead) == 24 && sizeof(HeldObject) == 24);
static_assert(sizeof(ExtentRequest) == 32 && sizeof(SlotRequest) == 24 && sizeof(SlotPages) == 8 &&
              sizeof(ExtentGrant) == 32 && sizeof(ObjectName) == 32 && sizeof(FetchWanted) == 40 &&
              sizeof(PartWanted) == 72 && sizeof(LocatedObject) == 40 &&
              sizeof(StoreRefusal) == 40);

// The items of a body; what is left over at its end (a malformed frame) is not looked at.
template <class T>
std::span<const T> FrameItems(std::string_view body) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
  return {reinterpret_cast<const T*>(body.data()), body.size() / sizeof(T)};
}
template <class T>
std::string_view ItemsAsBytes(std::span<const T> items) {
  return {reinterpret_cast<const char*>(items.data()), items.size_bytes()};
}
// Items of one frame at most; longer batches are sent in several.
inline constexpr size_t kMaxStoreItems = 1024;

}  // namespace sheaf
