// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Workers that fork from a template: the first worker of a job, which has run main up to Init and
// no further, stops there, single-threaded, and forks the others on request. A fork costs a
// fraction of an exec with its dynamic linking.
//
//   raylet                                          template
//                                             <---  TemplateReport kReady,
//                                                   or kRetired with the reason
//   ForkRequest + variables + [stdout, stderr] -->  forks
//                                             <---  kForked + [pidfd], or kForkFailed with errno
//                                             <---  kExited with the wait status, once the process
//                                                   group is killed
// over a socket pair (base/unix_socket.h). The end of the connection ends the template, not its
// workers.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/config.h"

namespace sheaf {

inline constexpr uint64_t kTemplateMagic = 0x5348'4541'4654'0001;

// Followed by "NAME=value" and NUL, for each variable to set in the worker.
struct ForkRequest {
  uint64_t magic;
  uint64_t process;            // ProcessId::packed() of the worker.
  std::array<char, 40> token;  // NUL-terminated.
  uint64_t variable_bytes;
};
static_assert(sizeof(ForkRequest) == 64);

struct TemplateReport {
  enum Kind : uint32_t { kReady = 0, kRetired = 1, kForked = 2, kForkFailed = 3, kExited = 4 };
  uint64_t magic;
  Kind kind;
  int32_t pid;  // kForked, kExited.
  uint64_t process;
  int32_t value;  // kForkFailed: errno. kExited: the status that waitpid gave.
  uint32_t reserved;
  std::array<char, 88> text;  // kRetired: why.
};
static_assert(sizeof(TemplateReport) == 120);

// How a language forks: fork(2), or what wraps it (Python's os.fork).
using ForkFunction = std::function<pid_t()>;

// Serves as the template of `start` (whose template_fd it takes). Returns only in a forked worker:
// its start, with its output redirected, a process group of its own and its variables set. The
// template itself ends in here.
WorkerStart RunWorkerTemplate(WorkerStart start, const ForkFunction& fork_function);

// For Init: nullopt in a process that no raylet started, else the start of the worker that this
// process is to be. Reads and removes the marks in the environment (TakeWorkerStart); serves as a
// template, if so told, and returns in its forks. Call it before threads exist.
std::optional<WorkerStart> EnterAsWorker(const ForkFunction& fork_function);

// kFailedPrecondition: this process has a second thread or an open GPU, which a fork would not
// survive.
absl::Status CheckForkable();

}  // namespace sheaf
