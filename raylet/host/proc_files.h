// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the kernel says about processes, from /proc. Every answer may be stale when it returns.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sheaf {

// The whole of a small file of the kernel, at most `limit_bytes` of it; empty when it cannot be
// read.
std::string ReadKernelFile(const std::string& path, size_t limit_bytes = 1 << 20);

// The path of what `fd` was opened from; empty: it has none.
std::string PathOfDescriptor(int fd);

struct ProcStat {
  char state = '?';  // 'R', 'S', 'D', 'T', 'Z', ...
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  uint64_t start_ticks = 0;  // Since the machine started.
};
// nullopt: no such process.
std::optional<ProcStat> ReadProcStat(pid_t pid);
// What is in the text of /proc/PID/stat, or of a thread's.
std::optional<ProcStat> ParseProcStat(const std::string& text);

// The numbers of its threads; empty: no such process.
std::vector<pid_t> ThreadsOf(pid_t pid);

// Living and dead children of this process, whichever thread is their parent.
std::vector<pid_t> ChildrenOfThisProcess();

// The children of `pid`, theirs, and so on, whatever groups and sessions they are in. Not those of
// a process that has died: they belong to the subreaper.
std::vector<pid_t> DescendantsOf(pid_t pid);

// The value of `name` in the environment that `pid` was exec'd with. nullopt: not there, or not
// readable.
std::optional<std::string> ReadProcVariable(pid_t pid, const std::string& name);

// Memory of `pid` that nobody shares and no file backs, swap included: what its death gives back.
// Never RSS, which counts the arena. 0: no such process.
int64_t AnonymousBytes(pid_t pid);

// How often the kernel has killed for want of memory, in all control groups of the machine, since
// it started.
uint64_t KernelOomKills();

}  // namespace sheaf
