// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Writes a process's profile (profile_page.h). One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "telemetry/profile_page.h"

namespace sheaf::telemetry {

class ProfileWriter {
 public:
  // `page` is all zeros, and outlives this.
  explicit ProfileWriter(ProfilePage& page) : page_(page) {}
  ProfileWriter(const ProfileWriter&) = delete;
  ProfileWriter& operator=(const ProfileWriter&) = delete;

  static constexpr uint32_t kNoFrame = UINT32_MAX;  // There is no room for it.
  // The number of a function, by which Below knows it.
  uint32_t FrameOf(std::string_view function, std::string_view file, uint32_t line);
  static constexpr uint32_t kRoot = 0;
  // The node of `frame` below `parent`; `parent` itself where there is no room.
  uint32_t Below(uint32_t parent, uint32_t frame);
  // So much more time was spent in `node` itself.
  void Add(uint32_t node, uint64_t microseconds);

 private:
  ProfilePage& page_;
  absl::flat_hash_map<std::string, uint32_t> frames_;
  absl::flat_hash_map<uint64_t, uint32_t> nodes_;  // By NodeSlot::place.
};

}  // namespace sheaf::telemetry
