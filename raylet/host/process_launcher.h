// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Workers as processes of this machine. The driver's executable runs again: exec'd, or forked from
// a template, which is the first such process of the job, stopped inside Init
// (base/worker_template.h). All forking, waiting and killing happens on an event loop of its own;
// the raylet's loop only posts.
//
// Each worker leads a process group. Its descendants that left the group (setsid) are found when
// they are orphans: this process is their subreaper. They are told from others by the mark
// SHEAF_JOB in their environment or by their group, and killed when their job ends.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "base/worker_template.h"
#include "raylet/host/event_loop.h"
#include "raylet/host/process_watch.h"
#include "raylet/host/stray_hunter.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_claim.h"

namespace sheaf {

struct LauncherOptions {
  std::string socket_path;    // What workers attach to.
  std::string log_directory;  // For worker-<process>.out and .err.
  // What workers have put into job-<number> there goes with their job, the number being the last
  // part of their SHEAF_JOB (sheaf.data's caches on disk). Empty: nothing is removed.
  std::string spill_directory;
  std::string session;                            // Names this node's run in SHEAF_JOB.
  int64_t environment_bytes = int64_t{10} << 30;  // Of runtime environments on this node's disk.
  std::vector<std::string> variables;  // Of this node: workers of other nodes' drivers start with.
  int oom_score_adj = 500;             // Of workers; the node's own is lower.
  uint64_t open_files = 0;             // Workers' limit of descriptors; 0: this process's.
  bool use_templates = true;
  // A template that is not ready by then is given up; workers are exec'd.
  Nanos template_timeout = 10 * kSecond;
  // Every child of this process may be reaped: true in `sheaf node`.
  bool own_all_children = false;
  // But these, which somebody else waits for. Any thread.
  std::function<bool(pid_t)> is_spared = nullptr;
};

// A worker that runs, for the memory watch and the log tailer.
struct LaunchedWorker {
  ProcessId process;
  ProcessId driver;
  JobNumber job = 0;
  pid_t os_pid = 0;
  Nanos started_at = 0;
  std::string stdout_path;
  std::string stderr_path;
};

// Called on the launcher's loop.
struct LauncherEvents {
  std::function<void(const LaunchedWorker&)> on_started;  // Its os_pid is known.
  // Once per accepted Start; os_pid may be reused now.
  std::function<void(ProcessId, const proto::Death&)> on_exited;
  // How often the kernel killed in this cgroup; may be empty.
  std::function<uint64_t()> kernel_oom_kills;
};

// Where executables come from.
struct LauncherPrograms {
  // Gives a driver's executable away; called once per job, by AddJob, on its thread.
  std::function<UniqueFd(ProcessId driver)> of_driver;
  // Finds the program of a driver on another node, where it lies at `path`. Calls `done` once, on
  // any thread, or never if the node ends before.
  std::function<void(ProcessId driver, std::string path,
                     std::function<void(absl::StatusOr<UniqueFd>)> done)>
      fetch;
};

class ProcessLauncher final : public WorkerLauncher {
 public:
  // kResourceExhausted: no descriptors.
  static absl::StatusOr<std::unique_ptr<ProcessLauncher>> Make(LauncherOptions options,
                                                               LauncherEvents events,
                                                               LauncherPrograms programs);
  ~ProcessLauncher() override { Stop(); }
  // Kills all workers and strays and waits for them, for 2 s at most. Later calls do nothing.
  // Idempotent; not on the loop.
  void Stop();

  // WorkerLauncher. Any thread.
  void AddJob(JobNumber job, ProcessId driver, const proto::JobStart& start) override;
  void AddRemoteJob(JobNumber job, ProcessId driver, const proto::JobStart& start,
                    const proto::Program& program) override;
  void RemoveJob(JobNumber job) override;
  void EndStrays(JobNumber job) override;
  absl::Status Start(const WorkerSpec& spec) override;
  void Kill(ProcessId process, const std::string& reason) override;

  // As Kill, with the death that is reported: the memory watch's evidence. Any thread.
  void KillWith(ProcessId process, const proto::Death& death);
  // The worker that presents `token`, which is void from then on. kNotFound: none is awaited with
  // it. Any thread.
  absl::StatusOr<WorkerClaim> Claim(std::string_view token);
  // Any thread but the loop.
  std::vector<LaunchedWorker> Workers();
  // A copy of the descriptor that workers of `driver`'s job are started from. kNotFound: there is
  // none here. Any thread but the loop.
  absl::StatusOr<UniqueFd> ProgramOf(ProcessId driver);

 private:
  struct Worker {
    LaunchedWorker info;
    std::string token;
    uint64_t watch = 0;  // Of its process, once that runs.
    bool from_template = false;
    // Cause set: it was killed on purpose, and this is how its death is reported.
    proto::Death doom;
    uint64_t oom_kills_before = 0;
  };
  enum class TemplateState : uint8_t { kNone, kStarting, kReady, kRetired };
  struct Job {
    ProcessId driver;
    UniqueFd executable;
    std::string program;  // Its path, of a job from another node.
    proto::JobStart start;
    bool is_remote = false;  // `start` came from another node, without the driver's environment.
    TemplateState template_state = TemplateState::kNone;
    pid_t template_pid = 0;
    UnixSocket template_socket;
    // With their tokens.
    std::deque<std::pair<WorkerSpec, std::string>> queue;            // Waiting for the template.
    std::deque<std::pair<WorkerSpec, std::string>> without_program;  // It is being fetched.
  };

  ProcessLauncher(LauncherOptions options, LauncherEvents events, LauncherPrograms programs,
                  std::unique_ptr<EventLoop> loop);

  void Add(JobNumber job, std::shared_ptr<Job> fresh);

  // All on the loop.
  void StartOnLoop(const WorkerSpec& spec, const std::string& token);
  void StartWithProgram(Job& job, const WorkerSpec& spec, const std::string& token);
  void OnProgram(JobNumber number, absl::StatusOr<UniqueFd>& program);
  void StartByExec(Job& job, const WorkerSpec& spec, const std::string& token);
  void StartByTemplate(Job& job, const WorkerSpec& spec, const std::string& token);
  absl::Status StartTemplate(JobNumber number, Job& job);
  void OnTemplateMessage(JobNumber number);
  void OnTemplateReport(Job& job, const TemplateReport& report, std::vector<UniqueFd> fds);
  void RetireTemplate(Job& job, const std::string& why);
  void TakeLastReports(Job& job);
  // `why`: for the workers that it has not forked yet, which end with it.
  void EndTemplate(Job& job, const std::string& why);
  void OnRunning(Worker& worker, pid_t pid, UniqueFd pidfd);
  void OnChildExited(ProcessId process);
  void AwaitTemplateReport(ProcessId process, int tries_left);
  void Finish(ProcessId process, const proto::Death& death);
  void FinishWithStatus(ProcessId process, int status);
  proto::Death Explain(const Worker& worker, int status) const;
  void KillOnLoop(ProcessId process, const proto::Death& death);
  void KillProcesses(const Worker& worker);
  void RemoveJobOnLoop(JobNumber job);
  void RemoveFiles(JobNumber job) const;
  void Sweep();
  void SweepUntilGone(Nanos deadline);
  void HuntStrays(JobNumber job, Nanos deadline);
  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> OpenOutput(const Worker& worker) const;
  std::vector<std::string> EnvironmentOf(const Job& job, JobNumber number) const;
  std::string NewToken();
  bool IsAwaited(const std::string& token) const;  // Nobody has attached with it.
  bool IsOurs(pid_t pid) const;
  Worker& AddWorker(const Job& job, const WorkerSpec& spec, const std::string& token);

  const LauncherOptions options_;
  const LauncherEvents events_;
  const LauncherPrograms programs_;

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, WorkerClaim> tokens_ ABSL_GUARDED_BY(mutex_);  // Awaited.
  absl::flat_hash_set<JobNumber> known_jobs_ ABSL_GUARDED_BY(mutex_);
  SeededRandom random_ ABSL_GUARDED_BY(mutex_){EntropySeed()};

  bool stopped_ = false;  // The caller's of Stop.
  // The loop's own.
  absl::flat_hash_map<ProcessId, Worker> workers_;
  absl::btree_map<JobNumber, Job> jobs_;
  std::unique_ptr<ProcessWatch> watch_;
  StrayHunter strays_;
  bool sweeping_ = false;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace sheaf
