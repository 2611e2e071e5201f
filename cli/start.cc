// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/start.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/session_directory.h"
#include "base/status_macros.h"
#include "base/text/json.h"
#include "base/text/shell.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "dashboard/tables/cells.h"
#include "shm/attach.h"

namespace sheaf::cli {
namespace {

constexpr char kSelf[] = "/proc/self/exe";
constexpr size_t kMaxWords = 64 * 1024;  // Of what a node that fails may say.

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipe for the new node");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// In the child, between fork and exec.
[[noreturn]] void BecomeDaemon(char* const* arguments, int ready_fd, int words_fd) {
  setsid();
  // Once more, so that the daemon leads no session and can never get a terminal.
  const pid_t daemon = fork();
  if (daemon != 0) _exit(daemon < 0 ? errno : 0);
  umask(077);
  const std::string own = absl::StrCat("pid\t", getpid(), "\n");
  if (write(ready_fd, own.data(), own.size()) < 0) _exit(errno);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(words_fd, STDOUT_FILENO);
  dup2(words_fd, STDERR_FILENO);
  fcntl(ready_fd, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) _exit(errno);
  execv(kSelf, arguments);
  _exit(errno);
}

// What happened until `deadline`.
struct Outcome {
  std::string ready;  // What came on the ready pipe: "pid", then a ReadyLine.
  std::string words;  // What the node printed.
  bool late = false;
};

// Appends what can be read; false at the end.
bool ReadSome(int fd, std::string& out) {
  char buffer[4096];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0 && out.size() < kMaxWords) out.append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

Outcome WaitForNode(int ready_fd, int words_fd, Nanos deadline) {
  Outcome outcome;
  pollfd entries[2] = {{ready_fd, POLLIN, 0}, {words_fd, POLLIN, 0}};
  // Ready, or both pipes closed: the node has ended.
  while (std::count(outcome.ready.begin(), outcome.ready.end(), '\n') < 2 &&
         (entries[0].fd >= 0 || entries[1].fd >= 0)) {
    const Nanos left = deadline - MonotonicNow();
    if (left <= 0) {
      outcome.late = true;
      break;
    }
    if (poll(entries, 2, static_cast<int>(left / kMillisecond) + 1) <= 0) continue;
    if (entries[0].revents != 0 && !ReadSome(ready_fd, outcome.ready)) entries[0].fd = -1;
    if (entries[1].revents != 0 && !ReadSome(words_fd, outcome.words)) entries[1].fd = -1;
  }
  // What it printed before it was ready is there.
  entries[0].fd = -1;
  while (entries[1].fd >= 0 && poll(entries, 2, 0) > 0 && entries[1].revents != 0) {
    if (!ReadSome(words_fd, outcome.words)) entries[1].fd = -1;
  }
  return outcome;
}

struct Started {
  ReadyLine line;
  int os_pid = 0;
  std::string words;  // What it warned of.
};

absl::StatusOr<Started> StartNode(const StartOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  SHEAF_ASSIGN_OR_RETURN(Pipe words, MakePipe());
  std::vector<std::string> texts = {"sheaf", "node", "--ready-fd",
                                    std::to_string(ready.write.get())};
  for (std::string& argument : options.node.Arguments()) texts.push_back(std::move(argument));
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);

  std::fflush(nullptr);  // The child must not print it again.
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "no process for the new node");
  if (child == 0) BecomeDaemon(arguments.data(), ready.write.get(), words.write.get());
  ready.write.Reset();
  words.write.Reset();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no process for the new node: ", std::strerror(WEXITSTATUS(status))));
  }
  const Outcome outcome = WaitForNode(ready.read.get(), words.read.get(),
                                      Deadline(MonotonicNow(), options.query.timeout));
  const size_t first_line = outcome.ready.find('\n') + 1;  // 0: not even that.
  int pid = 0;
  if (first_line > 4) (void)absl::SimpleAtoi(outcome.ready.substr(4, first_line - 5), &pid);
  ReadyLine line;
  if (ReadyLine::Parse(outcome.ready.substr(first_line), line)) {
    return Started{line, pid, outcome.words};
  }
  const std::string said(absl::StripPrefix(absl::StripAsciiWhitespace(outcome.words), "sheaf: "));
  if (outcome.late) {
    if (pid > 1) kill(pid, SIGKILL);
    return absl::DeadlineExceededError(absl::StrCat("the node was not ready within ",
                                                    options.query.timeout / kSecond, " s",
                                                    said.empty() ? "" : "; it said:\n", said));
  }
  return absl::AbortedError(said.empty() ? "the node ended before it was ready, and said nothing"
                                         : said);
}

// The state of a cluster whose head has ended, and which this start did not go on with; empty:
// none.
std::string StateLeftBehind(const NodeFlags& flags) {
  if (!flags.resume.empty() || !flags.join.empty()) return {};
  const absl::StatusOr<Settings> settings = LoadSettings();
  if (!settings.ok()) return {};
  const std::string& base = flags.directory.empty() ? settings->base_directory : flags.directory;
  for (const SessionInfo& session : SessionDirectory::List(base)) {
    if (session.has_database && !session.runs) return session.path;
  }
  return {};
}

// What another node is started with; of files this node's names, which may be others there.
std::string JoinLine(const ReadyLine& line, const NodeFlags& flags) {
  const absl::StatusOr<Settings> settings = LoadSettings();
  const auto either = [&](const std::string& flag, std::string Settings::* setting) {
    return flag.empty() && settings.ok() ? (*settings).*setting : flag;
  };
  std::string words = absl::StrCat("sheaf start --address=", ShellWord(line.address));
  for (const auto& [name, value] :
       {std::pair{" --tls-dir=", either(flags.tls_directory, &Settings::tls_directory)},
        {" --tls-peer-name=", either(flags.tls_peer_name, &Settings::tls_peer_name)},
        {" --token-file=", flags.token_file}}) {
    if (!value.empty()) absl::StrAppend(&words, name, ShellWord(value));
  }
  return words;
}

std::string Hints(const ReadyLine& line, const NodeFlags& flags, double milliseconds,
                  const std::string& left_behind) {
  char took[32];
  std::snprintf(took, sizeof(took), "%.0f ms", milliseconds);
  return absl::StrCat(
      "Sheaf ", std::string(kSheafVersion), " runs on this machine, ready after ", took, ".\n",
      "  Session:  ", Printable(line.session), "\n", "  Metrics:  ", Printable(line.metrics_url),
      "\n",
      line.dashboard_url.empty()
          ? ""
          : absl::StrCat("  Dashboard: ", Printable(line.dashboard_url), "\n"),
      "  Cluster:  ", Printable(line.address), "\n\n", "Next:\n",
      "  sheaf status         what the node has, and what is asked of it\n",
      "  sheaf list tasks     what runs and what waits; sheaf why ID says for what\n",
      "  sheaf stop           ends the node\n",
      "Another node joins with: ", Printable(JoinLine(line, flags)), "\n",
      "A program joins this node with SHEAF_ADDRESS=latest, or with the session directory in place "
      "of latest.\n",
      left_behind.empty()
          ? ""
          : absl::StrCat(
                "\nThis is a new cluster. The state of an earlier one is kept; to go on with "
                "that one instead:\n  sheaf stop --address ",
                Printable(ShellWord(line.session)),
                " && sheaf start --head --resume=", Printable(ShellWord(left_behind)), "\n"));
}

}  // namespace

std::vector<std::string> NodeFlags::Arguments() const {
  std::vector<std::string> out;
  const auto add = [&out](const char* flag, const std::string& value) {
    if (!value.empty()) out.push_back(absl::StrCat(flag, "=", value));
  };
  std::error_code ignored;
  const auto add_file = [&](const char* flag, const std::string& file) {
    add(flag, file.empty() ? "" : std::filesystem::absolute(file, ignored).string());
  };
  add_file("--dir", directory);
  add("--resume", resume.empty() || resume == kLatestSession
                      ? resume
                      : std::filesystem::absolute(resume, ignored).string());
  add("--num-cpus", cpus);
  add("--num-gpus", gpus);
  add("--resources", resources);
  add("--labels", labels);
  add("--memory", memory);
  add("--object-store-memory", store_memory);
  add("--metrics-address", metrics_address);
  add("--metrics-port", std::to_string(metrics_port));
  if (ray_metric_names) out.emplace_back("--metrics-ray-names");
  add("--include-dashboard", include_dashboard);
  add("--dashboard-host", dashboard_host);
  if (dashboard_port >= 0) add("--dashboard-port", std::to_string(dashboard_port));
  add_file("--dashboard-tls-cert", dashboard_tls_certificate);
  add_file("--dashboard-tls-key", dashboard_tls_key);
  if (dashboard_writable) out.emplace_back("--dashboard-writable");
  if (dashboard_read_only) out.emplace_back("--dashboard-read-only");
  add_file("--sd-file", targets_file);
  add_file("--metrics-token-file", metrics_token_file);
  add_file("--token-file", token_file);
  add_file("--tls-dir", tls_directory);
  add("--address", join);
  add("--host", host);
  add("--advertise-address", advertise);
  add("--unheard-limit", absl::StrCat(unheard_limit));
  add("--join-timeout", absl::StrCat(join_timeout));
  add("--gcs-lost-timeout", absl::StrCat(gcs_lost_timeout));
  add("--log-format", log_format);
  add("--keep-jobs", absl::StrCat(keep_jobs));
  if (port >= 0) add("--port", std::to_string(port));
  if (health_port >= 0) add("--health-port", std::to_string(health_port));
  add("--tls-peer-name", tls_peer_name);
  return out;
}

std::string ReadyLine::Text() const {
  return absl::StrCat("ready\t", session, "\t", metrics_url, "\t", address, "\t", node, "\t",
                      dashboard_url, "\n");
}

std::string ReadyLine::ForPeople() const {
  return absl::StrCat("node ", node, " of ", address, ", session ", session);
}

bool ReadyLine::Parse(const std::string& text, ReadyLine& out) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "ready\t") || !absl::ConsumeSuffix(&rest, "\n")) return false;
  const std::vector<std::string> parts = absl::StrSplit(rest, '\t');
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[3], &out.node)) return false;
  out.session = parts[0];
  out.metrics_url = parts[1];
  out.address = parts[2];
  out.dashboard_url = parts[4];
  return true;
}

int RunStart(const StartOptions& options) {
  if (options.head != options.node.join.empty()) {
    return Complain(absl::InvalidArgumentError(
        options.head ? "--head begins a cluster, --address HOST:PORT joins one: say one of them"
                     : "say --head to begin a cluster, or --address HOST:PORT to join one"));
  }
  const std::string left_behind = StateLeftBehind(options.node);
  const Nanos begin = MonotonicNow();
  const absl::StatusOr<Started> started = StartNode(options);
  if (!started.ok()) {
    Complain(started.status());
    return started.status().code() == absl::StatusCode::kDeadlineExceeded ? kTimedOut : kFailed;
  }
  const double milliseconds = static_cast<double>(MonotonicNow() - begin) / kMillisecond;
  std::fputs(started->words.c_str(), stderr);
  if (options.query.json) {
    std::printf("%s\n", JsonObject()
                            .Add("session", JsonString(started->line.session))
                            .Add("metrics_url", JsonString(started->line.metrics_url))
                            .Add("dashboard_url", JsonString(started->line.dashboard_url))
                            .Add("address", JsonString(started->line.address))
                            .Add("node", JsonNumber(int64_t{started->line.node}))
                            .Add("os_pid", JsonNumber(int64_t{started->os_pid}))
                            .Add("milliseconds", JsonNumber(milliseconds))
                            .Add("left_behind", left_behind.empty() ? std::string("null")
                                                                    : JsonString(left_behind))
                            .Done()
                            .c_str());
  } else {
    std::fputs(Hints(started->line, options.node, milliseconds, left_behind).c_str(), stdout);
  }
  return kDone;
}

}  // namespace sheaf::cli
