// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A lease of a worker, the demand that it was granted for, and what is to be done about either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error_kind.h"
#include "base/ids.h"
#include "raylet/scheduling/resource_ledger.h"
#include "scheduling/lease_spec.h"

namespace sheaf {

// Times a demand is spilled back: to where there is room once, and what finds none there goes back
// to who knows its owner; among the bundles of a placement group twice.
inline constexpr uint32_t kHopsToRoom = 1;
inline constexpr uint32_t kMaxHops = 2;
inline constexpr uint32_t kMaxWanted = 1'000'000;  // Of one demand; more is cut to this.
inline constexpr size_t kMaxKeysPerOwner = 1'000'000;

struct LeaseQueueOptions {
  uint32_t overtakes_max = 32;
  Nanos reserve_after = 200 * kMillisecond;
  Nanos reservation_limit = 30 * kSecond;
  Nanos quantum = 10 * kMillisecond;  // A busy lease is asked back for an equal only after this.
  // An owner that keeps a lease so long after kRevoke: another is asked as well.
  Nanos patience = 100 * kMillisecond;
  Nanos lend_after = 5 * kMillisecond;  // A worker blocked so long lends its CPUs.
  uint32_t lenders_max = 512;           // Workers whose CPUs are lent at one time.
  uint32_t free_leases_max = 256;       // Of one demand for tasks that need no resources.
};

// One demand.
struct DemandId {
  ProcessId owner;
  uint64_t key = 0;
  NodeNumber via = 0;  // The raylet that spilled it back to here; 0: the owner itself.

  friend auto operator<=>(const DemandId&, const DemandId&) = default;
  template <class H>
  friend H AbslHashValue(H h, const DemandId& id) {
    return H::combine(std::move(h), id.owner, id.key, id.via);
  }
};

// A lease that is out: from kGrant until LeaseQueue::OnReturn.
struct Lease {
  LeaseNumber number = 0;
  DemandId demand;
  std::shared_ptr<const LeaseSpec> spec;
  Allocation allocation;
  Nanos granted_at = 0;
  Nanos blocked_since = 0;  // 0: it is not.
  bool revoked = false;     // It was asked back.
  bool ending = false;      // kEnd was said.
  bool leaving = false;     // Its worker ends by itself, within some time.
};

struct LeaseAction {
  enum class Kind : uint8_t {
    // The resources of Find(lease) are taken: find or start a worker for it, bind it, tell both. If
    // that fails: OnGrantFailed or OnReturn.
    kGrant,
    // Ask `demand.owner` to give `lease` back: somebody else waits. At most once per lease.
    kRevoke,
    // End `lease` at its worker at once (its owner is gone, or its placement group: `error`), kill
    // it if it is busy, then OnReturn.
    kEnd,
    // Tell the owner that this demand is dropped: `error`, `message`.
    kRefuse,
    // Tell the owner that nothing can satisfy the demand now; it stays. Once, until that changes.
    kNotice,
    // Send the raylet of `node` this demand with `wanted` (absolute, as its part), via = this node,
    // `hops`. 0 takes it back.
    kSpillback,
    // Tell the raylet `node`, which spilled this demand back to here, that only `wanted` of it
    // stays here: others have room and it may not go on from here, or it is `unneeded`.
    kGiveBack,
  };
  Kind kind = Kind::kGrant;
  DemandId demand;
  LeaseNumber lease = 0;
  NodeNumber node = 0;
  uint32_t wanted = 0;
  uint32_t hops = 0;
  bool unneeded = false;  // kGiveBack: not for want of room.
  ErrorKind error = ErrorKind::kNone;
  std::string message;
};

}  // namespace sheaf
