// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// References to objects inside one process. The entry behind a handle belongs to the reference
// table.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/ids.h"

namespace sheaf {

struct ObjectEntry;

// Counts one local reference. Copying and dropping are thread-safe and take no lock; dropping the
// last one only queues the entry for the runtime, so a handle may die anywhere: in a finaliser,
// under the user's own locks, after Runtime::Shutdown. From an entry that may have no handle, one
// is made under the lock of its table.
class ObjectHandle {
 public:
  ObjectHandle() = default;
  explicit ObjectHandle(ObjectEntry* entry) : entry_(entry) { Retain(); }
  ObjectHandle(const ObjectHandle& other) : entry_(other.entry_) { Retain(); }
  ObjectHandle(ObjectHandle&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  ObjectHandle& operator=(ObjectHandle other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~ObjectHandle() {
    if (entry_ != nullptr) Drop();
  }
  explicit operator bool() const { return entry_ != nullptr; }
  ObjectEntry* entry() const { return entry_; }
  ObjectId id() const;  // Nil for an empty handle.
  // For the hot paths of bindings: takes over a reference that was counted already.
  static ObjectHandle Adopt(ObjectEntry* entry) {
    ObjectHandle handle;
    handle.entry_ = entry;
    return handle;
  }
  ObjectEntry* Release() { return std::exchange(entry_, nullptr); }
  friend bool operator==(const ObjectHandle&, const ObjectHandle&) = default;

 private:
  void Retain();
  void Drop();
  ObjectEntry* entry_ = nullptr;
};

}  // namespace sheaf
