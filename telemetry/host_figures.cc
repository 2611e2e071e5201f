// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/host_figures.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/whole_file.h"

namespace sheaf::telemetry {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
constexpr double kSectorBytes = 512;  // Of diskstats, whatever the disk has.

constexpr std::array<std::string_view, kHostSeries> kNames = {"cpu",
                                                              "steal",
                                                              "io_wait",
                                                              "load",
                                                              "cpu_stall",
                                                              "memory_stall",
                                                              "io_stall",
                                                              "memory_used_bytes",
                                                              "memory_total_bytes",
                                                              "disk_used_bytes",
                                                              "disk_total_bytes",
                                                              "disk_read_bytes_per_second",
                                                              "disk_written_bytes_per_second",
                                                              "received_bytes_per_second",
                                                              "sent_bytes_per_second",
                                                              "processes",
                                                              "processes_cpus",
                                                              "processes_memory_bytes",
                                                              "gpu",
                                                              "gpu_memory_used_bytes",
                                                              "gpu_memory_total_bytes"};

using Words = std::vector<absl::string_view>;

Words WordsOf(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

double NumberOf(const Words& words, size_t index) {
  double number = 0;
  return index < words.size() && absl::SimpleAtod(words[index], &number) ? number : 0;
}

std::vector<absl::string_view> LinesOf(std::string_view text) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipEmpty());
}

// "sda", "nvme0n1", "vda", "xvda"; not "sda1", "nvme0n1p1", "loop0", "dm-0".
bool IsWholeDisk(absl::string_view name) {
  for (const char* other : {"loop", "ram", "zram", "dm-", "md", "sr", "fd"}) {
    if (absl::StartsWith(name, other)) return false;
  }
  const bool ends_in_digit = !name.empty() && std::isdigit(static_cast<unsigned char>(name.back()));
  if (absl::StartsWith(name, "nvme") || absl::StartsWith(name, "mmcblk")) {
    return !absl::StrContains(name, 'p');
  }
  return !ends_in_digit;
}

float Part(double part, double all) {
  return all > 0 ? static_cast<float>(std::clamp(part / all, 0.0, 1.0)) : kUnknown;
}

float& At(HostSample& sample, HostSeries series) { return sample[static_cast<size_t>(series)]; }

}  // namespace

std::string_view NameOf(HostSeries series) { return kNames[static_cast<size_t>(series)]; }

std::optional<HostSeries> FindSeries(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<HostSeries>(found - kNames.begin());
}

CpuTicks ParseCpuTicks(std::string_view stat) {
  CpuTicks ticks;
  const Words words =
      WordsOf(absl::string_view(stat.data(), stat.substr(0, stat.find('\n')).size()));
  if (words.size() < 5 || words[0] != "cpu") return ticks;
  // user, nice, system, idle, iowait, irq, softirq, steal; what guests take is in user already.
  for (size_t i = 1; i <= 8; ++i) ticks.all += NumberOf(words, i);
  ticks.io_wait = NumberOf(words, 5);
  ticks.steal = NumberOf(words, 8);
  ticks.busy = ticks.all - NumberOf(words, 4) - ticks.io_wait - ticks.steal;
  return ticks;
}

std::pair<double, double> ParseDiskBytes(std::string_view diskstats) {
  std::pair<double, double> bytes;
  for (const absl::string_view line : LinesOf(diskstats)) {
    const Words words = WordsOf(line);
    if (words.size() < 10 || !IsWholeDisk(words[2])) continue;
    bytes.first += NumberOf(words, 5) * kSectorBytes;
    bytes.second += NumberOf(words, 9) * kSectorBytes;
  }
  return bytes;
}

std::pair<double, double> ParseNetworkBytes(std::string_view net_dev) {
  std::pair<double, double> bytes;
  for (const absl::string_view line : LinesOf(net_dev)) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const Words name = WordsOf(parts.first), words = WordsOf(parts.second);
    if (name.size() != 1 || words.size() < 9 || name[0] == "lo") continue;
    bytes.first += NumberOf(words, 0);
    bytes.second += NumberOf(words, 8);
  }
  return bytes;
}

float ParseStall(std::string_view pressure) {
  for (const absl::string_view word : WordsOf({pressure.data(), pressure.size()})) {
    double percent = 0;
    if (!absl::StartsWith(word, "avg10=")) continue;
    return absl::SimpleAtod(word.substr(6), &percent) ? static_cast<float>(percent / 100)
                                                      : kUnknown;
  }
  return kUnknown;
}

std::optional<std::pair<double, uint64_t>> ParseProcess(std::string_view stat) {
  const size_t name_end = stat.rfind(')');  // A name may have any bytes.
  if (name_end == std::string_view::npos) return std::nullopt;
  const std::string_view rest = stat.substr(name_end + 1);
  const Words words = WordsOf({rest.data(), rest.size()});
  if (words.size() < 22) return std::nullopt;
  return std::pair{NumberOf(words, 11) + NumberOf(words, 12),
                   static_cast<uint64_t>(std::max(0.0, NumberOf(words, 21)))};
}

std::string HostFigures::Text(const std::string& path) const {
  return WholeFile(options_.root + path).value_or("");  // Not there: its process has ended.
}

HostFigures::Counts HostFigures::Count() const {
  return {ParseCpuTicks(Text("proc/stat")), ParseDiskBytes(Text("proc/diskstats")),
          ParseNetworkBytes(Text("proc/net/dev"))};
}

void HostFigures::AddRates(double seconds, HostSample& sample) {
  const Counts now = Count();
  if (before_ && seconds > 0) {
    const Counts& before = *before_;
    const double ticks = now.cpu.all - before.cpu.all;
    At(sample, HostSeries::kCpu) = Part(now.cpu.busy - before.cpu.busy, ticks);
    At(sample, HostSeries::kSteal) = Part(now.cpu.steal - before.cpu.steal, ticks);
    At(sample, HostSeries::kIoWait) = Part(now.cpu.io_wait - before.cpu.io_wait, ticks);
    const auto rate = [seconds](double after, double earlier) {  // A device may go.
      return static_cast<float>(std::max(0.0, after - earlier) / seconds);
    };
    At(sample, HostSeries::kDiskRead) = rate(now.disk.first, before.disk.first);
    At(sample, HostSeries::kDiskWritten) = rate(now.disk.second, before.disk.second);
    At(sample, HostSeries::kReceived) = rate(now.network.first, before.network.first);
    At(sample, HostSeries::kSent) = rate(now.network.second, before.network.second);
  }
  before_ = now;
}

void HostFigures::AddAmounts(HostSample& sample) {
  const std::string load = Text("proc/loadavg");
  double one_minute = 0;
  if (absl::SimpleAtod(load.substr(0, load.find(' ')), &one_minute)) {
    At(sample, HostSeries::kLoad) = static_cast<float>(one_minute);
  }
  At(sample, HostSeries::kCpuStall) = ParseStall(Text("proc/pressure/cpu"));
  At(sample, HostSeries::kMemoryStall) = ParseStall(Text("proc/pressure/memory"));
  At(sample, HostSeries::kIoStall) = ParseStall(Text("proc/pressure/io"));
  const auto [limit, available] =
      options_.memory ? options_.memory() : std::pair<int64_t, int64_t>();
  if (limit > 0) {
    At(sample, HostSeries::kMemoryTotal) = static_cast<float>(limit);
    At(sample, HostSeries::kMemoryUsed) = static_cast<float>(limit - available);
  }
  struct statvfs disk{};
  if (statvfs(options_.disk.c_str(), &disk) == 0) {
    const double unit = static_cast<double>(disk.f_frsize);
    const auto blocks = static_cast<double>(disk.f_blocks),
               free = static_cast<double>(disk.f_bfree);
    At(sample, HostSeries::kDiskTotal) = static_cast<float>(blocks * unit);
    At(sample, HostSeries::kDiskUsed) = static_cast<float>((blocks - free) * unit);
  }
  if (gpus_ == nullptr) return;
  const GpuTotals gpus = gpus_->Look();
  if (gpus.count == 0) return;
  At(sample, HostSeries::kGpu) = static_cast<float>(gpus.busy / gpus.count);
  At(sample, HostSeries::kGpuMemoryUsed) = static_cast<float>(gpus.memory_used_bytes);
  At(sample, HostSeries::kGpuMemoryTotal) = static_cast<float>(gpus.memory_total_bytes);
}

void HostFigures::AddProcesses(double seconds, const std::vector<int32_t>& pids,
                               HostSample& sample) {
  static const double ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  absl::btree_map<int32_t, double> ticks;
  processes_.clear();
  ProcessFigures all;
  for (const int32_t pid : pids) {
    const auto figures = ParseProcess(Text(absl::StrCat("proc/", pid, "/stat")));
    if (!figures) continue;
    ticks[pid] = figures->first;
    ProcessFigures& process = processes_[pid];
    process.memory_bytes = figures->second * page_bytes;
    const auto before = ticks_before_.find(pid);
    if (before != ticks_before_.end() && seconds > 0) {
      process.cpus = static_cast<float>(std::max(0.0, figures->first - before->second) /
                                        ticks_per_second / seconds);
    }
    all.cpus += process.cpus;
    all.memory_bytes += process.memory_bytes;
  }
  ticks_before_ = std::move(ticks);
  At(sample, HostSeries::kProcesses) = static_cast<float>(processes_.size());
  At(sample, HostSeries::kProcessesCpu) = all.cpus;
  At(sample, HostSeries::kProcessesMemory) = static_cast<float>(all.memory_bytes);
}

HostSample HostFigures::Look(Nanos now, const std::vector<int32_t>& pids) {
  HostSample sample;
  sample.fill(kUnknown);
  if (++looks_ == 2 && options_.gpus) gpus_ = options_.gpus();
  const double seconds = static_cast<double>(now - looked_at_) / kSecond;
  AddRates(seconds, sample);
  AddAmounts(sample);
  AddProcesses(seconds, pids, sample);
  looked_at_ = now;
  return sample;
}

}  // namespace sheaf::telemetry
