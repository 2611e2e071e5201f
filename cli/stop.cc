// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/stop.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/text/json.h"
#include "base/unique_fd.h"
#include "dashboard/tables/cells.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kAfterKill = kSecond;  // The kernel needs this long at most for what it killed.

// A process that may end meanwhile: its number is never mistaken for that of a later one.
class Process {
 public:
  explicit Process(int pid) : pid_(pid), fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  int pid() const { return pid_; }
  void Signal(int signal) const {
    if (fd_.valid()) syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0);
  }
  // false: it still runs at `deadline`.
  bool WaitUntil(Nanos deadline) const {
    if (!fd_.valid()) return true;  // Gone before we looked.
    while (true) {
      const Nanos left = std::max<Nanos>(deadline - MonotonicNow(), 0);
      pollfd entry{fd_.get(), POLLIN, 0};
      const int ready = poll(&entry, 1, static_cast<int>(left / kMillisecond) + (left > 0 ? 1 : 0));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }

 private:
  int pid_;
  UniqueFd fd_;
};

// The workers of a node, before it is stopped. Empty when it does not answer: it is stopped all the
// same.
std::vector<Process> WorkersOf(const RunningNode& node) {
  proto::StateQuery query;
  query.set_what(proto::StateQuery::WORKERS);
  query.set_this_node(true);
  const auto answer = Ask({.address = node.session, .json = false, .timeout = kSecond}, query);
  std::vector<Process> workers;
  if (!answer.ok()) return workers;
  for (const proto::WorkerRow& row : answer->workers()) {
    if (row.os_pid() > 1) workers.emplace_back(row.os_pid());
  }
  return workers;
}

struct Stopped {
  RunningNode node;
  size_t workers = 0;
  bool killed = false;   // It did not end by itself.
  size_t left_over = 0;  // Processes that run even now.
};

Stopped StopNode(const RunningNode& node, const StopOptions& options) {
  const std::vector<Process> workers = WorkersOf(node);
  const Process node_process(node.os_pid);
  Stopped result{node, workers.size(), options.force, 0};
  if (!options.force) {
    node_process.Signal(SIGTERM);
    result.killed = !node_process.WaitUntil(Deadline(MonotonicNow(), options.query.timeout));
  }
  if (result.killed) node_process.Signal(SIGKILL);
  const Nanos deadline = Deadline(MonotonicNow(), kAfterKill);
  result.left_over += node_process.WaitUntil(deadline) ? 0 : 1;
  // Workers end with their daemon; what does not is killed, as nobody else will.
  for (const Process& worker : workers) {
    if (worker.WaitUntil(deadline)) continue;
    worker.Signal(SIGKILL);
    result.left_over += worker.WaitUntil(Deadline(MonotonicNow(), kAfterKill / 4)) ? 0 : 1;
  }
  return result;
}

std::string Describe(const Stopped& stopped) {
  std::string text =
      absl::StrCat("Stopped the node in ", Printable(stopped.node.session), ": its daemon (pid ",
                   stopped.node.os_pid, ") and ", FormatCount(stopped.workers),
                   stopped.workers == 1 ? " worker" : " workers");
  if (stopped.killed) text += ", by force";
  if (stopped.left_over > 0) absl::StrAppend(&text, "; ", stopped.left_over, " of them still run");
  return text + ".\n";
}

}  // namespace

int RunStop(const StopOptions& options) {
  const Nanos start = MonotonicNow();
  const auto nodes = FindNodes(options.query.address);
  if (!nodes.ok()) return Complain(nodes.status());
  JsonArray array;
  size_t left_over = 0;
  for (const RunningNode& node : *nodes) {
    const Stopped stopped = StopNode(node, options);
    left_over += stopped.left_over;
    if (!options.query.json) std::fputs(Describe(stopped).c_str(), stdout);
    array.Add(JsonObject()
                  .Add("session", JsonString(node.session))
                  .Add("os_pid", JsonNumber(int64_t{node.os_pid}))
                  .Add("workers", JsonNumber(uint64_t{stopped.workers}))
                  .Add("killed", JsonBool(stopped.killed))
                  .Add("left_over", JsonNumber(uint64_t{stopped.left_over}))
                  .Done());
  }
  const double seconds = static_cast<double>(MonotonicNow() - start) / kSecond;
  if (options.query.json) {
    std::printf("%s\n", JsonObject()
                            .Add("stopped", array.Done())
                            .Add("seconds", JsonNumber(seconds))
                            .Done()
                            .c_str());
  } else if (nodes->empty()) {
    std::printf("No node was running.\n");
  }
  return left_over == 0 ? kDone : kFailed;
}

}  // namespace sheaf::cli
