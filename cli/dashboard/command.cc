// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/dashboard/command.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/log.h"
#include "base/session_directory.h"
#include "base/status_macros.h"
#include "base/text/whole_file.h"
#include "cli/dashboard/asker.h"
#include "dashboard/dashboard.h"
#include "metrics/http_metrics.h"
#include "rpc/security/credentials.h"
#include "rpc/security/hmac.h"
#include "shm/process_segment.h"
#include "shm/segment.h"

namespace sheaf::cli {
namespace {

constexpr rlim_t kMaxData = rlim_t{256} << 20;
constexpr size_t kThreadStack = 512 * 1024;

// A dashboard that is asked too much ends by itself, and takes no memory from what works. The
// stacks of threads count, too.
void BoundMemory() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kThreadStack);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  const rlimit limit{kMaxData, kMaxData};
  setrlimit(RLIMIT_DATA, &limit);
}

sigset_t BlockEnds() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return ends;
}

// Where this process counts: a page of the node that started it, or one that nobody reads.
absl::StatusOr<Mapping> MetricsPage(const DashboardFlags& flags) {
  if (flags.metrics_fd >= 0) {
    const UniqueFd of_node(flags.metrics_fd);
    return Mapping::Map(of_node.get(), 0, kMetricsBytes, Access::kReadWrite);
  }
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd own, MakeSegment("sheaf-http-metrics", kMetricsBytes));
  return Mapping::Map(own.get(), 0, kMetricsBytes, Access::kReadWrite);
}

// `page` outlives the dashboard.
absl::StatusOr<std::unique_ptr<dashboard::Dashboard>> Start(const DashboardFlags& flags,
                                                            const RunningNode& node,
                                                            metrics::Page& page) {
  dashboard::DashboardOptions options;
  options.ask = AskerOf(node.session);
  options.session = node.session;
  options.node = NumberOf(node);
  SHEAF_ASSIGN_OR_RETURN(options.server, ServerOptionsOf(flags));
  options.server.listener = UniqueFd(flags.listener_fd);
  options.server.spool_directory = node.session;
  options.server.events = metrics::HttpEventsOn(page);
  return dashboard::Dashboard::Start(std::move(options));
}

absl::StatusOr<std::string> TextOf(const std::string& path) {
  if (path.empty()) return "";
  std::optional<std::string> text = WholeFile(path);
  if (text && !text->empty()) return *std::move(text);
  return absl::NotFoundError(absl::StrCat("the dashboard's TLS: ", path, " cannot be read"));
}

// Tells, look by look, whether other certificates lie in the place of those from before, and have
// for one look: they are written one by one.
class CertificateWatch {
 public:
  explicit CertificateWatch(const DashboardFlags& flags)
      : paths_{flags.tls_certificate, flags.tls_key, flags.tls_client_authority} {}

  bool Replaced() {
    const std::vector<std::filesystem::file_time_type> now = Times();
    const bool settled = now == last_;
    last_ = now;
    return settled && now != first_;
  }

 private:
  std::vector<std::filesystem::file_time_type> Times() const {
    std::vector<std::filesystem::file_time_type> times;
    std::error_code missing;
    for (const std::string& path : paths_) {
      times.push_back(path.empty() ? std::filesystem::file_time_type()
                                   : std::filesystem::last_write_time(path, missing));
    }
    return times;
  }

  const std::vector<std::string> paths_;
  const std::vector<std::filesystem::file_time_type> first_ = Times();
  std::vector<std::filesystem::file_time_type> last_ = first_;
};

// Of all dashboards with that token since the machine began to run, which is what they count the time
// of logins from: a browser stays logged in when its dashboard ends, as it does where nobody looks.
std::string SessionKey(const std::string& token) {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, boot);
  const Digest hmac = HmacSha256(token, {"sheaf http sessions 1 ", boot});
  return std::string(AsView(hmac));
}

// Of a file or a port that is not to be had: a node, if one is wanted, is there.
int ComplainOfOther(const absl::Status& status) {
  const int code = Complain(status);
  return code == kNoNode ? kFailed : code;
}

}  // namespace

absl::StatusOr<http::ServerOptions> ServerOptionsOf(const DashboardFlags& flags) {
  if (flags.tls_certificate.empty() != flags.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "the dashboard's TLS: a certificate and its key belong together; give both or none");
  }
  http::ServerOptions server;
  server.address = flags.host;
  server.port = flags.port.value_or(kDashboardPort);
  server.ports = flags.port ? 1 : kDashboardPortsTried;
  SHEAF_ASSIGN_OR_RETURN(server.token, HttpToken(flags.token_file));
  if (!server.token.empty()) server.session_key = SessionKey(server.token);
  SHEAF_ASSIGN_OR_RETURN(server.tls.certificate, TextOf(flags.tls_certificate));
  SHEAF_ASSIGN_OR_RETURN(server.tls.key, TextOf(flags.tls_key));
  SHEAF_ASSIGN_OR_RETURN(server.tls.client_authority, TextOf(flags.tls_client_authority));
  server.access = {.trust = flags.IsLocal() ? http::Trust::kSameUser : http::Trust::kTokenOnly,
                   .read_only = flags.read_only,
                   .writable_pages = flags.writable};
  SHEAF_RETURN_IF_ERROR(http::Server::Check(server));
  return server;
}

std::vector<std::string> DashboardFlags::Arguments() const {
  std::vector<std::string> words = {"sheaf",       "dashboard", "--address",
                                    query.address, "--host",    host};
  const auto add = [&words](const char* name, const std::string& value) {
    words.emplace_back(name);
    words.push_back(value);
  };
  if (port) add("--port", std::to_string(*port));
  for (const auto& [name, file] : {std::pair{"--token-file", &token_file},
                                   {"--tls-cert", &tls_certificate},
                                   {"--tls-key", &tls_key},
                                   {"--tls-client-ca", &tls_client_authority}}) {
    if (!file->empty()) add(name, *file);
  }
  if (read_only) words.emplace_back("--read-only");
  if (writable) words.emplace_back("--writable");
  if (listener_fd >= 0) add("--listener-fd", std::to_string(listener_fd));
  if (metrics_fd >= 0) add("--metrics-fd", std::to_string(metrics_fd));
  if (idle_limit > 0) add("--idle-limit", absl::StrCat(idle_limit));
  if (log_json) words.emplace_back("--log-json");
  return words;
}

absl::StatusOr<std::string> HttpToken(const std::string& given) {
  SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
  // Clients have it, and send it as it is.
  if (given.empty() && !settings.ray_auth_token.empty()) return settings.ray_auth_token;
  absl::StatusOr<std::string> token;
  if (given.empty() && !settings.token.empty()) {
    token = ParseToken(settings.token);
  } else {
    std::string file = given.empty() ? settings.token_file : given;
    if (file.empty()) file = settings.base_directory + "/token";
    token = LoadToken(file);
    if (absl::IsNotFound(token.status()) && given.empty()) return "";
  }
  if (!token.ok()) return token.status();
  const Digest hmac = HmacSha256(*token, {"sheaf http 1"});
  const std::string_view digest = AsView(hmac);
  return absl::BytesToHexString(absl::string_view(digest.data(), digest.size()));
}

int RunToken(const std::string& file) {
  const absl::StatusOr<std::string> token = HttpToken(file);
  if (!token.ok()) return ComplainOfOther(token.status());
  if (token->empty()) {
    return Complain(absl::FailedPreconditionError(
        "there is no token here: sheaf start --head makes one; name another with --token-file"));
  }
  std::printf("%s\n", token->c_str());
  return kDone;
}

int RunDashboard(const DashboardFlags& flags) {
  if (flags.listener_fd >= 0) prctl(PR_SET_PDEATHSIG, SIGKILL);  // Its node holds the port.
  BoundMemory();
  const sigset_t ends = BlockEnds();
  if (flags.log_json) {
    LogOptions words;
    words.level = LogLevel::kWarning;
    words.json_dataset = "sheaf.dashboard";
    const absl::Status log = StartLog(words);
    if (!log.ok()) return Complain(log);
  }
  const absl::StatusOr<RunningNode> node = FindNode(flags.query);
  if (!node.ok()) return Complain(node.status());
  const absl::StatusOr<Mapping> page = MetricsPage(flags);
  if (!page.ok()) return Complain(page.status());
  const absl::StatusOr<std::unique_ptr<dashboard::Dashboard>> dashboard =
      Start(flags, *node, *reinterpret_cast<metrics::Page*>(page->data()));
  if (!dashboard.ok()) return ComplainOfOther(dashboard.status());
  std::printf("Dashboard of %s: %s\n", node->session.c_str(), (*dashboard)->url().c_str());
  std::fflush(stdout);
  const auto idle_limit = static_cast<Nanos>(flags.idle_limit * kSecond);
  CertificateWatch certificates(flags);
  const timespec second{1, 0};
  while (sigtimedwait(&ends, nullptr, &second) < 0) {
    std::error_code ignored;
    if (!std::filesystem::exists(node->session + "/" + kRayletSocketName, ignored)) return kNoNode;
    if (idle_limit > 0 && (*dashboard)->IdleFor() > idle_limit) break;
    if (flags.listener_fd >= 0 && certificates.Replaced()) break;
  }
  return kDone;
}

}  // namespace sheaf::cli
