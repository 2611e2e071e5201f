// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The port of a node's dashboard. The node listens on it and serves nothing: the first connection
// starts `sheaf dashboard`, which takes the listening socket over, ends when nobody has looked for
// a while, and may crash: then another one takes its place, after a pause that grows, or sooner
// if somebody looks. The log says once that it does not run, and once that it works again. So a node that
// nobody looks at has no such process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/unique_fd.h"
#include "cli/dashboard/command.h"
#include "cli/start.h"
#include "metrics/page.h"
#include "raylet/host/event_loop.h"
#include "shm/segment.h"

namespace sheaf::cli {

struct DashboardChildOptions {
  DashboardFlags flags;  // Without `listener_fd`; the address is that of the session.
  std::string log_directory;
  std::string own_host{};  // What its URL names where it listens on all addresses.
};

class DashboardChild {
 public:
  // Listens, and answers nobody before Serve. kUnavailable: the port is taken, or all that were tried. Others: as ServerOptionsOf.
  static absl::StatusOr<std::unique_ptr<DashboardChild>> Start(DashboardChildOptions options);
  // Of the node of `session`, as its flags say; `by_default`: one that has none of these flags has
  // one, unless that cannot listen. nullptr: it has none.
  static absl::StatusOr<std::unique_ptr<DashboardChild>> OfNode(const NodeFlags& flags,
                                                                const Settings& settings,
                                                                const std::string& session,
                                                                bool by_default);
  // The node can be asked: connections are answered from now on; before they wait.
  void Serve();
  ~DashboardChild() { Stop(); }
  DashboardChild(const DashboardChild&) = delete;
  DashboardChild& operator=(const DashboardChild&) = delete;

  std::string url() const { return url_; }
  // The process, if there is one now. Any thread.
  bool Is(pid_t pid) const { return pid == pid_.load(std::memory_order_relaxed); }
  // What its processes count, one after the other. As long as this.
  metrics::Page& page() { return *reinterpret_cast<metrics::Page*>(page_.data()); }
  // Brings up to date when the certificate that it shows expires. One thread at a time.
  void PublishMetrics();
  // Ends the process and closes the port. Idempotent.
  void Stop();

 private:
  explicit DashboardChild(DashboardChildOptions options) : options_(std::move(options)) {}
  absl::Status Listen();
  // On the loop.
  void Await();
  void OnConnection();
  absl::Status Begin();
  void Restart();
  void Pause(const std::string& why);
  void NoteIfItWorks();
  uint64_t Answers();  // Of all its processes so far, to those who looked.
  void LookAtChild();
  void OnEnd(int status);
  void Refuse();
  std::string WordsFile() const { return options_.log_directory + "/dashboard.err"; }

  DashboardChildOptions options_;
  UniqueFd listener_;
  UniqueFd metrics_fd_;
  Mapping page_;
  std::string url_;
  std::atomic<pid_t> pid_ = 0;
  // The loop's.
  Nanos began_ = 0;       // The process that is there, or was last.
  Nanos stopped_at_ = 0;  // 0: no signal has stopped it.
  uint64_t answers_ = 0;  // When it began.
  Nanos pause_ = 0;       // Before the last restart; 0: there was none.
  bool pausing_ = false;
  Nanos refuse_until_ = 0;  // In a pause: then who looks ends it.
  Nanos restart_at_ = 0;    // In a pause: its end.
  bool failing_ = false;    // The log says that it does not run.
  bool stopping_ = false;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace sheaf::cli
