// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Workers forked from a template: the first process of a job, stopped inside Init.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "raylet/host/process_launcher.h"
#include "raylet/host/spawn.h"
#include "raylet/host/worker_start.h"

namespace sheaf {
namespace {

bool Has(const std::vector<std::string>& variables, std::string_view name) {
  return std::any_of(variables.begin(), variables.end(), [name](std::string_view variable) {
    return variable.starts_with(name) && variable.substr(name.size()).starts_with('=');
  });
}

}  // namespace

absl::Status ProcessLauncher::StartTemplate(JobNumber number, Job& job) {
  auto sockets = UnixSocket::Pair();
  if (!sockets.ok()) return sockets.status();
  auto& [own, theirs] = *sockets;
  const std::string stem = absl::StrCat(options_.log_directory, "/job-", number, "-template");
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd out, OpenLog(stem + ".out"));
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd err, OpenLog(stem + ".err"));
  SpawnRequest request;
  request.executable_fd = job.executable.get();
  request.argv.assign(job.start.argv().begin(), job.start.argv().end());
  request.environ = EnvironmentOf(job, number);
  if (job.start.language() == proto::JobStart::CPP && !Has(request.environ, kBindNowVariable))
    request.environ.push_back(absl::StrCat(kBindNowVariable, "=", kBindNow));
  request.environ.push_back(absl::StrCat(kTemplateVariable, "=", theirs.fd()));
  request.working_dir = job.start.working_dir();
  request.stdout_fd = out.get();
  request.stderr_fd = err.get();
  request.inherited_fds = {theirs.fd()};
  request.open_files = options_.open_files;
  request.oom_score_adj = options_.oom_score_adj;
  SHEAF_ASSIGN_OR_RETURN(Spawned spawned, Spawn(request));
  job.template_pid = spawned.pid;
  job.template_socket = std::move(own);
  job.template_state = TemplateState::kStarting;
  strays_.AddGroup(spawned.pid, number);
  SHEAF_RETURN_IF_ERROR(loop_->Watch(job.template_socket.fd(), EPOLLIN,
                                     [this, number](uint32_t) { OnTemplateMessage(number); }));
  const pid_t pid = spawned.pid;
  loop_->After(options_.template_timeout, [this, number, pid] {
    const auto found = jobs_.find(number);
    if (found == jobs_.end() || found->second.template_pid != pid ||
        found->second.template_state != TemplateState::kStarting) {
      return;
    }
    RetireTemplate(found->second, "it did not reach Init in time");
  });
  return absl::OkStatus();
}

void ProcessLauncher::OnTemplateMessage(JobNumber number) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  while (job.template_socket.valid()) {
    absl::StatusOr<SocketMessage> message = job.template_socket.Receive(0);
    if (absl::IsDeadlineExceeded(message.status())) return;
    const TemplateReport* report =
        message.ok() ? FrameHead<TemplateReport>(message->bytes) : nullptr;
    if (report == nullptr || report->magic != kTemplateMagic) {
      RetireTemplate(job, message.ok() ? "it sent nonsense" : "it ended");
      return;
    }
    OnTemplateReport(job, *report, std::move(message->fds));
  }
}

void ProcessLauncher::OnTemplateReport(Job& job, const TemplateReport& report,
                                       std::vector<UniqueFd> fds) {
  const ProcessId process = ProcessId::Unpack(report.process);
  switch (report.kind) {
    case TemplateReport::kReady: {
      job.template_state = TemplateState::kReady;
      for (auto& [spec, token] : std::exchange(job.queue, {})) StartByTemplate(job, spec, token);
      return;
    }
    case TemplateReport::kRetired:
      return RetireTemplate(
          job, std::string(report.text.data(), strnlen(report.text.data(), report.text.size())));
    case TemplateReport::kForked: {
      const auto found = workers_.find(process);
      if (found == workers_.end() || found->second.info.os_pid != 0 || report.pid <= 1) return;
      return OnRunning(found->second, report.pid, fds.empty() ? UniqueFd() : std::move(fds[0]));
    }
    case TemplateReport::kForkFailed:
      return Finish(process, MakeDeath(proto::Death::START_FAILED,
                                       absl::StrCat("cannot fork: ", std::strerror(report.value))));
    case TemplateReport::kExited:
      return FinishWithStatus(process, report.value);
  }
}

void ProcessLauncher::StartByTemplate(Job& job, const WorkerSpec& spec, const std::string& token) {
  const auto found = workers_.find(spec.process);
  if (found == workers_.end()) return;  // Killed while it waited.
  Worker& worker = found->second;
  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> output = OpenOutput(worker);
  const absl::StatusOr<std::vector<std::string>> list = VariablesOf(spec);
  if (!output.ok() || !list.ok()) {
    const absl::Status& why = output.ok() ? list.status() : output.status();
    return Finish(spec.process, MakeDeath(proto::Death::START_FAILED, std::string(why.message())));
  }
  std::string variables;
  for (const std::string& variable : *list) variables.append(variable).push_back('\0');
  ForkRequest request{kTemplateMagic, spec.process.packed(), {}, variables.size()};
  token.copy(request.token.data(), request.token.size() - 1);
  const std::string message = absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(&request), sizeof(request)), variables);
  const absl::Status sent =
      job.template_socket.Send(message, {output->first.get(), output->second.get()}, kSecond);
  if (sent.ok()) {
    worker.from_template = true;
    return;
  }
  RetireTemplate(job, std::string(sent.message()));
  StartByExec(job, spec, token);
}

void ProcessLauncher::RetireTemplate(Job& job, const std::string& why) {
  if (job.template_state == TemplateState::kRetired) return;
  Log(LogLevel::kInfo, "workers of driver ", job.driver.ToString(),
      " are exec'd from here on; their template: ", why);
  EndTemplate(job, absl::StrCat("the template of its job ended: ", why));
  job.template_state = TemplateState::kRetired;
  for (auto& [spec, token] : std::exchange(job.queue, {})) StartByExec(job, spec, token);
}

// What became of workers, as far as the template has said so: those that it has forked live on.
void ProcessLauncher::TakeLastReports(Job& job) {
  while (true) {
    absl::StatusOr<SocketMessage> message = job.template_socket.Receive(0);
    const TemplateReport* report =
        message.ok() ? FrameHead<TemplateReport>(message->bytes) : nullptr;
    if (report == nullptr || report->magic != kTemplateMagic) return;
    if (report->kind == TemplateReport::kReady || report->kind == TemplateReport::kRetired)
      continue;  // Of the template itself, which ends.
    OnTemplateReport(job, *report, std::move(message->fds));
  }
}

void ProcessLauncher::EndTemplate(Job& job, const std::string& why) {
  if (job.template_socket.valid()) {
    TakeLastReports(job);
    loop_->Unwatch(job.template_socket.fd());
    job.template_socket.Close();
  }
  if (job.template_pid == 0) return;
  // Requests that it has not answered are not carried out, or their process is an orphan of ours
  // that no one waits for; either way they count as failed starts, and the pool starts others.
  std::vector<std::pair<ProcessId, proto::Death>> lost;
  for (const auto& [process, worker] : workers_) {
    if (!worker.from_template || worker.info.os_pid != 0 || worker.info.driver != job.driver)
      continue;
    lost.emplace_back(process, worker.doom.cause() != proto::Death::UNKNOWN
                                   ? worker.doom
                                   : MakeDeath(proto::Death::START_FAILED, why));
  }
  for (const auto& [process, death] : lost) Finish(process, death);
  // Only the template itself: its workers have groups of their own and, from here on, this process
  // as their parent.
  const pid_t pid = std::exchange(job.template_pid, 0);
  kill(pid, SIGKILL);
  watch_->Watch(pid, UniqueFd(), [pid] { waitpid(pid, nullptr, 0); });
}

}  // namespace sheaf
