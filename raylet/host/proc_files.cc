// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/proc_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/unique_fd.h"

namespace sheaf {
namespace {

// Entries of `directory` that are numbers.
std::vector<pid_t> NumbersIn(const std::string& directory) {
  std::vector<pid_t> numbers;
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return numbers;
  while (const dirent* entry = readdir(entries)) {
    pid_t number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number)) numbers.push_back(number);
  }
  closedir(entries);
  return numbers;
}

// The number behind `name` in "Name:   123 kB" lines, in bytes.
int64_t FieldBytes(absl::string_view text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    int64_t kilobytes = 0;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (!parts.empty() && absl::SimpleAtoi(parts[0], &kilobytes)) return kilobytes * 1024;
  }
  return 0;
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  static const bool has_lists = access("/proc/thread-self/children", R_OK) == 0;
  if (has_lists) {
    for (pid_t thread : ThreadsOf(parent)) {
      const std::string list =
          ReadKernelFile(absl::StrCat("/proc/", parent, "/task/", thread, "/children"));
      for (absl::string_view text : absl::StrSplit(list, ' ', absl::SkipEmpty())) {
        pid_t child = 0;
        if (absl::SimpleAtoi(text, &child)) children.push_back(child);
      }
    }
    return children;
  }
  for (pid_t pid : NumbersIn("/proc")) {
    const std::optional<ProcStat> stat = ReadProcStat(pid);
    if (stat && stat->parent == parent) children.push_back(pid);
  }
  return children;
}

}  // namespace

std::string ReadKernelFile(const std::string& path, size_t limit_bytes) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[4096];
  while (file.valid() && text.size() < limit_bytes) {
    const ssize_t size =
        read(file.get(), buffer, std::min(sizeof(buffer), limit_bytes - text.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

std::optional<ProcStat> ParseProcStat(const std::string& text) {
  const size_t end = text.rfind(')');  // The name before it may hold anything, brackets too.
  if (end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(end + 1), ' ', absl::SkipEmpty());
  ProcStat stat;
  if (fields.size() < 20 || fields[0].size() != 1 || !absl::SimpleAtoi(fields[1], &stat.parent) ||
      !absl::SimpleAtoi(fields[2], &stat.group) || !absl::SimpleAtoi(fields[3], &stat.session) ||
      !absl::SimpleAtoi(fields[19], &stat.start_ticks)) {
    return std::nullopt;
  }
  stat.state = fields[0][0];
  return stat;
}

std::string PathOfDescriptor(int fd) {
  std::string path(PATH_MAX, '\0');
  const ssize_t size =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return path;
}

std::optional<ProcStat> ReadProcStat(pid_t pid) {
  return ParseProcStat(ReadKernelFile(absl::StrCat("/proc/", pid, "/stat"), 4096));
}

std::vector<pid_t> ThreadsOf(pid_t pid) { return NumbersIn(absl::StrCat("/proc/", pid, "/task")); }

std::vector<pid_t> ChildrenOfThisProcess() { return ChildrenOf(getpid()); }

std::vector<pid_t> DescendantsOf(pid_t pid) {
  std::vector<pid_t> found = ChildrenOf(pid);
  absl::flat_hash_set<pid_t> seen(found.begin(), found.end());
  for (size_t next = 0; next < found.size(); ++next) {
    for (const pid_t child : ChildrenOf(found[next])) {
      if (seen.insert(child).second) found.push_back(child);
    }
  }
  return found;
}

std::optional<std::string> ReadProcVariable(pid_t pid, const std::string& name) {
  const std::string variables = ReadKernelFile(absl::StrCat("/proc/", pid, "/environ"), 16 << 20);
  for (absl::string_view variable : absl::StrSplit(variables, '\0')) {
    if (absl::ConsumePrefix(&variable, name) && absl::ConsumePrefix(&variable, "=")) {
      return std::string(variable);
    }
  }
  return std::nullopt;
}

int64_t AnonymousBytes(pid_t pid) {
  const std::string status = ReadKernelFile(absl::StrCat("/proc/", pid, "/status"), 8192);
  return FieldBytes(status, "RssAnon:") + FieldBytes(status, "VmSwap:");
}

uint64_t KernelOomKills() {
  // /proc/vmstat counts all of the machine: with the death of one of ours by SIGKILL that is
  // evidence enough.
  const std::string text = ReadKernelFile("/proc/vmstat");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t count = 0;
    if (absl::ConsumePrefix(&line, "oom_kill ") && absl::SimpleAtoi(line, &count)) return count;
  }
  return 0;
}

}  // namespace sheaf
