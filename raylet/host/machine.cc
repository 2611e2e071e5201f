// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/machine.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/process_watch.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14.
#endif

namespace sheaf {
namespace {

constexpr uint32_t kMaxGpus = 64;

double Affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<double>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

// Of this process's control group and those above it, as far as they are visible here; 0: none.
double CpuQuota() {
  double quota = 0;
  const auto take = [&](double found) {
    if (found > 0) quota = quota == 0 ? found : std::min(quota, found);
  };
  for (absl::string_view line : absl::StrSplit(ReadKernelFile("/proc/self/cgroup"), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool version2 = parts[1].empty();
    const bool cpu = version2 || absl::StrContains(absl::StrCat(",", parts[1], ","), ",cpu,");
    if (!cpu) continue;
    std::string group = parts[2] == "/" ? "" : parts[2];
    while (true) {
      if (version2) {
        take(ParseCpuQuota(ReadKernelFile(absl::StrCat("/sys/fs/cgroup", group, "/cpu.max"))));
      } else {
        const std::string directory = absl::StrCat("/sys/fs/cgroup/cpu", group);
        take(ParseCpuQuota(absl::StrCat(ReadKernelFile(directory + "/cpu.cfs_quota_us"), " ",
                                        ReadKernelFile(directory + "/cpu.cfs_period_us"))));
      }
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return quota;
}

bool HasPopulateWrite() {
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool has = madvise(page, 4096, MADV_POPULATE_WRITE) == 0;
  munmap(page, 4096);
  return has;
}

std::string Feature(const char* name, bool has, const char* instead) {
  return absl::StrCat(name, has ? ": yes" : absl::StrCat(": no (", instead, ")"));
}

}  // namespace

double ParseCpuQuota(const std::string& quota_and_period) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(quota_and_period, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double quota = 0;
  double period = 0;
  if (parts.size() != 2 || !absl::SimpleAtod(parts[0], &quota) ||
      !absl::SimpleAtod(parts[1], &period) || quota <= 0 || period <= 0) {
    return 0;
  }
  return quota / period;
}

double UsableCpus() {
  const double quota = CpuQuota();
  const double affinity = Affinity();
  return std::max(quota > 0 ? std::min(quota, affinity) : affinity, 1.0);
}

std::vector<uint32_t> FindGpus(const std::string& visible) {
  std::vector<uint32_t> gpus;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    struct stat info;
    if (stat(absl::StrCat("/dev/nvidia", gpu).c_str(), &info) == 0 && S_ISCHR(info.st_mode))
      gpus.push_back(gpu);
  }
  if (visible == "unset") return gpus;
  std::vector<uint32_t> chosen;
  for (absl::string_view text : absl::StrSplit(visible, ',', absl::SkipEmpty())) {
    uint32_t gpu = 0;
    // As CUDA does: what follows a number that is none is not seen.
    if (!absl::SimpleAtoi(text, &gpu) || std::find(gpus.begin(), gpus.end(), gpu) == gpus.end())
      break;
    chosen.push_back(gpu);
  }
  return chosen;
}

std::vector<std::string> ProbeKernelFeatures() {
  return {
      Feature("pidfd", HasPidfd(), "processes are looked at every 20 ms"),
      Feature("MADV_POPULATE_WRITE", HasPopulateWrite(), "pages are touched one by one"),
      // Process groups, the mark in the environment and the subreaper do it without rights over
      // control groups.
      "cgroup kill: not used (process groups and the subreaper are)",
      absl::StrCat("huge pages for shared memory: ",
                   std::string(absl::StripAsciiWhitespace(
                       ReadKernelFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled", 256)))),
  };
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "localhost";
}

uint64_t RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const uint64_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? before : 0;
}

}  // namespace sheaf
