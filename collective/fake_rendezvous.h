// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A rendezvous in memory, which threads and the processes that this one forks later share.
#pragma once

#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "collective/rendezvous.h"
#include "shm/segment.h"

namespace sheaf {

// The place itself; outlives the FakeRendezvous of all ranks.
class FakeMeetingPlace {
 public:
  static constexpr int kRanks = 16;
  static constexpr size_t kBytes = 1000;
  struct Slot {
    std::atomic<uint32_t> lock;
    uint32_t size;  // 0: empty.
    char bytes[kBytes];
  };

  FakeMeetingPlace() {
    auto fd = MakeSegment("fake-rendezvous", RoundUpToPage(kRanks * sizeof(Slot)));
    if (fd.ok()) {
      auto mapping =
          Mapping::Map(fd->get(), 0, RoundUpToPage(kRanks * sizeof(Slot)), Access::kReadWrite);
      if (mapping.ok()) mapping_ = *std::move(mapping);
    }
  }
  // Calls `use` with the slot of `rank`, which no one else uses meanwhile.
  template <class Use>
  auto With(int rank, Use use) {
    Slot& slot = reinterpret_cast<Slot*>(mapping_.data())[rank];
    while (slot.lock.exchange(1, std::memory_order_acquire) != 0) {
    }
    auto result = use(slot);
    slot.lock.store(0, std::memory_order_release);
    return result;
  }

 private:
  Mapping mapping_;
};

class FakeRendezvous final : public Rendezvous {
 public:
  explicit FakeRendezvous(FakeMeetingPlace& place) : place_(place) {}
  absl::Status Publish(int rank, absl::string_view bytes, Nanos) override {
    if (bytes.size() > FakeMeetingPlace::kBytes) return absl::InvalidArgumentError("too long");
    return place_.With(rank, [&](auto& slot) {
      slot.size = static_cast<uint32_t>(bytes.size());
      std::memcpy(slot.bytes, bytes.data(), bytes.size());
      return absl::OkStatus();
    });
  }
  absl::StatusOr<Found> Look(std::span<const int> ranks, Nanos) override {
    Found found;
    for (const int rank : ranks) {
      found.push_back(place_.With(rank, [&](auto& slot) -> std::optional<std::string> {
        if (slot.size == 0) return std::nullopt;
        return std::string(slot.bytes, slot.size);
      }));
    }
    return found;
  }
  absl::Status Withdraw(int rank, absl::string_view bytes, Nanos) override {
    return place_.With(rank, [&](auto& slot) {
      if (absl::string_view(slot.bytes, slot.size) == bytes) slot.size = 0;
      return absl::OkStatus();
    });
  }

 private:
  FakeMeetingPlace& place_;
};

}  // namespace sheaf
