// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The object store as a driver or worker sees it. Create, seal, get and free touch shared memory
// only; the raylet is asked (and never waited for: its answers come through OnFrame) when memory or
// slots run out, and for objects whose location is not known.
//
// Not thread-safe: the user holds one lock around every call. What it hands out needs no lock: a
// MutableBuffer is filled, and a Buffer read, copied and dropped, on any thread.
//
// Putting: Create; fill; Seal. When Create says kUnavailable it has sent a request; call it again
// with the same id after the next OnFrame, until the caller's own deadline, then CancelCreate.
// Getting: Get with the location that came with the reference. kNotFound: Lookup, and Get again
// with the location that `on_located` brings. Re-ask at least each second: no wait hangs on one
// message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "base/transport.h"
#include "base/unique_fd.h"
#include "object_store/buffer.h"
#include "object_store/layout.h"
#include "object_store/messages.h"
#include "shm/segment.h"

namespace sheaf {

class ArenaViews;
struct ClientExtent;
class ClientExtents;
class ClientSlots;
class Pin;

// What is to be created.
struct ObjectSpec {
  ObjectId id = {};
  uint32_t attempt = 0;
  uint32_t flags = 0;                     // The codec's; given back by Get.
  uint64_t size_bytes = 0;                // Of the payload; may be 0.
  std::span<const ObjectId> nested = {};  // References inside the value; copied.
  Nanos wait = 10 * kSecond;              // How long the raylet may spill before it refuses.
};

// A sealed object. `nested` lies in the arena as well and is valid as long as a Buffer of it lives.
struct StoredObject {
  Buffer bytes;
  uint32_t attempt = 0;
  uint32_t flags = 0;
  std::span<const ObjectId> nested;
};

class StoreClient {
 public:
  // An answer to Lookup. Runs inside OnFrame, under the user's lock.
  // kNotFound: not on this node. kDataLoss: spilled, and the disk lost it. kResourceExhausted:
  // spilled, and no room to restore it. kUnavailable: no answer yet, the raylet is at it.
  using LocatedHandler = std::function<void(ObjectId, absl::StatusOr<ObjectLocation>)>;

  struct Stats {
    uint64_t views = 0;       // Distinct objects pinned by this process.
    uint64_t held_bytes = 0;  // Extents granted to this process.
    uint64_t idle_bytes = 0;  // Of these, warm and unused.
    uint64_t slots = 0;
    uint64_t creates = 0;
    uint64_t requests = 0;  // Extents and slot pages asked for: creates without one were local.
  };

  // `arena`: the memfd of the node. `segment`: this process's own (shm/process_segment.h), mapped
  // writable. `raylet` outlives the client; buffers may outlive it. kInvalidArgument: not an arena
  // of this layout.
  static absl::StatusOr<std::unique_ptr<StoreClient>> Open(ProcessId self, UniqueFd arena,
                                                           std::shared_ptr<Mapping> segment,
                                                           Channel& raylet,
                                                           LocatedHandler on_located);
  ~StoreClient();  // Unsealed objects are lost; the raylet gets the grants back when it sees the
                   // process end.

  // kUnavailable: asked the raylet; call again. kResourceExhausted: the store is full, or
  // (StoreErrorKind tells) the disk behind it, or the object is larger than the whole store.
  absl::StatusOr<MutableBuffer> Create(const ObjectSpec& spec);
  // Asks for slots and a little room ahead of need, if there are none: the first small objects are
  // then created at once.
  void Reserve();
  // The caller of Create gave up on `id`.
  void CancelCreate(ObjectId id);
  // The name that `buffer`, which must come from Create, will be sealed under.
  ObjectId IdOf(const MutableBuffer& buffer) const;
  // Publishes. `buffer` must come from Create.
  ObjectLocation Seal(MutableBuffer buffer);
  // Create, copy (with several threads when large) and Seal.
  absl::StatusOr<ObjectLocation> Put(const ObjectSpec& spec, std::string_view bytes);

  // The object, pinned while a Buffer of it lives. kNotFound: not here, no more here, or not known
  // to be here; ask Lookup. kResourceExhausted: this process pins a million objects.
  absl::StatusOr<StoredObject> Get(ObjectId id, const ObjectLocation& location);
  // Whether a Get would find it there. A glance, for waits: it may be gone a moment later.
  bool Has(const ObjectLocation& location) const;
  // Asks the raylet; one call of `on_located` for each id follows, or none if the raylet dies.
  void Lookup(std::span<const ObjectId> ids);
  // Frees every copy of `id` on this node, of any attempt up to `location.attempt`. Views of it
  // keep their bytes.
  void Free(ObjectId id, const ObjectLocation& location);

  // Sends what is batched (announcements, frees). Call before sleeping and at the end of each turn.
  void Flush();
  bool has_unsent() const { return !sealed_.empty() || !freed_.empty(); }
  // A frame with IsStoreFrame(kind) from the raylet.
  void OnFrame(FrameKind kind, std::string_view body);
  // Rises whenever a Create that was refused or unavailable may go otherwise now.
  uint64_t room_version() const { return room_version_; }

  ProcessId self() const { return self_; }
  uint64_t capacity_bytes() const;
  Stats stats() const;

 private:
  struct PendingCreate {
    uint64_t request = 0;  // Its answer lets the Create go on.
    absl::Status refusal;  // Not OK: that answer has come, and the next Create returns it.
  };
  struct Request {
    uint32_t slot = kNoSlot;  // Reserved for the dedicated extent that was asked for.
  };

  StoreClient(ProcessId self, NodeNumber node, Channel& raylet, LocatedHandler on_located,
              std::shared_ptr<ArenaViews> views, std::unique_ptr<ClientSlots> slots,
              std::unique_ptr<ClientExtents> extents);

  absl::StatusOr<MutableBuffer> CreateDedicated(const ObjectSpec& spec, uint64_t footprint);
  absl::StatusOr<MutableBuffer> CreateShared(const ObjectSpec& spec, uint64_t footprint);
  MutableBuffer Prepare(const ObjectSpec& spec, uint32_t slot, ClientExtent& extent,
                        uint64_t offset);
  uint64_t AskForSlots(Nanos wait);
  // `least`: shared ones only, what will do when `bytes` cannot be had.
  uint64_t AskForExtent(uint64_t bytes, uint64_t least, uint32_t slot, Nanos wait);
  absl::Status WaitFor(ObjectId id, uint64_t request);
  void HarvestDedicated(bool everything);
  bool HarvestIfFreed(ClientExtent* extent);
  void ForgetTakenBack();
  void HarvestShared(bool everything);
  void ReturnEmptyExtents(size_t keep);
  // Shared extents that nobody writes into: the store takes over the objects in them.
  void ReturnSealedExtents();
  void ReturnFreePages(size_t keep);  // Of slots.
  // After what was batched: the raylet has heard then of all that lay there.
  template <class T>
  void SendReturn(FrameKind kind, std::span<const T> ranges);
  void DrainReleased();
  void Unseal(uint32_t slot);  // An unsealed buffer was dropped.
  void Answered(uint64_t request, const absl::Status& outcome);
  void OnExtentGrant(const ExtentGrant& grant);
  void OnSlotGrant(const SlotGrant& grant);
  void OnLocated(std::span<const LocatedObject> objects);

  const ProcessId self_;
  const NodeNumber node_;
  Channel& raylet_;
  const LocatedHandler on_located_;
  const std::shared_ptr<ArenaViews> views_;
  const std::unique_ptr<ClientSlots> slots_;
  const std::unique_ptr<ClientExtents> extents_;

  absl::flat_hash_map<uint32_t, Pin*> pins_;  // By slot; weak: a Pin may be on its way out.
  absl::flat_hash_map<ObjectId, PendingCreate> pending_;
  absl::flat_hash_map<uint64_t, Request> requests_;  // Sent and not answered.
  uint64_t next_request_ = 1;
  uint64_t shared_request_ = 0;  // The one under way, or 0.
  uint64_t slot_request_ = 0;
  uint64_t room_version_ = 0;
  uint64_t harvested_at_ = 0;          // Creates, when all slots were looked at.
  uint64_t shared_since_harvest_ = 0;  // Bytes created since then.
  std::vector<SealedSlot> soon_idle_;  // Freed by this process, each with an extent of its own.
  uint64_t harvested_dedicated_at_ = 0;
  std::vector<SealedSlot> sealed_;  // Not yet announced.
  std::vector<ObjectName> freed_;   // Not yet sent.
  uint64_t freed_bytes_ = 0;        // Of those that this process made.
  Stats counts_;
};

// The error a user sees for a status of Create, Put, Get or Lookup.
ErrorKind StoreErrorKind(const absl::Status& status);

}  // namespace sheaf
