// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/dashboard/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text/whole_file.h"
#include "metrics/counter.h"
#include "raylet/host/last_lines.h"
#include "raylet/host/machine.h"
#include "raylet/host/spawn.h"
#include "rpc/listen_address.h"
#include "rpc/security/certificates.h"

namespace sheaf::cli {
namespace {

constexpr double kIdleSeconds = 15 * 60;
constexpr Nanos kFirstPause = kSecond;  // Before a process that crashed is replaced.
constexpr Nanos kLongestPause = 600 * kSecond;
constexpr Nanos kLongestRefusal = 30 * kSecond;  // Of those who look, in a pause.
constexpr Nanos kGoodLife = 60 * kSecond;        // Who crashes after that is replaced soon again.
constexpr Nanos kQueuedPause = 2 * kSecond;      // Who comes in a longer one is refused.
constexpr Nanos kStoppedLimit = 5 * kSecond;  // One that a signal stopped is replaced after that.
constexpr Nanos kLookPeriod = 250 * kMillisecond;  // At the process, while there is one.

// A socket that listens there; the errno of what failed.
absl::StatusOr<UniqueFd> ListenOn(const std::string& host, uint16_t port) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(sockaddr_in);
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    bytes = sizeof(sockaddr_in6);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--dashboard-host ", host, ": want a numeric IP address"));
  }
  UniqueFd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      ::listen(fd.get(), 64) != 0) {
    const int error = errno;
    return absl::UnavailableError(absl::StrCat("the dashboard cannot listen on ", host, " port ",
                                               port, ": ", std::strerror(error),
                                               "; give another with --dashboard-port"));
  }
  return fd;
}

DashboardFlags FlagsOf(const NodeFlags& node, const Settings& settings,
                       const std::string& session) {
  DashboardFlags flags;
  flags.query.address = session;
  flags.log_json = settings.log_json;
  if (!node.dashboard_host.empty()) flags.host = node.dashboard_host;
  if (node.dashboard_port >= 0) flags.port = static_cast<uint16_t>(node.dashboard_port);
  flags.token_file = node.token_file;
  if (flags.token_file.empty() && settings.token.empty() && settings.ray_auth_token.empty()) {
    flags.token_file = settings.token_file;
    const std::string own = settings.base_directory + "/token";
    std::error_code ignored;
    if (flags.token_file.empty() && std::filesystem::exists(own, ignored)) flags.token_file = own;
  }
  flags.tls_certificate = node.dashboard_tls_certificate;
  flags.tls_key = node.dashboard_tls_key;
  flags.writable = node.dashboard_writable;
  flags.read_only = node.dashboard_read_only;
  // What leaves the machine is hidden where the cluster hides what it says.
  const std::string& cluster =
      node.tls_directory.empty() ? settings.tls_directory : node.tls_directory;
  if (flags.tls_certificate.empty() && flags.tls_key.empty() && !cluster.empty() &&
      !flags.IsLocal()) {
    flags.tls_certificate = cluster + "/node.pem";
    flags.tls_key = cluster + "/node.key";
    flags.tls_client_authority = cluster + "/ca.pem";
  }
  return flags;
}

// By which others find this machine: as the node is announced to them, or its name.
std::string HostOf(const NodeFlags& node) {
  const absl::StatusOr<ListenAddress> announced = ParseListenAddress(node.advertise);
  for (const ListenAddress& address :
       {announced.value_or(ListenAddress()), ListenAddress{node.host}}) {
    const bool named = !address.host.empty() && !address.is_unspecified();
    if (named && !address.is_loopback()) return address.host;
  }
  return HostName();
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DashboardChild>> DashboardChild::Start(
    DashboardChildOptions options) {
  SHEAF_RETURN_IF_ERROR(ServerOptionsOf(options.flags).status());
  std::unique_ptr<DashboardChild> child(new DashboardChild(std::move(options)));
  SHEAF_RETURN_IF_ERROR(child->Listen());
  SHEAF_ASSIGN_OR_RETURN(child->metrics_fd_, MakeSegment("sheaf-http-metrics", kMetricsBytes));
  SHEAF_ASSIGN_OR_RETURN(
      child->page_, Mapping::Map(child->metrics_fd_.get(), 0, kMetricsBytes, Access::kReadWrite));
  SHEAF_ASSIGN_OR_RETURN(child->loop_, EventLoop::Start("sheaf-dashboard"));
  return child;
}

void DashboardChild::Serve() {
  loop_->Run([this] { Await(); });
}

absl::StatusOr<std::unique_ptr<DashboardChild>> DashboardChild::OfNode(const NodeFlags& flags,
                                                                       const Settings& settings,
                                                                       const std::string& session,
                                                                       bool by_default) {
  const bool wanted =
      flags.include_dashboard.empty() ? by_default : flags.include_dashboard == "true";
  if (!wanted) return nullptr;
  const bool asked_for = !flags.include_dashboard.empty() || !flags.dashboard_host.empty() ||
                         flags.dashboard_port >= 0 || !flags.dashboard_tls_certificate.empty();
  absl::StatusOr<std::unique_ptr<DashboardChild>> child =
      Start({FlagsOf(flags, settings, session), session + "/logs", HostOf(flags)});
  if (child.ok() || asked_for) return child;
  Log(LogLevel::kWarning, "no dashboard: ", child.status().message());
  return nullptr;
}

absl::Status DashboardChild::Listen() {
  const DashboardFlags& flags = options_.flags;
  const int tries = flags.port ? 1 : kDashboardPortsTried;
  absl::Status first;
  for (int i = 0; i < tries && !listener_.valid(); ++i) {
    absl::StatusOr<UniqueFd> fd =
        ListenOn(flags.host, static_cast<uint16_t>(flags.port.value_or(kDashboardPort) + i));
    if (fd.ok()) {
      listener_ = *std::move(fd);
    } else if (i == 0) {
      first = fd.status();
    }
  }
  if (!listener_.valid()) return first;
  ListenAddress shown{flags.host, PortOf(listener_.get())};
  if (shown.is_unspecified() && !options_.own_host.empty()) shown.host = options_.own_host;
  url_ = absl::StrCat(flags.tls_certificate.empty() ? "http" : "https", "://", shown.ToString());
  return absl::OkStatus();
}

void DashboardChild::Await() {
  const absl::Status watched =
      loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnConnection(); });
  if (!watched.ok()) Log(LogLevel::kError, "the dashboard's port: ", watched.ToString());
}

void DashboardChild::OnConnection() {
  if (pausing_ && MonotonicNow() < refuse_until_) return Refuse();
  Restart();
}

void DashboardChild::Restart() {
  pausing_ = false;
  if (stopping_ || pid_ != 0) return;
  if (const absl::Status begun = Begin(); !begun.ok()) Pause(begun.ToString());
}

// It has ended, or could not begin: the next one comes later.
void DashboardChild::Pause(const std::string& why) {
  const bool lived = began_ != 0 && MonotonicNow() - std::exchange(began_, 0) >= kGoodLife;
  pause_ = lived || pause_ == 0 ? kFirstPause : std::min(2 * pause_, kLongestPause);
  pausing_ = true;
  if (!std::exchange(failing_, true)) {
    Log(LogLevel::kWarning, "the dashboard has ended: ", why, "; it is started again in ",
        pause_ / kSecond, " s, and where that does not help later and later, until it works");
  }
  const Nanos now = MonotonicNow();
  refuse_until_ = now + std::min(pause_, kLongestRefusal);
  restart_at_ = now + pause_;
  loop_->Unwatch(listener_.get());  // Who comes waits,
  if (pause_ > kQueuedPause) Await();
  loop_->After(pause_, [this] {
    if (pausing_ && MonotonicNow() >= restart_at_) Restart();  // Else who looked began another one.
  });
}

// It answers, or lives.
void DashboardChild::NoteIfItWorks() {
  if (!failing_ || (Answers() == answers_ && MonotonicNow() - began_ < kGoodLife)) return;
  failing_ = false;
  Log(LogLevel::kInfo, "the dashboard works again");
}

uint64_t DashboardChild::Answers() {
  return metrics::Counter(page(), metrics::CounterId::kHttpSucceeded).value();
}

absl::Status DashboardChild::Begin() {
  const UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const UniqueFd words(open(WordsFile().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  DashboardFlags flags = options_.flags;
  flags.listener_fd = listener_.get();
  flags.metrics_fd = metrics_fd_.get();
  flags.idle_limit = kIdleSeconds;
  SpawnRequest request;
  request.executable_fd = program.get();
  request.argv = flags.Arguments();
  request.environ = OwnEnvironment();
  request.stdout_fd = words.get();
  request.stderr_fd = words.get();
  request.inherited_fds = {listener_.get(), metrics_fd_.get()};
  request.oom_score_adj = 1000;
  SHEAF_ASSIGN_OR_RETURN(const Spawned spawned, Spawn(request));
  pid_ = spawned.pid;
  began_ = MonotonicNow();
  answers_ = Answers();
  stopped_at_ = 0;
  loop_->Unwatch(listener_.get());  // The process takes the connection.
  loop_->After(kLookPeriod, [this] { LookAtChild(); });
  return absl::OkStatus();
}

void DashboardChild::PublishMetrics() {
  int64_t expires = 0;
  if (!options_.flags.tls_certificate.empty()) {
    const std::string pem = WholeFile(options_.flags.tls_certificate).value_or("");
    expires = ExpiryOf(pem).value_or(0);  // One that cannot be read is said where it is used.
  }
  metrics::Gauge(page(), metrics::GaugeId::kDashboardCertificateExpires).Set(expires);
}

void DashboardChild::LookAtChild() {
  if (pid_ == 0) return;
  NoteIfItWorks();
  int status = 0;
  const pid_t changed = waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED);
  if (changed != 0 && !WIFSTOPPED(status) && !WIFCONTINUED(status)) return OnEnd(status);
  if (changed != 0) stopped_at_ = WIFSTOPPED(status) ? MonotonicNow() : 0;
  if (stopped_at_ != 0 && MonotonicNow() - stopped_at_ >= kStoppedLimit) {
    Log(LogLevel::kWarning, "the dashboard (pid ", pid_.load(), ") has been stopped for ",
        kStoppedLimit / kSecond, " s, and answers nobody: it is killed");
    stopped_at_ = 0;
    kill(pid_, SIGKILL);
  }
  loop_->After(kLookPeriod, [this] { LookAtChild(); });
}

void DashboardChild::OnEnd(int status) {
  pid_ = 0;
  metrics::Gauge(page(), metrics::GaugeId::kHttpConnections).Set(0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Await();  // Nobody looked.
  Pause(WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                            : absl::StrCat("exit status ", WEXITSTATUS(status), ": ",
                                           absl::StrJoin(LastLines(WordsFile(), 1), "")));
}

// One connection that is there.
void DashboardChild::Refuse() {
  static constexpr std::string_view kAnswer =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 50\r\n"
      "Connection: close\r\n\r\nThe dashboard has ended too often; see its logs.\r\n";
  const UniqueFd connection(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) {
    (void)!::send(connection.get(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
  }
}

void DashboardChild::Stop() {
  if (loop_ == nullptr) return;
  loop_->Run([this] {
    stopping_ = true;
    loop_->Unwatch(listener_.get());
    const pid_t pid = pid_.exchange(0);
    if (pid == 0) return;
    kill(pid, SIGKILL);  // It holds nothing that is worth a wait.
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  });
  loop_->Stop();
  listener_.Reset();
}

}  // namespace sheaf::cli
