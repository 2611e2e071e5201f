// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/inspect/kernel_states.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "raylet/host/proc_files.h"

namespace sheaf {
namespace {

const char* StateWords(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
      return "waits";
    case 'D':
      return "waits for a device or a file system, and cannot be interrupted";
    case 'T':
      return "is stopped by a signal";
    case 't':
      return "is stopped by a debugger";
    case 'Z':
      return "has ended";
    default:
      return "is in a state that only the kernel knows";
  }
}

void Append(absl::string_view words, proto::ProcessStacks& process) {
  absl::StrAppend(process.mutable_words(), process.words().empty() ? "" : "; ", words);
}

}  // namespace

void DescribeByKernel(proto::ProcessStacks& process) {
  const std::string directory = absl::StrCat("/proc/", process.os_pid());
  const auto stat = ReadProcStat(process.os_pid());
  if (!stat) return Append("it has ended meanwhile", process);
  if (stat->state == 'T' || stat->state == 't' || stat->state == 'Z' || stat->state == 'D')
    Append(absl::StrCat("it ", StateWords(stat->state)), process);
  std::vector<pid_t> threads = ThreadsOf(process.os_pid());
  // The main thread first; numbers begin anew at their end.
  std::sort(threads.begin(), threads.end(), [&](pid_t a, pid_t b) {
    return std::pair(a != process.os_pid(), a) < std::pair(b != process.os_pid(), b);
  });
  if (threads.size() > kThreadsShown) {
    Append(absl::StrCat(threads.size() - kThreadsShown, " threads more"), process);
    threads.resize(kThreadsShown);
  }
  for (const pid_t thread : threads) {
    const std::string place = absl::StrCat(directory, "/task/", thread);
    const auto state = ParseProcStat(ReadKernelFile(place + "/stat", 4096));
    if (!state) continue;  // It has ended meanwhile.
    proto::ThreadStack& row = *process.add_threads();
    row.set_os_thread(thread);
    row.set_name(std::string(absl::StripAsciiWhitespace(ReadKernelFile(place + "/comm", 64))));
    row.set_words(StateWords(state->state));
    const std::string where(absl::StripAsciiWhitespace(ReadKernelFile(place + "/wchan", 256)));
    if (state->state != 'R' && !where.empty() && where != "0")
      absl::StrAppend(row.mutable_words(), ", in the kernel's ", where);
  }
}

void KernelStates::Describe(std::vector<proto::ProcessStacks> processes,
                            std::function<void(const std::vector<proto::ProcessStacks>&)> done) {
  observer_.Post([this, processes = std::move(processes), done = std::move(done)]() mutable {
    for (proto::ProcessStacks& process : processes) DescribeByKernel(process);
    loop_.Post([processes = std::move(processes), done = std::move(done)] { done(processes); });
  });
}

}  // namespace sheaf
