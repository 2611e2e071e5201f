// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/process_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/environment.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "raylet/host/last_lines.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/spawn.h"
#include "raylet/host/worker_start.h"
#include "raylet/host/worker_variables.h"

namespace sheaf {
namespace {

constexpr Nanos kSweepPeriod = kSecond;
constexpr Nanos kEndTimeout = 2 * kSecond;
constexpr int kTemplateReportTries = 10;  // Of 10 ms each.
constexpr size_t kLastLines = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessLauncher>> ProcessLauncher::Make(LauncherOptions options,
                                                                       LauncherEvents events,
                                                                       LauncherPrograms programs) {
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Start("launcher"));
  return std::unique_ptr<ProcessLauncher>(new ProcessLauncher(
      std::move(options), std::move(events), std::move(programs), std::move(loop)));
}

ProcessLauncher::ProcessLauncher(LauncherOptions options, LauncherEvents events,
                                 LauncherPrograms programs, std::unique_ptr<EventLoop> loop)
    : options_(std::move(options)),
      events_(std::move(events)),
      programs_(std::move(programs)),
      watch_(std::make_unique<ProcessWatch>(*loop)),
      strays_(options_.session, options_.own_all_children),
      loop_(std::move(loop)) {
  BecomeSubreaper();
}

void ProcessLauncher::Stop() {
  if (std::exchange(stopped_, true)) return;
  loop_->Run([this] {
    for (auto& [number, job] : jobs_) EndTemplate(job, "the node ends");
    for (auto& [process, worker] : workers_) KillProcesses(worker);
  });
  // Their exits are handled by the loop; what they leave behind becomes ours, generation by
  // generation.
  const Nanos deadline = MonotonicNow() + kEndTimeout;
  bool over = false;
  while (!over && MonotonicNow() < deadline) {
    loop_->Run([&] {
      const int killed =
          strays_.Sweep([this](pid_t pid) { return IsOurs(pid); }, /*everything=*/true);
      over = killed == 0 && workers_.empty();
    });
    if (!over) usleep(1000);
  }
  loop_->Run([this] { watch_.reset(); });
  loop_->Stop();
}

void ProcessLauncher::AddJob(JobNumber job, ProcessId driver, const proto::JobStart& start) {
  auto fresh = std::make_shared<Job>();
  fresh->driver = driver;
  fresh->executable = programs_.of_driver(driver);
  fresh->start = start;
  Add(job, std::move(fresh));
}

void ProcessLauncher::AddRemoteJob(JobNumber job, ProcessId driver, const proto::JobStart& start,
                                   const proto::Program& program) {
  auto fresh = std::make_shared<Job>();
  fresh->driver = driver;
  fresh->is_remote = true;
  fresh->program = program.path();
  // An interpreter is of use only with what is installed around it: the one that is here.
  if (start.language() == proto::JobStart::PYTHON)
    fresh->executable = UniqueFd(open(fresh->program.c_str(), O_RDONLY | O_CLOEXEC));
  fresh->start = start;
  Add(job, std::move(fresh));
}

void ProcessLauncher::Add(JobNumber job, std::shared_ptr<Job> fresh) {
  {
    const MutexLock lock(mutex_);
    known_jobs_.insert(job);
  }
  loop_->Post([this, job, fresh] { jobs_.insert_or_assign(job, std::move(*fresh)); });
}

void ProcessLauncher::EndStrays(JobNumber job) {
  loop_->Post([this, job] { HuntStrays(job, MonotonicNow() + kEndTimeout); });
}

void ProcessLauncher::RemoveJob(JobNumber job) {
  {
    const MutexLock lock(mutex_);
    known_jobs_.erase(job);
  }
  loop_->Post([this, job] { RemoveJobOnLoop(job); });
}

absl::Status ProcessLauncher::Start(const WorkerSpec& spec) {
  std::string token = NewToken();
  {
    const MutexLock lock(mutex_);
    if (!known_jobs_.contains(spec.job))
      return absl::NotFoundError(absl::StrCat("no job ", spec.job));
    tokens_[token] = {spec.process, spec.job};
  }
  loop_->Post([this, spec, token = std::move(token)] { StartOnLoop(spec, token); });
  return absl::OkStatus();
}

void ProcessLauncher::Kill(ProcessId process, const std::string& reason) {
  KillWith(process, MakeDeath(proto::Death::KILLED, reason));
}

void ProcessLauncher::KillWith(ProcessId process, const proto::Death& death) {
  loop_->Post([this, process, death] { KillOnLoop(process, death); });
}

absl::StatusOr<WorkerClaim> ProcessLauncher::Claim(std::string_view token) {
  WorkerClaim claim;
  {
    const MutexLock lock(mutex_);
    const auto found = tokens_.find(std::string(token));
    if (found == tokens_.end()) return absl::NotFoundError("no worker is awaited with this token");
    claim = found->second;
    tokens_.erase(found);
  }
  return claim;
}

absl::StatusOr<UniqueFd> ProcessLauncher::ProgramOf(ProcessId driver) {
  UniqueFd copy;
  loop_->Run([&] {
    for (const auto& [number, job] : jobs_) {
      if (job.driver == driver && job.executable.valid())
        copy = UniqueFd(fcntl(job.executable.get(), F_DUPFD_CLOEXEC, 0));
    }
  });
  if (!copy.valid()) return absl::NotFoundError("no job of that driver is here");
  return copy;
}

std::vector<LaunchedWorker> ProcessLauncher::Workers() {
  std::vector<LaunchedWorker> result;
  loop_->Run([&] {
    for (const auto& [process, worker] : workers_) {
      if (worker.info.os_pid != 0) result.push_back(worker.info);
    }
  });
  return result;
}

bool ProcessLauncher::IsAwaited(const std::string& token) const {
  const MutexLock lock(mutex_);
  return tokens_.contains(token);
}

std::string ProcessLauncher::NewToken() {
  const MutexLock lock(mutex_);
  return absl::StrCat(absl::Hex(random_.Next(), absl::kZeroPad16),
                      absl::Hex(random_.Next(), absl::kZeroPad16));
}

bool ProcessLauncher::IsOurs(pid_t pid) const {
  return (options_.is_spared && options_.is_spared(pid)) ||
         std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& entry) { return entry.second.info.os_pid == pid; }) ||
         std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& entry) { return entry.second.template_pid == pid; });
}

ProcessLauncher::Worker& ProcessLauncher::AddWorker(const Job& job, const WorkerSpec& spec,
                                                    const std::string& token) {
  Worker& worker = workers_[spec.process];
  worker.token = token;
  worker.info.process = spec.process;
  worker.info.driver = job.driver;
  worker.info.job = spec.job;
  const std::string stem = absl::StrCat(options_.log_directory, "/worker-", spec.process.node, ".",
                                        spec.process.process);
  worker.info.stdout_path = stem + ".out";
  worker.info.stderr_path = stem + ".err";
  worker.oom_kills_before = events_.kernel_oom_kills ? events_.kernel_oom_kills() : 0;
  return worker;
}

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> ProcessLauncher::OpenOutput(
    const Worker& worker) const {
  SHEAF_ASSIGN_OR_RETURN(UniqueFd out, OpenLog(worker.info.stdout_path));
  SHEAF_ASSIGN_OR_RETURN(UniqueFd err, OpenLog(worker.info.stderr_path));
  return std::pair(std::move(out), std::move(err));
}

std::vector<std::string> ProcessLauncher::EnvironmentOf(const Job& job, JobNumber number) const {
  std::vector<std::string> variables;
  if (job.is_remote) variables = options_.variables;
  PutOver(ForWorkers({job.start.environ().begin(), job.start.environ().end()}), &variables);
  variables.push_back(absl::StrCat(kSocketVariable, "=", options_.socket_path));
  variables.push_back(absl::StrCat(kEnvironmentBytesVariable, "=", options_.environment_bytes));
  variables.push_back(absl::StrCat(kJobVariable, "=", strays_.Mark(number)));
  return variables;
}

void ProcessLauncher::StartOnLoop(const WorkerSpec& spec, const std::string& token) {
  const auto found = jobs_.find(spec.job);
  if (found == jobs_.end()) {
    {
      const MutexLock lock(mutex_);
      tokens_.erase(token);
    }
    events_.on_exited(spec.process, MakeDeath(proto::Death::START_FAILED, "its job has ended"));
    return;
  }
  Job& job = found->second;
  AddWorker(job, spec, token);
  if (job.executable.valid()) return StartWithProgram(job, spec, token);
  if (job.start.language() == proto::JobStart::PYTHON) {
    const std::string words = absl::StrCat("the program of its job, ", job.program,
                                           ", is not on this node; install it here as well");
    return Finish(spec.process, MakeDeath(proto::Death::START_FAILED, words));
  }
  job.without_program.emplace_back(spec, token);
  if (job.without_program.size() > 1) return;  // It is on its way.
  programs_.fetch(job.driver, job.program,
                  [this, number = spec.job](absl::StatusOr<UniqueFd> program) {
                    auto arrived = std::make_shared<absl::StatusOr<UniqueFd>>(std::move(program));
                    loop_->Post([this, number, arrived] { OnProgram(number, *arrived); });
                  });
}

void ProcessLauncher::OnProgram(JobNumber number, absl::StatusOr<UniqueFd>& program) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (program.ok()) job.executable = std::move(*program);
  for (auto& [spec, token] : std::exchange(job.without_program, {})) {
    if (program.ok()) {
      StartWithProgram(job, spec, token);
    } else {  // The next start asks again.
      Finish(spec.process,
             MakeDeath(proto::Death::START_FAILED, std::string(program.status().message())));
    }
  }
}

void ProcessLauncher::StartWithProgram(Job& job, const WorkerSpec& spec, const std::string& token) {
  if (!workers_.contains(spec.process)) return;  // Killed while it waited.
  // Variables of an environment are there before main; a template has run that already.
  const bool by_template = options_.use_templates && spec.environment.empty();
  if (by_template && job.template_state == TemplateState::kNone) {
    if (absl::Status started = StartTemplate(spec.job, job); !started.ok()) {
      RetireTemplate(job, std::string(started.message()));
    }
  }
  if (by_template && job.template_state == TemplateState::kStarting) {
    job.queue.emplace_back(spec, token);
  } else if (by_template && job.template_state == TemplateState::kReady) {
    StartByTemplate(job, spec, token);
  } else {
    StartByExec(job, spec, token);
  }
}

void ProcessLauncher::StartByExec(Job& job, const WorkerSpec& spec, const std::string& token) {
  const auto found = workers_.find(spec.process);
  if (found == workers_.end()) return;  // Killed while it waited.
  Worker& worker = found->second;
  const auto fail = [&](const absl::Status& status) {
    Finish(spec.process, MakeDeath(proto::Death::START_FAILED, std::string(status.message())));
  };
  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> output = OpenOutput(worker);
  if (!output.ok()) return fail(output.status());
  absl::StatusOr<std::vector<std::string>> variables = VariablesOf(spec);
  if (!variables.ok()) return fail(variables.status());
  SpawnRequest request;
  request.executable_fd = job.executable.get();
  request.argv.assign(job.start.argv().begin(), job.start.argv().end());
  request.environ = EnvironmentOf(job, spec.job);
  request.environ.push_back(absl::StrCat(kWorkerVariable, "=", token));
  Expand(request.environ, &*variables);
  PutOver(*std::move(variables), &request.environ);
  request.working_dir = job.start.working_dir();
  request.stdout_fd = output->first.get();
  request.stderr_fd = output->second.get();
  request.open_files = options_.open_files;
  request.oom_score_adj = options_.oom_score_adj;
  absl::StatusOr<Spawned> spawned = Spawn(request);
  if (!spawned.ok()) return fail(spawned.status());
  OnRunning(worker, spawned->pid, std::move(spawned->pidfd));
}

void ProcessLauncher::OnRunning(Worker& worker, pid_t pid, UniqueFd pidfd) {
  const ProcessId process = worker.info.process;
  worker.info.os_pid = pid;
  worker.info.started_at = MonotonicNow();
  strays_.AddGroup(pid, worker.info.job);
  worker.watch = watch_->Watch(pid, std::move(pidfd), [this, process] { OnChildExited(process); });
  if (!std::exchange(sweeping_, true)) loop_->After(kSweepPeriod, [this] { Sweep(); });
  if (worker.doom.cause() != proto::Death::UNKNOWN) KillProcesses(worker);
  events_.on_started(worker.info);
}

void ProcessLauncher::OnChildExited(ProcessId process) {
  const auto found = workers_.find(process);
  if (found == workers_.end()) return;
  if (found->second.from_template) {
    AwaitTemplateReport(process, kTemplateReportTries);
    return;
  }
  const pid_t pid = found->second.info.os_pid;
  // Before it is reaped, as long as no one else can have its number: the rest of its process group.
  kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  FinishWithStatus(process, status);
}

// The parent of a forked worker is its template, which reports the exit status; if it died, the
// parent is this process.
void ProcessLauncher::AwaitTemplateReport(ProcessId process, int tries_left) {
  const auto found = workers_.find(process);
  if (found == workers_.end()) return;  // Reported meanwhile.
  const pid_t pid = found->second.info.os_pid;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == pid) {
    kill(-pid, SIGKILL);  // Before it is reaped, as above.
    int status = 0;
    waitpid(pid, &status, 0);
    return FinishWithStatus(process, status);
  }
  if (tries_left == 0) {
    return Finish(process,
                  MakeDeath(proto::Death::UNKNOWN, "it ended; its exit status is not known"));
  }
  loop_->After(10 * kMillisecond,
               [this, process, tries_left] { AwaitTemplateReport(process, tries_left - 1); });
}

void ProcessLauncher::FinishWithStatus(ProcessId process, int status) {
  const auto found = workers_.find(process);
  if (found != workers_.end()) Finish(process, Explain(found->second, status));
}

void ProcessLauncher::Finish(ProcessId process, const proto::Death& death) {
  const auto found = workers_.find(process);
  if (found == workers_.end()) return;
  watch_->Unwatch(found->second.watch);
  {
    const MutexLock lock(mutex_);
    tokens_.erase(found->second.token);
  }
  workers_.erase(found);
  events_.on_exited(process, death);
}

proto::Death ProcessLauncher::Explain(const Worker& worker, int status) const {
  proto::Death death;
  std::string words;
  if (WIFSIGNALED(status)) {
    death.set_cause(proto::Death::SIGNALLED);
    death.set_code(WTERMSIG(status));
    words = absl::StrCat("killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                         ")", WCOREDUMP(status) ? ", core dumped" : "");
    if (WTERMSIG(status) == SIGKILL && worker.doom.cause() == proto::Death::UNKNOWN &&
        events_.kernel_oom_kills && events_.kernel_oom_kills() > worker.oom_kills_before) {
      death.set_cause(proto::Death::OUT_OF_MEMORY);
      words = "killed by the kernel: the memory limit of the node's control group was reached";
    }
  } else {
    death.set_cause(proto::Death::EXITED);
    death.set_code(WEXITSTATUS(status));
    words = absl::StrCat("exited with status ", WEXITSTATUS(status));
  }
  death.set_message(words);
  if (worker.doom.cause() != proto::Death::UNKNOWN) {
    death = worker.doom;
  } else if (IsAwaited(worker.token)) {
    death.set_cause(proto::Death::START_FAILED);
    death.set_message(absl::StrCat(words, " before it reached Init"));
  }
  if (death.cause() != proto::Death::KILLED) {
    for (std::string& line : LastLines(worker.info.stderr_path, kLastLines)) {
      death.add_last_lines(std::move(line));
    }
  }
  return death;
}

void ProcessLauncher::KillOnLoop(ProcessId process, const proto::Death& death) {
  const auto found = workers_.find(process);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  if (worker.doom.cause() == proto::Death::UNKNOWN) worker.doom = death;
  if (worker.info.os_pid != 0 || worker.from_template) {
    KillProcesses(worker);  // Of one that is being forked, once its number is known.
  } else {
    // It waits for the template, or for its program.
    const proto::Death doom = worker.doom;
    Finish(process, doom);
  }
}

void ProcessLauncher::KillProcesses(const Worker& worker) {
  if (worker.info.os_pid == 0) return;
  // It may be its children that have the memory, and not all need to be in its group.
  std::vector<pid_t> descendants;
  if (worker.doom.cause() == proto::Death::OUT_OF_MEMORY) {
    descendants = DescendantsOf(worker.info.os_pid);
  }
  // The worker itself first, by a name that cannot have been given away; it is watched, so not
  // reaped, and thus the number of its group is still its own.
  watch_->Signal(worker.watch, SIGKILL);
  if (!worker.from_template) kill(-worker.info.os_pid, SIGKILL);
  for (const pid_t descendant : descendants) {
    strays_.AddGroup(descendant, worker.info.job);  // So that a dead one is known for a stray too.
    kill(descendant, SIGKILL);
  }
}

void ProcessLauncher::RemoveJobOnLoop(JobNumber number) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  EndTemplate(found->second, "its job ended");
  found->second.template_state = TemplateState::kRetired;
  for (auto* waiting : {&found->second.queue, &found->second.without_program}) {
    for (auto& [spec, token] : std::exchange(*waiting, {}))
      Finish(spec.process, MakeDeath(proto::Death::KILLED, "its job ended"));
  }
  jobs_.erase(found);
  strays_.EndJob(number);
  RemoveFiles(number);
  SweepUntilGone(MonotonicNow() + kEndTimeout);
}

// Of workers that are dead or dying: one that writes still finds no directory.
void ProcessLauncher::RemoveFiles(JobNumber job) const {
  if (options_.spill_directory.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(absl::StrCat(options_.spill_directory, "/job-", job), ignored);
}

void ProcessLauncher::HuntStrays(JobNumber job, Nanos deadline) {
  absl::flat_hash_set<pid_t> spared;
  for (const auto& [process, worker] : workers_) {
    if (worker.info.job == job && worker.doom.cause() == proto::Death::UNKNOWN)
      spared.insert(worker.info.os_pid);
  }
  strays_.Hunt(job, std::move(spared));
  strays_.Sweep([this](pid_t pid) { return IsOurs(pid); }, /*everything=*/false);
  if (MonotonicNow() >= deadline || !jobs_.contains(job)) {
    strays_.EndHunt(job);
    return;
  }
  loop_->After(10 * kMillisecond, [this, job, deadline] { HuntStrays(job, deadline); });
}

void ProcessLauncher::Sweep() {
  strays_.Sweep([this](pid_t pid) { return IsOurs(pid); }, /*everything=*/false);
  loop_->After(kSweepPeriod, [this] { Sweep(); });
}

void ProcessLauncher::SweepUntilGone(Nanos deadline) {
  const int killed = strays_.Sweep([this](pid_t pid) { return IsOurs(pid); }, /*everything=*/false);
  // A worker that is dying leaves strays a moment later, so one quiet look is not enough.
  const bool busy = killed > 0 || !workers_.empty();
  if (busy && MonotonicNow() < deadline)
    loop_->After(10 * kMillisecond, [this, deadline] { SweepUntilGone(deadline); });
}

}  // namespace sheaf
