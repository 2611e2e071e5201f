// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/gpu_figures.h"

#include <dlfcn.h>

#include <utility>
#include <vector>

namespace sheaf::telemetry {
namespace {

// The part of nvml.h that is used here; its layout is part of the library's binary interface.
using Device = struct nvmlDevice_st*;
struct Utilization {
  unsigned int gpu;  // Percent of the last sample period; so is the next.
  unsigned int memory;
};
struct Memory {
  unsigned long long total, free, used;  // Bytes.
};
constexpr int kSuccess = 0;

struct Library {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*handle)(unsigned int, Device*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
};

class Nvml final : public GpuFigures {
 public:
  Nvml(const Library& library, std::vector<Device> devices)
      : library_(library), devices_(std::move(devices)) {}
  ~Nvml() override { library_.shutdown(); }  // The library itself stays loaded.

  GpuTotals Look() override {
    GpuTotals totals;
    for (Device device : devices_) {
      Utilization utilization{};
      Memory memory{};
      if (library_.memory(device, &memory) != kSuccess) continue;
      ++totals.count;
      totals.memory_used_bytes += static_cast<double>(memory.used);
      totals.memory_total_bytes += static_cast<double>(memory.total);
      // Not to be had of a GPU that is split into several.
      if (library_.utilization(device, &utilization) == kSuccess) {
        totals.busy += utilization.gpu / 100.0;
      }
    }
    return totals;
  }

 private:
  const Library library_;
  const std::vector<Device> devices_;
};

template <class Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<GpuFigures> GpuFigures::Load(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return nullptr;
  Library nvml;
  if (!Find(loaded, "nvmlInit_v2", nvml.init) || !Find(loaded, "nvmlShutdown", nvml.shutdown) ||
      !Find(loaded, "nvmlDeviceGetCount_v2", nvml.count) ||
      !Find(loaded, "nvmlDeviceGetHandleByIndex_v2", nvml.handle) ||
      !Find(loaded, "nvmlDeviceGetUtilizationRates", nvml.utilization) ||
      !Find(loaded, "nvmlDeviceGetMemoryInfo", nvml.memory) || nvml.init() != kSuccess) {
    return nullptr;
  }
  std::vector<Device> devices;
  unsigned int count = 0;
  if (nvml.count(&count) != kSuccess) count = 0;
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.handle(i, &device) == kSuccess) devices.push_back(device);
  }
  if (!devices.empty()) return std::make_unique<Nvml>(nvml, std::move(devices));
  nvml.shutdown();
  return nullptr;
}

}  // namespace sheaf::telemetry
