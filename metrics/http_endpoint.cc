// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/http_endpoint.h"

#include <arpa/inet.h>
#include <civetweb.h>

#include <chrono>
#include <future>
#include <locale>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/signal_mask.h"
#include "prometheus/text_serializer.h"

namespace sheaf::metrics {
namespace {

// "127.0.0.1:80" -> "127.0.0.1", "[::1]:80" -> "[::1]", lower case.
std::string HostOf(std::string_view host_and_port) {
  const size_t bracket = host_and_port.find(']');
  const size_t colon = host_and_port.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return absl::AsciiStrToLower(
      absl::string_view(host_and_port.data(), std::min(colon, host_and_port.size())));
}

// Takes the same time wherever they differ.
bool SameSecret(std::string_view given, std::string_view wanted) {
  if (given.size() != wanted.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < given.size(); ++i) difference |= given[i] ^ wanted[i];
  return difference == 0;
}

// kInvalidArgument: not numeric.
absl::StatusOr<bool> IsLoopback(const std::string& address) {
  in_addr v4;
  in6_addr v6;
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return absl::InvalidArgumentError(absl::StrCat("'", address, "': want a numeric IP address"));
}

class CivetEndpoint final : public HttpEndpoint {
 public:
  CivetEndpoint(const EndpointOptions& options, const prometheus::Collectable& source)
      : source_(source),
        token_(options.token),
        address_(options.address),
        host_name_(options.host_name),
        bracketed_(absl::StrContains(options.address, ":") ? absl::StrCat("[", options.address, "]")
                                                           : options.address) {
    hosts_ = {"localhost", "127.0.0.1", "[::1]", bracketed_};
    if (!options.host_name.empty()) hosts_.push_back(absl::AsciiStrToLower(options.host_name));
  }

  ~CivetEndpoint() override {
    if (context_ != nullptr) Stop();
    if (library_) mg_exit_library();
  }

  absl::Status Listen(uint16_t port) {
    const std::string where = absl::StrCat(bracketed_, ":", port);
    const char* options[] = {"listening_ports",
                             where.c_str(),
                             "num_threads",
                             "2",
                             "connection_queue",
                             "16",
                             "request_timeout_ms",
                             "5000",
                             "max_request_size",
                             "8192",
                             "enable_keep_alive",
                             "no",
                             nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = [](mg_connection* connection) {
      auto* self = static_cast<CivetEndpoint*>(mg_get_request_info(connection)->user_data);
      return self->Answer(connection);
    };
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // We say it.
    library_ = true;
    mg_init_library(MG_FEATURES_IPV6);

    char text[256] = "";
    mg_init_data init{};
    init.callbacks = &callbacks;
    init.user_data = this;
    init.configuration_options = options;
    mg_error_data error{};
    error.text = text;
    error.text_buffer_size = sizeof(text);
    {
      const AllSignalsBlocked blocked;
      context_ = mg_start2(&init, &error);
    }

    mg_server_port bound{};
    if (context_ == nullptr || mg_get_server_ports(context_, 1, &bound) < 1) {
      return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", where, ": ", text,
                                                 "; give another port, or 0 for a free one"));
    }
    port_ = static_cast<uint16_t>(bound.port);
    const bool all = address_ == "0.0.0.0" || address_ == "::";  // Names no machine.
    url_ = absl::StrCat("http://", all && !host_name_.empty() ? host_name_ : bracketed_, ":", port_,
                        "/metrics");
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

 private:
  // civetweb's listener looks at its stop flag every two seconds, or after a connection: make some.
  void Stop() {
    const std::future<void> stopped = std::async(std::launch::async, mg_stop, context_);
    while (stopped.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
      char error[128];
      mg_connection* poke = mg_connect_client(address_.c_str(), port_, 0, error, sizeof(error));
      if (poke != nullptr) mg_close_connection(poke);
    }
  }

  // Answers every request itself, so that civetweb's own file and script handlers are out of reach.
  // Returns the status.
  int Answer(mg_connection* connection) const {
    const mg_request_info& request = *mg_get_request_info(connection);
    const std::string_view method = request.request_method;
    if (!HostAllowed(connection))
      return Reply(connection, 403, "", "This Host is not served here.\n");
    if (method != "GET" && method != "HEAD") {
      return Reply(connection, 405, "Allow: GET, HEAD\r\n", "Only GET and HEAD.\n");
    }
    if (!TokenRight(connection)) {
      return Reply(connection, 401, "WWW-Authenticate: Bearer\r\n",
                   "The token is missing or wrong.\n");
    }
    if (std::string_view(request.local_uri) != "/metrics") {
      return Reply(connection, 404, "", "There is only /metrics here.\n");
    }
    std::ostringstream text;
    text.imbue(std::locale::classic());
    prometheus::TextSerializer().Serialize(text, source_.Collect());
    return Reply(connection, 200, "", text.str());
  }

  // A web page that reads the figures by DNS rebinding has no token, so who has it may call this
  // machine as he likes.
  bool HostAllowed(mg_connection* connection) const {
    if (!token_.empty()) return true;
    const char* host = mg_get_header(connection, "Host");
    if (host == nullptr || !Known(host)) return false;
    const char* origin = mg_get_header(connection, "Origin");  // Sent by web pages only.
    if (origin == nullptr) return true;
    const absl::string_view rest = absl::StripPrefix(origin, "http://");
    return Known(std::string_view(rest.data(), rest.size()));
  }

  bool Known(std::string_view host_and_port) const {
    const std::string host = HostOf(host_and_port);
    for (const std::string& known : hosts_) {
      if (host == known) return true;
    }
    return false;
  }

  bool TokenRight(mg_connection* connection) const {
    if (token_.empty()) return true;
    const char* header = mg_get_header(connection, "Authorization");
    absl::string_view given = header == nullptr ? "" : header;
    return absl::ConsumePrefix(&given, "Bearer ") &&
           SameSecret({given.data(), given.size()}, token_);
  }

  static int Reply(mg_connection* connection, int status, const char* headers,
                   std::string_view body) {
    const bool head = std::string_view(mg_get_request_info(connection)->request_method) == "HEAD";
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\n"
              "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
              "Content-Length: %zu\r\n"
              "Cache-Control: no-store\r\n"
              "X-Content-Type-Options: nosniff\r\n"
              "Connection: close\r\n%s\r\n",
              status, mg_get_response_code_text(connection, status), body.size(), headers);
    if (!head) mg_write(connection, body.data(), body.size());
    return status;
  }

  const prometheus::Collectable& source_;
  const std::string token_;
  const std::string address_;
  const std::string host_name_;
  const std::string bracketed_;
  std::vector<std::string> hosts_;
  bool library_ = false;
  mg_context* context_ = nullptr;
  uint16_t port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpEndpoint>> HttpEndpoint::Start(
    const EndpointOptions& options, const prometheus::Collectable& source) {
  const absl::StatusOr<bool> loopback = IsLoopback(options.address);
  if (!loopback.ok()) return loopback.status();
  if (!*loopback && options.token.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("serving metrics on ", options.address,
                     ", beyond this machine, needs a token (--metrics-token-file)"));
  }
  auto endpoint = std::make_unique<CivetEndpoint>(options, source);
  if (absl::Status listening = endpoint->Listen(options.port); !listening.ok()) return listening;
  return endpoint;
}

}  // namespace sheaf::metrics
