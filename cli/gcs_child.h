// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The GCS of a head, in a process of its own (cli/gcs_main.h), as the node sees it. When that
// process ends it is started anew at once with the database that it had; while it crashes again and
// again, after pauses that grow to five seconds. It takes nothing of the node with it: running work
// goes on, and what asks the GCS waits, as after a restart of the head. The node's own end ends it.
//
// Frames travel through this process, since the one port for other nodes is here. A pause of either
// process is a pause of the GCS: its time goes on by the pulses that it gets from here, and after a
// pause of this process nothing leaves for a while (gcs/pause_guard.h).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cli/gcs_pipe.h"
#include "gcs/head_terms.h"
#include "gcs/pause_guard.h"
#include "raylet/host/event_loop.h"

namespace sheaf::cli {

struct GcsChildOptions {
  std::string database;
  std::string address;  // Of this node.
  std::string log_directory;
  uint32_t keep_jobs = 0;  // So many submissions that have ended are remembered.
  bool log_json = false;
  int metrics_fd = -1;  // A segment with one metrics::Page, in which the GCS counts.
  // The four are called on a thread of this, and must not block; nothing is sent before `on_serving`.
  std::function<void(ProcessId to, FrameKind kind, std::string body)> send;
  std::function<void(NodeNumber node, const std::string& address)> on_member;    // Which it knows.
  std::function<void(const std::string& cluster_id, uint64_t term)> on_serving;  // At each start.
  std::function<void(std::string why)> on_lost;  // Its state is gone or damaged: once.
};

class GcsChild {
 public:
  explicit GcsChild(GcsChildOptions options);
  // Returns when the GCS takes requests. The errors of GcsProcess::Start; kDeadlineExceeded. Once.
  absl::Status Start();
  ~GcsChild() { Stop(); }
  GcsChild(const GcsChild&) = delete;
  GcsChild& operator=(const GcsChild&) = delete;

  // As of GcsProcess. Any thread.
  void Post(ProcessId from, FrameKind kind, std::string_view body);
  void Backup(const std::string& path, std::function<void(absl::Status)> done);
  void Silence() { silenced_ = true; }
  // The process, as it is now. Any thread.
  bool Is(pid_t pid) const { return pid == pid_.load(std::memory_order_relaxed); }
  // Lets it answer what has been posted; kills it after some seconds. Idempotent.
  void Stop();

 private:
  struct Waiting {
    ProcessId from;
    FrameKind kind;
    std::string body;
  };
  absl::Status AwaitFirstStart();
  // On the loop.
  absl::Status Begin();
  void OnMessage(GcsMessage message);
  void OnFailed(absl::Status why);
  void OnEnd();
  void Again(const std::string& how_it_ended);
  void Pulse();

  const GcsChildOptions options_;
  MonotonicClock clock_;
  std::atomic<bool> silenced_ = false;
  std::atomic<pid_t> pid_ = 0;
  // The loop's.
  PauseGuard guard_;
  HeadTerms terms_;
  bool was_serving_ = false;  // It had the state of the cluster: the file must be there.
  bool lost_ = false;
  bool stopping_ = false;
  Nanos serving_since_ = 0;  // 0: it does not serve.
  int crashes_ = 0;          // In a row.

  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> first_start_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<GcsPipe> pipe_ ABSL_GUARDED_BY(mutex_);  // Null: no process runs.
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);    // While none does.
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_question_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::function<void(absl::Status)>> questions_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace sheaf::cli
