// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/scheduling/resource_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sheaf {

std::vector<uint32_t> Allocation::GpuIds() const {
  std::vector<uint32_t> ids;
  ids.reserve(gpus.size());
  for (const GpuShare& share : gpus) ids.push_back(share.id);
  return ids;
}

void GpuPool::Add(uint32_t id, Amount amount) { gpus_.push_back({id, amount}); }

bool GpuPool::CanTake(Amount amount) const {
  if (amount < kUnit) {
    return std::any_of(gpus_.begin(), gpus_.end(),
                       [&](const Gpu& gpu) { return gpu.free >= amount; });
  }
  const Amount whole =
      std::count_if(gpus_.begin(), gpus_.end(), [](const Gpu& gpu) { return gpu.free >= kUnit; });
  return whole >= amount / kUnit;
}

std::optional<GpuShares> GpuPool::Take(Amount amount) {
  if (!CanTake(amount)) return std::nullopt;
  GpuShares taken;
  if (amount < kUnit) {
    Gpu* tightest = nullptr;
    for (Gpu& gpu : gpus_) {
      if (gpu.free >= amount && (tightest == nullptr || gpu.free < tightest->free)) tightest = &gpu;
    }
    tightest->free -= amount;
    taken.push_back({tightest->id, amount});
    return taken;
  }
  for (Gpu& gpu : gpus_) {
    if (amount >= kUnit && gpu.free >= kUnit) {
      gpu.free -= kUnit;
      amount -= kUnit;
      taken.push_back({gpu.id, kUnit});
    }
  }
  return taken;
}

void GpuPool::Give(const GpuShares& shares) {
  for (const GpuShare& share : shares) {
    for (Gpu& gpu : gpus_) {
      if (gpu.id == share.id) gpu.free += share.amount;
    }
  }
}

GpuShares GpuPool::Free() const {
  GpuShares free;
  for (const Gpu& gpu : gpus_) {
    if (gpu.free > 0) free.push_back({gpu.id, gpu.free});
  }
  return free;
}

ResourceLedger::ResourceLedger(Resources total, Labels labels, std::vector<uint32_t> gpu_ids)
    : total_(std::move(total)), available_(total_), labels_(std::move(labels)) {
  uint32_t next = 0;
  size_t named = 0;
  for (Amount left = total_.gpu(); left > 0; left -= kUnit) {
    uint32_t id = 0;
    if (named < gpu_ids.size()) {
      id = gpu_ids[named++];
    } else {
      while (std::find(gpu_ids.begin(), gpu_ids.end(), next) != gpu_ids.end()) ++next;
      id = next++;
    }
    gpus_.Add(id, std::min(left, kUnit));
  }
}

std::optional<Allocation> ResourceLedger::Acquire(const Resources& request) {
  if (!CanAcquire(request)) return std::nullopt;
  Allocation allocation;
  if (request.gpu() > 0) allocation.gpus = *gpus_.Take(request.gpu());
  available_ -= request;
  allocation.resources = request;
  return allocation;
}

absl::btree_map<BundleId, ResourceLedger::Bundle>::iterator ResourceLedger::PickBundle(
    PlacementGroupId group, int32_t bundle, const Resources& request) {
  const auto fits = [&](const Bundle& candidate) {
    return candidate.committed && candidate.available.Fits(request) &&
           (request.gpu() <= 0 || candidate.gpus.CanTake(request.gpu()));
  };
  if (bundle >= 0) {
    const auto it = bundles_.find(BundleId{group, bundle});
    return it != bundles_.end() && fits(it->second) ? it : bundles_.end();
  }
  for (auto it = bundles_.lower_bound(BundleId{group, 0});
       it != bundles_.end() && it->first.group == group; ++it) {
    if (fits(it->second)) return it;
  }
  return bundles_.end();
}

Resources ResourceLedger::AvailableIn(PlacementGroupId group) const {
  if (group.is_nil()) return available_;
  Resources available;
  for (auto it = bundles_.lower_bound(BundleId{group, 0});
       it != bundles_.end() && it->first.group == group; ++it) {
    available += it->second.available;
  }
  return available;
}

bool ResourceLedger::CanAcquireIn(PlacementGroupId group, int32_t bundle,
                                  const Resources& request) {
  return PickBundle(group, bundle, request) != bundles_.end();
}

std::optional<Allocation> ResourceLedger::AcquireIn(PlacementGroupId group, int32_t bundle,
                                                    const Resources& request) {
  const auto picked = PickBundle(group, bundle, request);
  if (picked == bundles_.end()) return std::nullopt;
  Allocation allocation;
  if (request.gpu() > 0) allocation.gpus = *picked->second.gpus.Take(request.gpu());
  picked->second.available -= request;
  allocation.resources = request;
  allocation.bundle = picked->first;
  allocation.bundle_serial = picked->second.serial;
  return allocation;
}

bool ResourceLedger::CouldEverAcquireIn(PlacementGroupId group, int32_t bundle,
                                        const Resources& request) const {
  for (auto it = bundles_.lower_bound(BundleId{group, std::max(bundle, 0)});
       it != bundles_.end() && it->first.group == group; ++it) {
    if (bundle >= 0 && it->first.index != bundle) break;
    if (it->second.total.Fits(request)) return true;
  }
  return false;
}

std::pair<Resources*, GpuPool*> ResourceLedger::AccountOf(const Allocation& allocation) {
  if (allocation.bundle.has_value()) {
    const auto it = bundles_.find(*allocation.bundle);
    if (it != bundles_.end() && it->second.serial == allocation.bundle_serial)
      return {&it->second.available, &it->second.gpus};
  }
  return {&available_, &gpus_};
}

void ResourceLedger::Release(const Allocation& allocation) {
  const auto [amounts, gpus] = AccountOf(allocation);
  *amounts += allocation.resources;
  if (allocation.lent) {  // They went back already.
    *amounts -= Resources::Of(KnownResource::kCpu, allocation.resources.cpu());
  }
  gpus->Give(allocation.gpus);
}

void ResourceLedger::Lend(Allocation& allocation) {
  if (!std::exchange(allocation.lent, true))
    *AccountOf(allocation).first += Resources::Of(KnownResource::kCpu, allocation.resources.cpu());
}

void ResourceLedger::Reclaim(Allocation& allocation) {
  if (std::exchange(allocation.lent, false))
    *AccountOf(allocation).first -= Resources::Of(KnownResource::kCpu, allocation.resources.cpu());
}

absl::Status ResourceLedger::Prepare(BundleId bundle, const Resources& resources,
                                     ProcessId coordinator) {
  if (const auto it = bundles_.find(bundle); it != bundles_.end()) {
    return it->second.total == resources
               ? absl::OkStatus()
               : absl::AlreadyExistsError(absl::StrCat("bundle ", bundle.index, " of group ",
                                                       bundle.group.ToHex(), " has ",
                                                       it->second.total.ToString()));
  }
  std::optional<Allocation> allocation = Acquire(resources);
  if (!allocation.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(resources.ToString(), " wanted, ", available_.ToString(), " available"));
  }
  Bundle& made = bundles_[bundle];
  made.total = resources;
  made.available = resources;
  made.coordinator = coordinator;
  made.serial = ++last_serial_;
  for (const GpuShare& share : allocation->gpus) made.gpus.Add(share.id, share.amount);
  return absl::OkStatus();
}

absl::Status ResourceLedger::Commit(BundleId bundle) {
  const auto it = bundles_.find(bundle);
  if (it == bundles_.end()) {
    return absl::NotFoundError(absl::StrCat("bundle ", bundle.index, " of group ",
                                            bundle.group.ToHex(), " is not prepared here"));
  }
  it->second.committed = true;
  return absl::OkStatus();
}

bool ResourceLedger::ReturnBundle(BundleId bundle) {
  const auto it = bundles_.find(bundle);
  if (it == bundles_.end()) return false;
  available_ += it->second.available;
  gpus_.Give(it->second.gpus.Free());
  bundles_.erase(it);
  return true;
}

}  // namespace sheaf
