// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who holds how much of one node. The only place where its resources are given and taken, so what
// it gives out never exceeds the totals, but for CPUs that a blocked worker lent and took back
// (Reclaim). Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "base/resources.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

// A part of one GPU.
struct GpuShare {
  uint32_t id = 0;
  Amount amount = 0;  // kUnit is the whole of it.

  friend bool operator==(const GpuShare&, const GpuShare&) = default;
};
using GpuShares = absl::InlinedVector<GpuShare, 1>;

// One bundle of a placement group.
struct BundleId {
  PlacementGroupId group;
  int32_t index = 0;

  friend auto operator<=>(const BundleId&, const BundleId&) = default;
};

// Resources in somebody's hands. Goes back by ResourceLedger::Release, exactly once.
struct Allocation {
  Resources resources;
  GpuShares gpus;                  // Their sum is the GPU amount of `resources`.
  std::optional<BundleId> bundle;  // Taken from it; else from the node itself.
  uint64_t bundle_serial = 0;      // Which of the bundles that had this name.
  bool lent = false;               // Its CPUs are lent to others.

  std::vector<uint32_t> GpuIds() const;
};

// The GPUs of a node or a bundle, by id. Fractions share an id, packed as tightly as they go; whole
// GPUs take ids of which nothing is used.
class GpuPool {
 public:
  void Add(uint32_t id, Amount amount);
  // `amount` <= kUnit from one id, or a whole number of ids. nullopt: no id has so much left.
  std::optional<GpuShares> Take(Amount amount);
  bool CanTake(Amount amount) const;
  void Give(const GpuShares& shares);
  GpuShares Free() const;

 private:
  struct Gpu {
    uint32_t id;
    Amount free;
  };
  std::vector<Gpu> gpus_;
};

class ResourceLedger {
 public:
  // `gpu_ids` names the GPUs of `total`; if too few are given, the rest are numbered upwards from
  // 0.
  ResourceLedger(Resources total, Labels labels, std::vector<uint32_t> gpu_ids = {});

  const Resources& total() const { return total_; }
  const Resources& available() const { return available_; }  // Of the node itself, outside bundles.
  // Of all bundles of `group` here; nil: available().
  Resources AvailableIn(PlacementGroupId group) const;
  const Labels& labels() const { return labels_; }

  // Whether Acquire would succeed.
  bool CanAcquire(const Resources& request) const {
    return available_.Fits(request) && (request.gpu() <= 0 || gpus_.CanTake(request.gpu()));
  }
  bool CanAcquireIn(PlacementGroupId group, int32_t bundle, const Resources& request);
  // Takes `request` from the node. nullopt: not now.
  std::optional<Allocation> Acquire(const Resources& request);
  // Takes `request` from a committed bundle of `group` on this node: `bundle`, or with kAnyBundle
  // the first with room. nullopt: not now, or no such bundle here.
  std::optional<Allocation> AcquireIn(PlacementGroupId group, int32_t bundle,
                                      const Resources& request);
  // Whether a bundle of `group` here could ever hold `request`.
  bool CouldEverAcquireIn(PlacementGroupId group, int32_t bundle, const Resources& request) const;
  void Release(const Allocation& allocation);

  // A worker blocked: its CPUs may serve others. It went on: it has them again, even if others use
  // them too. A second call of either changes nothing.
  void Lend(Allocation& allocation);
  void Reclaim(Allocation& allocation);

  // Two-phase. Prepare sets `resources` aside, Commit lets leases use them. A repeat of either is
  // OK. Prepare: kResourceExhausted: does not fit now. kAlreadyExists: same name, other resources.
  // Commit: kNotFound: not prepared (or returned since).
  absl::Status Prepare(BundleId bundle, const Resources& resources, ProcessId coordinator);
  absl::Status Commit(BundleId bundle);
  // Gives a bundle back, prepared or committed: at once what no lease uses, the rest as each lease
  // is released. false: no such bundle.
  bool ReturnBundle(BundleId bundle);

  struct Bundle {
    Resources total;
    Resources available;
    GpuPool gpus;
    // Decides between Commit and ReturnBundle; if it dies uncommitted, return it.
    ProcessId coordinator;
    uint64_t serial = 0;
    bool committed = false;
  };
  const absl::btree_map<BundleId, Bundle>& bundles() const { return bundles_; }

 private:
  // The committed bundle that `request` would be taken from, or end().
  absl::btree_map<BundleId, Bundle>::iterator PickBundle(PlacementGroupId group, int32_t bundle,
                                                         const Resources& request);
  // The amounts and GPUs that `allocation` goes back to: its bundle's, or the node's when that is
  // gone.
  std::pair<Resources*, GpuPool*> AccountOf(const Allocation& allocation);

  Resources total_;
  Resources available_;
  Labels labels_;
  GpuPool gpus_;
  absl::btree_map<BundleId, Bundle> bundles_;
  uint64_t last_serial_ = 0;
};

}  // namespace sheaf
