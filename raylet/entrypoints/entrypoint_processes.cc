// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/entrypoints/entrypoint_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "raylet/entrypoints/entrypoint_guard.h"
#include "raylet/host/last_lines.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/spawn.h"
#include "raylet/host/worker_start.h"
#include "raylet/host/worker_variables.h"
#include "raylet/logs/log_names.h"

namespace sheaf {
namespace {

constexpr size_t kLastLines = 20;
constexpr Nanos kLongestStopWait = 3600 * kSecond;

std::string ValueOf(const std::vector<std::string>& variables, std::string_view name) {
  const std::string prefix = absl::StrCat(std::string(name), "=");
  for (const std::string& variable : variables) {
    if (absl::StartsWith(variable, prefix)) return variable.substr(prefix.size());
  }
  return "";
}

// As Ray's own: these two are read from the environment of the job.
int StopSignal(const std::vector<std::string>& variables) {
  const std::string name = ValueOf(variables, "RAY_JOB_STOP_SIGNAL");
  if (name == "SIGINT") return SIGINT;
  if (name == "SIGKILL") return SIGKILL;
  if (name == "SIGHUP") return SIGHUP;
  return SIGTERM;
}
Nanos StopWait(const std::vector<std::string>& variables) {
  double seconds = 3;
  const std::string text = ValueOf(variables, "RAY_JOB_STOP_WAIT_TIME_S");
  if (!absl::SimpleAtod(text, &seconds) || !(seconds >= 0)) return 3 * kSecond;
  if (seconds > static_cast<double>(kLongestStopWait / kSecond)) return kLongestStopWait;
  return static_cast<Nanos>(seconds * static_cast<double>(kSecond));
}

// What sheaf.init() and sheaf._worker.runtime_env_exec read. Of a key that stands twice the last counts, so
// the user's own `job_name` does.
std::string JobConfig(const proto::Entrypoint& entrypoint) {
  const std::string& id = entrypoint.submission_id();
  std::string metadata =
      absl::StrCat("{\"job_submission_id\":\"", id, "\",\"job_name\":\"", id, "\"");
  const std::string& own = entrypoint.metadata();
  const size_t brace = own.find('{');
  const bool empty =
      brace == std::string::npos || own.find_first_not_of(" \t\r\n", brace + 1) == own.rfind('}');
  absl::StrAppend(&metadata, empty ? "}" : "," + own.substr(brace + 1));
  return absl::StrCat(
      "{\"runtime_env\":", entrypoint.runtime_env().empty() ? "{}" : entrypoint.runtime_env(),
      ",\"metadata\":", metadata, "}");
}

void PutInFront(const std::string& folder, std::string* path) {
  if (folder.empty()) return;
  *path = path->empty() ? folder : absl::StrCat(folder, ":", *path);
}

}  // namespace

EntrypointProcesses::EntrypointProcesses(LogFiles& logs, EntrypointOptions options,
                                         EntrypointEvents events)
    : logs_(logs), options_(std::move(options)), events_(std::move(events)) {}

EntrypointProcesses::~EntrypointProcesses() { Stop(); }

void EntrypointProcesses::Stop() {
  if (std::exchange(stopped_, true) || loop_ == nullptr) return;
  // Guards kill when their socket ends.
  loop_->Run([this] {
    for (auto& [id, command] : commands_) shutdown(command.socket.fd(), SHUT_RDWR);
  });
  const Nanos deadline = Deadline(MonotonicNow(), options_.drain_time);
  bool over = false;
  while (!over && MonotonicNow() < deadline) {
    loop_->Run([&] { over = commands_.empty(); });
    if (!over) usleep(2000);
  }
  loop_->Run([this] { watch_.reset(); });
  loop_->Stop();
}

void EntrypointProcesses::StartEntrypoint(const proto::Entrypoint& entrypoint,
                                          const std::vector<uint32_t>& gpu_ids) {
  if (stopped_) return;
  if (loop_ == nullptr) {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Start("entrypoints");
    if (!loop.ok()) {
      proto::EntrypointReport::Ended ended;
      *ended.mutable_death() =
          MakeDeath(proto::Death::START_FAILED, std::string(loop.status().message()));
      return events_.on_ended(entrypoint.submission_id(), ended);
    }
    loop_ = *std::move(loop);
    loop_->Run([this] { watch_ = std::make_unique<ProcessWatch>(*loop_); });
  }
  loop_->Post([this, entrypoint, gpu_ids] { StartOnLoop(entrypoint, gpu_ids); });
}

void EntrypointProcesses::StopEntrypoint(const std::string& submission_id) {
  if (loop_ == nullptr) return;
  loop_->Post([this, submission_id] {
    const auto found = commands_.find(submission_id);
    if (found == commands_.end()) return;
    found->second.stopping = true;
    found->second.socket.Send("stop", {}, 0).IgnoreError();  // It is repeated.
  });
}

bool EntrypointProcesses::Owns(pid_t pid) const {
  const MutexLock lock(mutex_);
  return guards_.contains(pid);
}

void EntrypointProcesses::StartOnLoop(const proto::Entrypoint& entrypoint,
                                      const std::vector<uint32_t>& gpu_ids) {
  const std::string& id = entrypoint.submission_id();
  Command command;
  command.log_path = logs_.PathOf(JobLogName(id));
  logs_.Remove(JobLogName(id));  // Of one that was deleted, and had this id.
  command.oom_kills_before = events_.kernel_oom_kills();
  const absl::Status started = Spawn(entrypoint, gpu_ids, &command);
  if (!started.ok()) {
    proto::EntrypointReport::Ended ended;
    *ended.mutable_death() = MakeDeath(proto::Death::START_FAILED, std::string(started.message()));
    return events_.on_ended(id, ended);
  }
  const int fd = command.socket.fd();
  commands_[id] = std::move(command);
  const absl::Status watched = loop_->Watch(fd, EPOLLIN, [this, id](uint32_t) { OnMessage(id); });
  if (!watched.ok()) shutdown(fd, SHUT_RDWR);  // The guard ends with all it has.
}

absl::Status EntrypointProcesses::Spawn(const proto::Entrypoint& entrypoint,
                                        const std::vector<uint32_t>& gpu_ids, Command* command) {
  SHEAF_ASSIGN_OR_RETURN(auto ends, UnixSocket::Pair());
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd log, OpenLog(command->log_path));
  const UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EntrypointGuardFlags flags;
  flags.fd = ends.second.fd();
  flags.command = entrypoint.command();
  SpawnRequest request;
  request.environ = VariablesOf(entrypoint, gpu_ids);
  flags.stop_signal = StopSignal(request.environ);
  flags.stop_wait = StopWait(request.environ);
  if (entrypoint.prepares()) {
    const std::string named = ValueOf(request.environ, "SHEAF_PYTHON");
    flags.python = named.empty() ? "python3" : named;
    mkdir(options_.scratch_directory.c_str(), 0700);
    flags.mark = absl::StrCat(options_.scratch_directory, "/", entrypoint.submission_id());
    unlink(flags.mark.c_str());  // Of an attempt that came before.
  }
  request.executable_fd = program.get();
  request.argv = flags.Arguments();
  request.stdout_fd = log.get();
  request.stderr_fd = log.get();
  request.inherited_fds = {ends.second.fd()};
  const MutexLock lock(mutex_);  // Nobody takes the guard for a stray before it is known.
  SHEAF_ASSIGN_OR_RETURN(Spawned spawned, sheaf::Spawn(request));
  command->guard = spawned.pid;
  command->socket = std::move(ends.first);
  guards_.insert(spawned.pid);
  watch_->Watch(spawned.pid, std::move(spawned.pidfd),
                [this, id = entrypoint.submission_id()] { OnGuardEnded(id); });
  return absl::OkStatus();
}

// The node's own, with what is the job's over it.
std::vector<std::string> EntrypointProcesses::VariablesOf(
    const proto::Entrypoint& entrypoint, const std::vector<uint32_t>& gpu_ids) const {
  std::vector<std::string> variables = OfNode(options_.variables);
  std::vector<std::string> own(entrypoint.environ().begin(), entrypoint.environ().end());
  Expand(variables, &own);
  PutOver({absl::StrCat("SHEAF_ADDRESS=", options_.session),
           absl::StrCat("RAY_ADDRESS=", options_.session), "PYTHONUNBUFFERED=1"},
          &variables);
  if (!gpu_ids.empty())
    PutOver({absl::StrCat("CUDA_VISIBLE_DEVICES=", absl::StrJoin(gpu_ids, ","))}, &variables);
  PutOver(ForWorkers(std::move(own)), &variables);
  std::string path = ValueOf(variables, "PYTHONPATH");
  PutInFront(options_.package_parent, &path);
  if (ValueOf(variables, "SHEAF_AS_RAY") != "0") PutInFront(options_.alias_directory, &path);
  if (!path.empty()) PutOver({absl::StrCat("PYTHONPATH=", path)}, &variables);
  PutOver({absl::StrCat("RAY_JOB_CONFIG_JSON_ENV_VAR=", JobConfig(entrypoint)),
           absl::StrCat("SHEAF_SUBMISSION=", entrypoint.submission_id())},
          &variables);
  return variables;
}

void EntrypointProcesses::OnMessage(const std::string& id) {
  const auto found = commands_.find(id);
  if (found == commands_.end()) return;
  Command& command = found->second;
  const absl::StatusOr<SocketMessage> message = command.socket.Receive(0);
  if (absl::IsDeadlineExceeded(message.status())) return;
  if (!message.ok()) return loop_->Unwatch(command.socket.fd());  // Its pidfd says the rest.
  constexpr std::string_view kRunning = "running ";
  if (message->bytes.compare(0, kRunning.size(), kRunning) != 0) {
    command.last_words = message->bytes;
    return;
  }
  int32_t pid = 0;
  if (!absl::SimpleAtoi(message->bytes.substr(kRunning.size()), &pid)) return;
  command.pid = pid;
  proto::EntrypointReport::Running running;
  running.set_os_pid(pid);
  running.set_started_unix_ms((options_.unix_ns_at_zero + MonotonicNow()) / kMillisecond);
  events_.on_running(id, running);
}

void EntrypointProcesses::OnGuardEnded(const std::string& id) {
  const auto found = commands_.find(id);
  if (found == commands_.end()) return;
  Command& command = found->second;
  while (true) {  // What it said last.
    const absl::StatusOr<SocketMessage> message = command.socket.Receive(0);
    if (!message.ok()) break;
    if (!absl::StartsWith(message->bytes, "running ")) command.last_words = message->bytes;
  }
  loop_->Unwatch(command.socket.fd());
  if (command.last_words.empty()) {
    // It was killed: what it guarded has become this process's children.
    if (command.pid != 0) kill(-command.pid, SIGKILL);
    for (const pid_t pid : ChildrenOfThisProcess()) {
      if (ReadProcVariable(pid, "SHEAF_SUBMISSION") != id) continue;
      for (const pid_t below : DescendantsOf(pid)) kill(below, SIGKILL);
      if (pid != command.guard) kill(pid, SIGKILL);
    }
  }
  waitpid(command.guard, nullptr, 0);
  {
    const MutexLock lock(mutex_);
    guards_.erase(command.guard);
  }
  const proto::EntrypointReport::Ended ended = Explain(command);
  commands_.erase(found);
  events_.on_ended(id, ended);
}

proto::EntrypointReport::Ended EntrypointProcesses::Explain(const Command& command) const {
  proto::EntrypointReport::Ended ended;
  proto::Death& death = *ended.mutable_death();
  const size_t space = command.last_words.find(' ');
  int status = 0;
  if (space == std::string::npos ||
      !absl::SimpleAtoi(command.last_words.substr(space + 1), &status)) {
    death = MakeDeath(proto::Death::UNKNOWN, "the process that guards it was killed");
  } else if (WIFSIGNALED(status)) {
    death = MakeDeath(
        proto::Death::SIGNALLED,
        absl::StrCat("ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")"));
    death.set_code(WTERMSIG(status));
    if (WTERMSIG(status) == SIGKILL && !command.stopping &&
        events_.kernel_oom_kills() > command.oom_kills_before) {
      death.set_cause(proto::Death::OUT_OF_MEMORY);
      death.set_message("killed by the kernel: memory was out");
    }
  } else {
    death =
        MakeDeath(proto::Death::EXITED, absl::StrCat("exited with status ", WEXITSTATUS(status)));
    death.set_code(WEXITSTATUS(status));
  }
  ended.set_setup_failed(absl::StartsWith(command.last_words, "setup"));
  for (std::string& line : LastLines(command.log_path, kLastLines))
    death.add_last_lines(std::move(line));
  return ended;
}

}  // namespace sheaf
