// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sheaf {
namespace {

// The number behind `key` in lines of "key number ...".
std::optional<int64_t> Field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    int64_t number = 0;
    if (words >> word >> number && word == key) return number;
  }
  return std::nullopt;
}

// A file that is one number. "max" and what is as good as infinite: nullopt.
std::optional<int64_t> Number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number) || number < 0 || number >= INT64_MAX / 2) return std::nullopt;
  return number;
}

struct Group {
  std::string root;  // Where its hierarchy is mounted.
  std::string path;  // Of this process in it.
  const char* limit;
  const char* usage;
  const char* cache;  // Key in memory.stat of file cache that can go at once.
};

// Narrows `memory` by `group` and all groups above it.
void Narrow(const Group& group, MachineMemory* memory) {
  std::string path = group.path == "/" ? "" : group.path;
  for (;;) {
    const std::string at = group.root + path;
    const std::optional<int64_t> limit = Number(absl::StrCat(at, "/", group.limit));
    const std::optional<int64_t> usage = Number(absl::StrCat(at, "/", group.usage));
    if (limit && usage && *limit < memory->limit_bytes) {
      const int64_t cache = Field(at + "/memory.stat", group.cache).value_or(0);
      memory->limit_bytes = *limit;
      memory->available_bytes =
          std::min(memory->available_bytes, std::max<int64_t>(0, *limit - *usage + cache));
    }
    if (path.empty()) return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

MachineMemory ReadMachineMemory(const std::string& root) {
  MachineMemory memory;
  const std::string meminfo = root + "proc/meminfo";
  memory.limit_bytes = Field(meminfo, "MemTotal:").value_or(0) * 1024;
  memory.available_bytes = Field(meminfo, "MemAvailable:").value_or(0) * 1024;
  const std::string mount = root + "sys/fs/cgroup";
  std::ifstream groups(root + "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path".
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    if (parts[0] == "0" && parts[1].empty()) {
      Narrow({mount, parts[2], "memory.max", "memory.current", "inactive_file"}, &memory);
    } else if (parts[1] == "memory") {
      Narrow({mount + "/memory", parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes",
              "total_inactive_file"},
             &memory);
    }
  }
  return memory;
}

absl::Status CheckMemoryFor(size_t bytes) {
  constexpr int64_t kLeftToOthers = 64 << 20;
  const MachineMemory memory = ReadMachineMemory();
  const int64_t need = static_cast<int64_t>(bytes) + kLeftToOthers;
  if (memory.limit_bytes == 0 || memory.available_bytes >= need) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "only ", memory.available_bytes, " bytes of memory are left on this node, want ", need));
}

}  // namespace sheaf
