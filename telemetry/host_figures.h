// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node's machine does, as figures that are taken every two seconds: processors, memory, disk,
// network, GPUs, and each process of the node. Read from /proc; what a kernel does not tell is
// unknown, a NaN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "telemetry/gpu_figures.h"

namespace sheaf::telemetry {

enum class HostSeries : uint8_t {
  kCpu,    // Of all processors, 0 to 1; so are the next two.
  kSteal,  // What a hypervisor gave to others.
  kIoWait,
  kLoad,      // Processes that run or wait, over the last minute.
  kCpuStall,  // Part of the last 10 s in which some process waited for it (PSI), 0 to 1.
  kMemoryStall,
  kIoStall,
  kMemoryUsed,  // Bytes, of the control group if that has a limit; so is the next.
  kMemoryTotal,
  kDiskUsed,  // Bytes, of the file system of the session; so is the next.
  kDiskTotal,
  kDiskRead,  // Bytes a second, of all disks.
  kDiskWritten,
  kReceived,  // Bytes a second, of all interfaces but loopback.
  kSent,
  kProcesses,        // Of this node: drivers and workers.
  kProcessesCpu,     // Processors that they use, 1.5 is one and a half.
  kProcessesMemory,  // Bytes that are resident.
  kGpu,              // Mean over all GPUs, 0 to 1.
  kGpuMemoryUsed,    // Bytes, of all GPUs; so is the next.
  kGpuMemoryTotal,
  kCount
};
inline constexpr size_t kHostSeries = static_cast<size_t>(HostSeries::kCount);

// "cpu", "memory_used_bytes": in routes and questions.
std::string_view NameOf(HostSeries series);
std::optional<HostSeries> FindSeries(std::string_view name);

using HostSample = std::array<float, kHostSeries>;

struct ProcessFigures {
  float cpus = 0;  // Since the look before.
  uint64_t memory_bytes = 0;
};

// Of the texts of files in /proc.
struct CpuTicks {
  double busy = 0, steal = 0, io_wait = 0, all = 0;
};
CpuTicks ParseCpuTicks(std::string_view stat);
// Bytes read and written, of whole disks.
std::pair<double, double> ParseDiskBytes(std::string_view diskstats);
// Bytes received and sent, without loopback.
std::pair<double, double> ParseNetworkBytes(std::string_view net_dev);
// avg10 of "some", 0 to 1; NaN: it is not there.
float ParseStall(std::string_view pressure);
// Ticks of CPU and resident pages of a process, from its stat; nullopt: it is none.
std::optional<std::pair<double, uint64_t>> ParseProcess(std::string_view stat);

// Not thread-safe.
class HostFigures {
 public:
  struct Options {
    std::string root = "/";  // Of proc/.
    std::string disk = "/";  // A path on the file system that counts.
    // (limit, available) in bytes; 0, 0: unknown.
    std::function<std::pair<int64_t, int64_t>()> memory = nullptr;
    // Loads what tells of GPUs, at the second look, as a program that ends at once shall not wait for
    // their driver; nullptr, or what gives that: there is nothing.
    std::function<std::unique_ptr<GpuFigures>()> gpus = nullptr;
  };
  explicit HostFigures(Options options) : options_(std::move(options)) {}

  // Looks at the machine and at the processes with these pids. What is a difference is unknown at
  // the first look.
  HostSample Look(Nanos now, const std::vector<int32_t>& pids);
  // Of the last look, by pid.
  const absl::btree_map<int32_t, ProcessFigures>& processes() const { return processes_; }

 private:
  struct Counts {  // Since the machine's start.
    CpuTicks cpu;
    std::pair<double, double> disk, network;
  };
  std::string Text(const std::string& path) const;
  Counts Count() const;
  void AddRates(double seconds, HostSample& sample);
  void AddAmounts(HostSample& sample);
  void AddProcesses(double seconds, const std::vector<int32_t>& pids, HostSample& sample);

  const Options options_;
  std::optional<Counts> before_;
  Nanos looked_at_ = 0;
  uint64_t looks_ = 0;
  absl::btree_map<int32_t, double> ticks_before_;  // Of each process.
  absl::btree_map<int32_t, ProcessFigures> processes_;
  std::unique_ptr<GpuFigures> gpus_;
};

}  // namespace sheaf::telemetry
