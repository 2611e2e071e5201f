// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Amounts of named resources: what a node has, what a task asks for. Fixed point, so that a
// thousand additions and subtractions of 0.1 end where they began.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

using Amount = int64_t;  // In 1/10000: CPU 10000 is one core, memory 10000 one byte.
inline constexpr Amount kUnit = 10'000;
inline constexpr double kMaxAmount = 1e9;  // Of anything but bytes.
inline constexpr double kMaxBytes = 1e13;  // Of "memory" and "object_store_memory".
inline constexpr size_t kMaxResourceNames = 256;
inline constexpr size_t kMaxResourceNameBytes = 256;

// The resources that every node knows stand in an array; all others are found by name.
enum class KnownResource : uint8_t { kCpu = 0, kGpu = 1, kMemory = 2, kObjectStoreMemory = 3 };
inline constexpr size_t kKnownResources = 4;
inline constexpr std::array<std::string_view, kKnownResources> kKnownResourceNames = {
    "CPU", "GPU", "memory", "object_store_memory"};

// A value. What is not named has amount 0; names with amount 0 are not kept. Amounts may be
// negative (a ledger whose lent CPUs were taken back). Without custom names no operation allocates.
class Resources {
 public:
  using Custom = std::pair<std::string, Amount>;

  Resources() = default;
  static Resources Of(KnownResource name, Amount amount) {
    Resources result;
    result.known_[static_cast<size_t>(name)] = amount;
    return result;
  }
  static Resources Cpu(double cores) {
    return Of(KnownResource::kCpu, static_cast<Amount>(cores * kUnit + 0.5));
  }

  Amount Get(KnownResource name) const { return known_[static_cast<size_t>(name)]; }
  Amount Get(std::string_view name) const;
  Amount cpu() const { return Get(KnownResource::kCpu); }
  Amount gpu() const { return Get(KnownResource::kGpu); }
  void Set(KnownResource name, Amount amount) { known_[static_cast<size_t>(name)] = amount; }
  void Set(std::string_view name, Amount amount);

  // Sums saturate at the ends of int64.
  Resources& operator+=(const Resources& other);
  Resources& operator-=(const Resources& other);
  friend Resources operator+(Resources a, const Resources& b) { return std::move(a += b); }
  friend Resources operator-(Resources a, const Resources& b) { return std::move(a -= b); }

  // Whether `request` can be taken from this: of each name that it asks for (amount > 0) there is
  // enough. A negative amount here forbids only requests for that name.
  bool Fits(const Resources& request) const {
    for (size_t i = 0; i < kKnownResources; ++i) {
      if (request.known_[i] > 0 && request.known_[i] > known_[i]) {
        return false;
      }
    }
    return request.custom_.empty() || FitsCustom(request);
  }
  // What `request` lacks here: per name max(0, request - amount), names that fit left out.
  Resources Missing(const Resources& request) const;
  // Whether some name has a positive amount both here and in `other`.
  bool Overlaps(const Resources& other) const;
  bool empty() const { return known_ == std::array<Amount, kKnownResources>{} && custom_.empty(); }

  // What is neither of the known ones, by name, no amount 0.
  const std::vector<Custom>& custom() const { return custom_; }
  // Calls visit(std::string_view name, Amount) for each amount other than 0: known ones, then
  // custom by name.
  template <class Visit>
  void ForEach(Visit&& visit) const {
    for (size_t i = 0; i < kKnownResources; ++i) {
      if (known_[i] != 0) {
        visit(kKnownResourceNames[i], known_[i]);
      }
    }
    for (const auto& [name, amount] : custom_) {
      visit(std::string_view(name), amount);
    }
  }
  // From pairs of name and fixed-point amount (a proto::Resources map) of a peer.
  // kInvalidArgument: see CheckAmount; more than kMaxResourceNames.
  template <class Map>
  static absl::StatusOr<Resources> FromMap(const Map& amounts) {
    if (amounts.size() > kMaxResourceNames) {
      return absl::InvalidArgumentError("more than 256 resource names");
    }
    Resources result;
    for (const auto& [name, amount] : amounts) {
      if (absl::Status status = CheckAmount(name, amount); !status.ok()) {
        return status;
      }
      result.Set(name, amount);
    }
    return result;
  }
  template <class Map>
  void ToMap(Map& amounts) const {
    ForEach([&](std::string_view name, Amount amount) { amounts[std::string(name)] = amount; });
  }

  // "1 CPU, 0.5 GPU, 2 GiB memory, 3 slot"; "nothing".
  std::string ToString() const;

  friend bool operator==(const Resources&, const Resources&) = default;
  friend auto operator<=>(const Resources&, const Resources&) = default;
  template <class H>
  friend H AbslHashValue(H h, const Resources& r) {
    return H::combine(std::move(h), r.known_, r.custom_);
  }

  // kInvalidArgument: an empty or overlong name or one with control characters; negative; above
  // kMaxAmount (kMaxBytes); more than one GPU that is not a whole number of them.
  static absl::Status CheckAmount(std::string_view name, Amount amount);

 private:
  bool FitsCustom(const Resources& request) const;

  std::array<Amount, kKnownResources> known_{};
  std::vector<Custom> custom_;  // By name, no amount 0.
};

// `amount` in fixed point, rounded. kInvalidArgument: as CheckAmount; NaN; positive but below
// 0.0001.
absl::StatusOr<Amount> AmountFromDouble(std::string_view name, double amount);
// Parses "CPU:2,GPU:0.5"; the amount follows the last colon. Bytes take the suffixes K, M, G and T
// (1024s). kInvalidArgument: malformed, an amount as above, or a name that comes twice.
absl::StatusOr<Resources> ParseResources(std::string_view text);
// "0.5 GPU", "2 GiB memory".
std::string AmountToString(std::string_view name, Amount amount);

}  // namespace sheaf
