// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the GPUs of this machine do, by NVIDIA's management library, which is loaded if it is there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace sheaf::telemetry {

struct GpuTotals {
  uint32_t count = 0;  // That told.
  double busy = 0;     // In sum, 1 for each that is busy all the time.
  double memory_used_bytes = 0;
  double memory_total_bytes = 0;
};

// Not thread-safe.
class GpuFigures {
 public:
  // nullptr: there is no such library, or it knows no GPU. Takes some milliseconds where there are
  // GPUs, and none where the library is missing.
  static std::unique_ptr<GpuFigures> Load(const std::string& library = "libnvidia-ml.so.1");
  virtual ~GpuFigures() = default;
  virtual GpuTotals Look() = 0;
};

}  // namespace sheaf::telemetry
