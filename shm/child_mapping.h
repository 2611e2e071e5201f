// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a forked child finds where its parent has mapped shared memory. By itself the same memory,
// so that a child that changes an array of its own, as it thinks, changes its parent's.
#pragma once

#include <cstddef>

namespace sheaf {

// While it lives, children forked from this process find something else in [data, data + bytes).
// Thread-safe, as forking is.
class ChildMapping {
 public:
  ChildMapping() = default;
  // They find bytes of their own: those of `fd` from its begin, as they are when the child looks at
  // a page, and what it writes nobody else sees. `fd` stays open as long as this lives.
  static ChildMapping Copy(std::byte* data, size_t bytes, int fd);
  // They find nothing: their accesses fault.
  static ChildMapping Nothing(std::byte* data, size_t bytes);
  ChildMapping(ChildMapping&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  ChildMapping& operator=(ChildMapping&& other) noexcept;
  ~ChildMapping();

 private:
  std::byte* data_ = nullptr;
};

}  // namespace sheaf
