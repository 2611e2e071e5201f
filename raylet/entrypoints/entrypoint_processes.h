// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Submitted commands as processes of this machine. Each has a guard (entrypoint_guard.h), which is
// this process's child; the command is the guard's. All starting and waiting happens on an event
// loop of its own, made with the first command.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "proto/gcs.pb.h"
#include "raylet/host/event_loop.h"
#include "raylet/host/process_watch.h"
#include "raylet/logs/log_files.h"
#include "raylet/workers/entrypoint_launcher.h"

namespace sheaf {

struct EntrypointOptions {
  std::string scratch_directory;       // For what a guard hands over; made when it is needed.
  std::string session;                 // What commands find as SHEAF_ADDRESS and RAY_ADDRESS.
  std::vector<std::string> variables;  // The node's environment.
  // Put in front of PYTHONPATH: where the package is, if Python does not find it by itself, and
  // the module `ray` that is Sheaf's. Empty: not there.
  std::string package_parent;
  std::string alias_directory;
  int64_t unix_ns_at_zero = 0;
  Nanos drain_time = 5 * kSecond;  // Stop waits so long for what it has killed.
};

// Called on the loop.
struct EntrypointEvents {
  std::function<void(const std::string& id, const proto::EntrypointReport::Running&)> on_running;
  std::function<void(const std::string& id, const proto::EntrypointReport::Ended&)> on_ended;
  std::function<uint64_t()> kernel_oom_kills;
};

class EntrypointProcesses final : public EntrypointLauncher {
 public:
  // `logs`, where job-driver-ID.log lies, outlives it.
  EntrypointProcesses(LogFiles& logs, EntrypointOptions options, EntrypointEvents events);
  ~EntrypointProcesses() override;
  // Kills all commands with their descendants and waits for them. Idempotent; not on the loop.
  void Stop();

  // EntrypointLauncher. One thread.
  void StartEntrypoint(const proto::Entrypoint& entrypoint,
                       const std::vector<uint32_t>& gpu_ids) override;
  void StopEntrypoint(const std::string& submission_id) override;

  // `pid` is a guard, which is waited for here. Any thread.
  bool Owns(pid_t pid) const;

 private:
  struct Command {
    std::string log_path;
    UnixSocket socket;
    pid_t guard = 0;
    pid_t pid = 0;  // Of the command; 0: it has not begun.
    uint64_t oom_kills_before = 0;
    bool stopping = false;
    std::string last_words;  // "ended 0".
  };
  // All on the loop.
  void StartOnLoop(const proto::Entrypoint& entrypoint, const std::vector<uint32_t>& gpu_ids);
  absl::Status Spawn(const proto::Entrypoint& entrypoint, const std::vector<uint32_t>& gpu_ids,
                     Command* command);
  void OnMessage(const std::string& id);
  void OnGuardEnded(const std::string& id);
  proto::EntrypointReport::Ended Explain(const Command& command) const;
  std::vector<std::string> VariablesOf(const proto::Entrypoint& entrypoint,
                                       const std::vector<uint32_t>& gpu_ids) const;

  LogFiles& logs_;
  const EntrypointOptions options_;
  const EntrypointEvents events_;
  mutable Mutex mutex_;
  absl::flat_hash_set<pid_t> guards_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ = false;
  // The loop's own.
  absl::btree_map<std::string, Command> commands_;
  std::unique_ptr<ProcessWatch> watch_;
  std::unique_ptr<EventLoop> loop_;  // Made by the first StartEntrypoint.
};

}  // namespace sheaf
