// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the code at an address is called, for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "telemetry/profile_writer.h"

namespace sheaf::inline v1::internal {

// "app::Twice<int>()" -> "app::Twice".
std::string WithoutTemplates(std::string_view name);

// Remembers what it has found. Of large programs each name takes long: where too much of the time goes
// into names, what is new is called as what has no symbol is, by its library. Not thread-safe.
class CodeNames {
 public:
  // The frames of names are those of `writer`, which outlives this.
  explicit CodeNames(telemetry::ProfileWriter& writer) : writer_(writer) {}

  struct Name {
    std::string function;  // Empty: no code of this process's.
    uint32_t frame = 0;
    bool is_library = false;  // All that is known is where it lies.
  };
  // Valid until the next call.
  const Name& Of(uintptr_t address);

 private:
  static constexpr size_t kMost = 50'000;
  static constexpr Nanos kAtFirst = 100 * kMillisecond;
  static constexpr int kOneIn = 50;  // Of the time since.
  bool MayLook(Nanos now) const { return looked_for_ < kAtFirst + (now - began_) / kOneIn; }

  telemetry::ProfileWriter& writer_;
  const Nanos began_ = MonotonicNow();
  Nanos looked_for_ = 0;
  absl::flat_hash_map<uintptr_t, Name> names_;
  absl::flat_hash_map<std::string, Name> libraries_;
};

}  // namespace sheaf::inline v1::internal
