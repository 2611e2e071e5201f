// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which objects are looked at: what the hazard lists of all processes (layout.h) named when they
// were last read. One thread; 1 ns an entry.
#pragma once

#include <cstdint>

#include "object_store/arena/object_table.h"
#include "object_store/arena/store_processes.h"

namespace sheaf {

class HazardScan {
 public:
  // Both outlive this.
  HazardScan(const StoreProcesses& processes, ObjectTable& table)
      : processes_(processes), table_(table) {}

  // Reads all lists. What is viewed was of use now.
  void Run();
  // As the last Run saw it.
  bool Viewed(uint32_t slot) const { return table_.Viewed(slot, number_); }
  uint64_t pinned_bytes() const { return pinned_bytes_; }

 private:
  const StoreProcesses& processes_;
  ObjectTable& table_;
  uint32_t number_ = 0;  // Of the last scan.
  uint64_t pinned_bytes_ = 0;
};

}  // namespace sheaf
