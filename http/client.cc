// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "http/host_lookup.h"

namespace sheaf::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr uint64_t kMostBytes = 64 << 20;

absl::Status StatusOf(const beast::error_code& error) {
  if (error == beast::error::timeout) return absl::DeadlineExceededError("no answer in time");
  return absl::UnavailableError(error.message());
}

// The steps of one question, one after the other.
class Exchange {
 public:
  Exchange(asio::io_context& context, asio::ssl::context* tls, const Url& url,
           const Question& question)
      : stream_(context), host_(url.host) {
    if (tls != nullptr) secure_.emplace(stream_, *tls);
    request_.version(11);
    request_.method_string(question.method);
    request_.target(url.target);
    const std::string shown = absl::StrCat(
        url.host.find(':') == std::string::npos ? url.host : absl::StrCat("[", url.host, "]"), ":",
        url.port);
    request_.set(beast::http::field::host, shown);
    request_.set(beast::http::field::connection, "close");
    for (const auto& [name, value] : question.headers) request_.set(name, value);
    request_.body() = question.body;
    if (!question.body.empty()) request_.prepare_payload();
    parser_.body_limit(kMostBytes);
  }

  void Begin(const std::vector<asio::ip::tcp::endpoint>& to, Nanos timeout) {
    stream_.expires_after(std::chrono::nanoseconds(timeout));
    stream_.async_connect(to, [this](beast::error_code error, const auto&) {
      if (Failed(error)) return;
      secure_ ? Shake() : Talk(stream_);
    });
  }

  absl::StatusOr<Answer> End() {
    if (error_) return StatusOf(error_);
    auto& response = parser_.get();
    return Answer{static_cast<int>(response.result_int()), std::move(response.body()),
                  std::string(response[beast::http::field::retry_after])};
  }

 private:
  bool Failed(beast::error_code error) {
    error_ = error;
    return static_cast<bool>(error);
  }

  // The certificate has to name the host; servers of several names are told which one is meant.
  void Shake() {
    secure_->set_verify_mode(asio::ssl::verify_peer);
    secure_->set_verify_callback(asio::ssl::host_name_verification(host_));
    beast::error_code is_name;
    asio::ip::make_address(host_, is_name);
    if (is_name) SSL_set_tlsext_host_name(secure_->native_handle(), host_.c_str());
    secure_->async_handshake(asio::ssl::stream_base::client, [this](beast::error_code error) {
      if (!Failed(error)) Talk(*secure_);
    });
  }

  template <class Stream>
  void Talk(Stream& stream) {
    beast::http::async_write(stream, request_, [this, &stream](beast::error_code error, size_t) {
      if (Failed(error)) return;
      beast::http::async_read(stream, buffer_, parser_,
                              [this](beast::error_code end, size_t) { error_ = end; });
    });
  }

  beast::tcp_stream stream_;
  const std::string host_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> secure_;
  beast::http::request<beast::http::string_body> request_;
  beast::flat_buffer buffer_;
  beast::http::response_parser<beast::http::string_body> parser_;
  // Until a step says how it went.
  beast::error_code error_ = asio::error::operation_aborted;
};

}  // namespace

bool Url::is_loopback() const {
  beast::error_code error;
  const auto address = asio::ip::make_address(host, error);
  return error ? host == "localhost" : address.is_loopback();
}

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  Url url;
  std::string_view rest = text;
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      "'", std::string(text), "': want http://HOST:PORT/PATH, or https://, an IPv6 address in []"));
  const size_t scheme = rest.find("://");
  if (scheme == std::string_view::npos) return bad;
  const std::string_view name = rest.substr(0, scheme);
  if (name != "http" && name != "https") return bad;
  url.tls = name == "https";
  rest.remove_prefix(scheme + 3);
  const size_t path = std::min(rest.find_first_of("/?"), rest.size());
  url.target = std::string(rest.substr(path));
  if (url.target.empty() || url.target[0] != '/') url.target.insert(0, "/");
  std::string_view host = rest.substr(0, path);
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  uint32_t port = url.tls ? 443 : 80;
  if (colon != std::string_view::npos) {
    const std::string digits(host.substr(colon + 1));
    if (!absl::SimpleAtoi(digits, &port) || port == 0 || port > 65535) return bad;
    host = host.substr(0, colon);
  }
  if (bracket != std::string_view::npos) {
    beast::error_code error;
    if (host.front() != '[' || host.back() != ']') return bad;
    host = host.substr(1, host.size() - 2);
    asio::ip::make_address_v6(std::string(host), error);
    if (error) return bad;
  }
  const auto has_no_place = [](char c) { return c <= ' ' || c == '@' || c == '\x7f'; };
  if (host.empty() || std::any_of(host.begin(), host.end(), has_no_place) ||
      std::any_of(url.target.begin(), url.target.end(), [](char c) { return c <= ' '; }))
    return bad;
  url.host = std::string(host);
  url.port = static_cast<uint16_t>(port);
  return url;
}

class Client::Parts {
 public:
  explicit Parts(Url url) : url_(std::move(url)) {}

  absl::Status Load(const std::string& authorities) {
    if (!url_.tls) return absl::OkStatus();
    tls_.emplace(asio::ssl::context::tls_client);
    beast::error_code error;
    authorities.empty() ? tls_->set_default_verify_paths(error)
                        : tls_->load_verify_file(authorities, error);
    if (!error) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("certificates of '", authorities, "': ", error.message()));
  }

  absl::StatusOr<Answer> Ask(const Question& question, Nanos timeout) {
    const Nanos deadline = Deadline(MonotonicNow(), timeout);
    SHEAF_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                           lookup_.AddressesOf(url_.host, deadline));
    std::vector<asio::ip::tcp::endpoint> to;
    for (const std::string& address : addresses)
      to.emplace_back(asio::ip::make_address(address), url_.port);
    Exchange exchange(context_, tls_ ? &*tls_ : nullptr, url_, question);
    exchange.Begin(to, std::max<Nanos>(deadline - MonotonicNow(), kMillisecond));
    {
      const MutexLock lock(mutex_);
      if (cancelled_) return absl::CancelledError("the question was given up");
      context_.restart();
    }
    context_.run();
    const MutexLock lock(mutex_);
    if (cancelled_) return absl::CancelledError("the question was given up");
    return exchange.End();
  }

  void Cancel() {
    lookup_.Cancel();
    const MutexLock lock(mutex_);
    cancelled_ = true;
    context_.stop();
  }

 private:
  const Url url_;
  std::optional<asio::ssl::context> tls_;
  HostLookup lookup_;
  asio::io_context context_{1};
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

Client::Client(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Make(Url url, const std::string& authorities) {
  auto parts = std::make_unique<Parts>(std::move(url));
  SHEAF_RETURN_IF_ERROR(parts->Load(authorities));
  return std::unique_ptr<Client>(new Client(std::move(parts)));
}

absl::StatusOr<Answer> Client::Ask(const Question& question, Nanos timeout) {
  return parts_->Ask(question, timeout);
}

void Client::Cancel() { parts_->Cancel(); }

}  // namespace sheaf::http
