// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/signal_mask.h"
#include "base/status_macros.h"
#include "http/connection.h"

namespace sheaf::http {
namespace {

namespace net = boost::asio;
using net::ip::tcp;
using ErrorCode = boost::system::error_code;

std::string Bracketed(const net::ip::address& address) {
  return address.is_v6() ? absl::StrCat("[", address.to_string(), "]") : address.to_string();
}

absl::StatusOr<net::ip::address> AddressOf(const ServerOptions& options) {
  ErrorCode error;
  const net::ip::address address = net::ip::make_address(options.address, error);
  if (!error) return address;
  return absl::InvalidArgumentError(
      absl::StrCat("'", options.address, "': want a numeric IP address"));
}

absl::Status CheckTrust(const ServerOptions& options, const net::ip::address& address) {
  if (address.is_loopback()) return absl::OkStatus();
  if (options.token.empty() && options.tls.client_authority.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("serving on ", options.address,
                     ", beyond this machine, needs a token or certificates of "
                     "clients"));
  }
  if (options.access.trust != Trust::kTokenOnly) {
    return absl::InvalidArgumentError(
        absl::StrCat("serving on ", options.address, ", beyond this machine, is for tokens only"));
  }
  return absl::OkStatus();
}

absl::Status LoadTls(const TlsOptions& options, std::optional<net::ssl::context>& out) {
  if (options.certificate.empty()) return absl::OkStatus();
  net::ssl::context& context = out.emplace(net::ssl::context::tls_server);
  ErrorCode error;
  context.set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 |
                          net::ssl::context::no_tlsv1_1,
                      error);
  if (!error) context.use_certificate_chain(net::buffer(options.certificate), error);
  if (!error) context.use_private_key(net::buffer(options.key), net::ssl::context::pem, error);
  if (!error && !options.client_authority.empty()) {
    context.add_certificate_authority(net::buffer(options.client_authority), error);
    if (!error) context.set_verify_mode(net::ssl::verify_peer, error);  // Optional, still.
    SSL_CTX_set_session_cache_mode(context.native_handle(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_TICKET);
  }
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificates of the HTTP server cannot be read: ", error.message()));
  }
  return absl::OkStatus();
}

class BeastServer final : public Server {
 public:
  BeastServer(std::shared_ptr<ServerState> state, std::string shown_host)
      : state_(std::move(state)), shown_host_(std::move(shown_host)) {}

  ~BeastServer() override {
    if (!thread_.joinable()) return;
    net::post(state_->io, [this] { Stop(); });
    thread_.join();
  }

  absl::Status Listen(const net::ip::address& address) {
    ErrorCode error;
    if (state_->options.listener.valid()) {
      acceptor_.assign(address.is_v6() ? tcp::v6() : tcp::v4(), state_->options.listener.Release(),
                       error);
    } else {
      for (int i = 0; i < std::max(state_->options.ports, 1); ++i) {
        error = Bind({address, static_cast<uint16_t>(state_->options.port + i)});
        if (error != net::error::address_in_use) break;
      }
    }
    const tcp::endpoint bound = error ? tcp::endpoint() : acceptor_.local_endpoint(error);
    if (error) {
      return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", Bracketed(address), ":",
                                                 state_->options.port, ": ", error.message(),
                                                 "; give another port, or 0 for a free one"));
    }
    port_ = bound.port();
    return absl::OkStatus();
  }

  void Run() {
    state_->last_activity = state_->clock.Now();
    const AllSignalsBlocked blocked;
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), state_->options.thread_name.substr(0, 15).c_str());
      Accept();
      for (bool ended = false; !ended;) {
        try {
          state_->io.run();
          ended = true;
        } catch (const std::exception& failure) {
          Log(LogLevel::kError, "http: ", failure.what());
        }
      }
    });
  }

  uint16_t port() const override { return port_; }
  std::string url() const override {
    return absl::StrCat(state_->tls ? "https://" : "http://", shown_host_, ":", port_);
  }
  Nanos IdleFor() const override {
    return state_->answering > 0 ? 0 : state_->clock.Now() - state_->last_activity;
  }

 private:
  ErrorCode Bind(const tcp::endpoint& endpoint) {
    ErrorCode error;
    acceptor_.close(error);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(64, error);
    return error;
  }

  void Accept() {
    acceptor_.async_accept([this](ErrorCode error, tcp::socket socket) {
      if (error == net::error::operation_aborted || state_->stopped) return;
      if (error) return AcceptLater();  // No descriptor is free, for one.
      Welcome(std::move(socket));
      Accept();
    });
  }

  void AcceptLater() {
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this](ErrorCode error) {
      if (!error) Accept();
    });
  }

  // A peer that went without a word, such as a machine that sleeps, is given up: one that follows a
  // quiet log would be kept for ever.
  static void NoticeSilence(int socket) {
    const int on = 1, idle_s = 30, between_s = 10, probes = 3;
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    // No TCP_USER_TIMEOUT: it would also end who lives and does not read for a minute, as `less` does.
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  }

  void Welcome(tcp::socket socket) {
    ErrorCode error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // It has gone already.
    const Limits& limits = state_->options.limits;
    const auto same = state_->per_address.find(peer.address().to_string());
    const bool full = state_->connections.size() >= static_cast<size_t>(limits.connections) ||
                      (!peer.address().is_loopback() && same != state_->per_address.end() &&
                       same->second >= limits.connections_per_address);
    if (full) {
      if (state_->options.events.turned_away) state_->options.events.turned_away();
      return TurnAway(socket);
    }
    socket.set_option(tcp::no_delay(true), error);
    NoticeSilence(socket.native_handle());
    Serve(state_, std::move(socket));
  }

  void Stop() {
    state_->stopped = true;
    ErrorCode ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    // Some go while they are shut down.
    const std::vector<Connection*> all(state_->connections.begin(), state_->connections.end());
    for (Connection* connection : all) {
      if (state_->connections.contains(connection)) connection->Shutdown();
    }
  }

  const std::shared_ptr<ServerState> state_;
  const std::string shown_host_;
  tcp::acceptor acceptor_{state_->io};
  net::steady_timer retry_{state_->io};
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

absl::Status Server::Check(const ServerOptions& options) {
  SHEAF_ASSIGN_OR_RETURN(const net::ip::address address, AddressOf(options));
  SHEAF_RETURN_IF_ERROR(CheckTrust(options, address));
  std::optional<net::ssl::context> unused;
  return LoadTls(options.tls, unused);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options, Router router) {
  SHEAF_ASSIGN_OR_RETURN(const net::ip::address address, AddressOf(options));
  SHEAF_RETURN_IF_ERROR(CheckTrust(options, address));
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "[::1]", Bracketed(address)};
  if (!options.host_name.empty()) hosts.push_back(absl::AsciiStrToLower(options.host_name));
  // An address that names no machine is no help to who wants to call.
  std::string shown = address.is_unspecified() && !options.host_name.empty() ? options.host_name
                                                                             : Bracketed(address);
  auto state =
      std::make_shared<ServerState>(std::move(options), std::move(router), std::move(hosts));
  SHEAF_RETURN_IF_ERROR(LoadTls(state->options.tls, state->tls));
  if (state->options.login) state->authenticator.AddRoutes(state->router);
  auto server = std::make_unique<BeastServer>(std::move(state), std::move(shown));
  SHEAF_RETURN_IF_ERROR(server->Listen(address));
  server->Run();
  return server;
}

}  // namespace sheaf::http
