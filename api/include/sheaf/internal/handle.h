// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One counted reference to an object of the cluster, without its type.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

#include "sheaf/internal/export.h"

namespace sheaf {
struct ObjectEntry;  // The runtime's.
}

namespace sheaf::inline v1::internal {

// The 16 bytes that name an object, task, actor or placement group in the cluster.
struct RawId {
  uint64_t maker = 0;
  uint64_t sequence = 0;
  friend auto operator<=>(const RawId&, const RawId&) = default;
};
SHEAF_API std::string ToHex(RawId id);

SHEAF_API void Retain(ObjectEntry* entry) noexcept;  // Not null.
SHEAF_API void Drop(ObjectEntry* entry) noexcept;    // Not null.
SHEAF_API RawId IdOf(const ObjectEntry* entry) noexcept;

// Copies and drops are thread-safe and take no lock. One pointer, as the runtime's own handles are:
// arrays of them are handed over as they are.
class Handle {
 public:
  Handle() = default;
  Handle(const Handle& other) noexcept : entry_(other.entry_) {
    if (entry_ != nullptr) Retain(entry_);
  }
  Handle(Handle&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  Handle& operator=(Handle other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~Handle() {
    if (entry_ != nullptr) Drop(entry_);
  }
  // Takes over a reference that was counted already.
  static Handle Adopt(ObjectEntry* entry) noexcept {
    Handle handle;
    handle.entry_ = entry;
    return handle;
  }
  ObjectEntry* entry() const noexcept { return entry_; }
  explicit operator bool() const noexcept { return entry_ != nullptr; }
  RawId id() const noexcept { return entry_ == nullptr ? RawId{} : IdOf(entry_); }

 private:
  ObjectEntry* entry_ = nullptr;
};

}  // namespace sheaf::inline v1::internal
