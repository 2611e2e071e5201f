// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/get.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sheaf::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr uint64_t kMostBytes = 64 << 20;

// The steps of one request, one after the other.
class Question {
 public:
  Question(asio::io_context& context, asio::ip::tcp::endpoint to, const std::string& host,
           const std::string& path)
      : stream_(context), to_(std::move(to)) {
    request_.version(11);
    request_.method(beast::http::verb::get);
    request_.target(path);
    request_.set(beast::http::field::host, host);
    request_.set(beast::http::field::connection, "close");
    parser_.body_limit(kMostBytes);
  }
  void Begin(Nanos timeout) {
    stream_.expires_after(std::chrono::nanoseconds(timeout));
    stream_.async_connect(to_, [this](beast::error_code error) {
      if (Failed(error)) return;
      beast::http::async_write(stream_, request_, [this](beast::error_code failure, size_t) {
        if (Failed(failure)) return;
        beast::http::async_read(stream_, buffer_, parser_,
                                [this](beast::error_code end, size_t) { error_ = end; });
      });
    });
  }
  absl::StatusOr<std::string> Answer() {
    if (error_ == beast::error::timeout) return absl::DeadlineExceededError("no answer in time");
    if (error_) return absl::UnavailableError(error_.message());
    if (parser_.get().result_int() != 200) {
      return absl::UnavailableError(absl::StrCat("it answers ", parser_.get().result_int(), ": ",
                                                 parser_.get().body().substr(0, 200)));
    }
    return std::move(parser_.get().body());
  }

 private:
  bool Failed(beast::error_code error) {
    error_ = error;
    return static_cast<bool>(error);
  }

  beast::tcp_stream stream_;
  const asio::ip::tcp::endpoint to_;
  beast::http::request<beast::http::empty_body> request_;
  beast::flat_buffer buffer_;
  beast::http::response_parser<beast::http::string_body> parser_;
  beast::error_code error_;
};

}  // namespace

absl::StatusOr<std::string> Get(const std::string& url, Nanos timeout) {
  absl::string_view rest = url;
  const bool plain = absl::ConsumePrefix(&rest, "http://");
  const size_t slash = std::min(rest.find('/'), rest.size());
  const absl::string_view host = rest.substr(0, slash);
  const size_t colon = host.rfind(':');
  uint32_t port = 0;
  beast::error_code error;
  const auto address = asio::ip::make_address(
      std::string(absl::StripSuffix(
          absl::StripPrefix(host.substr(0, std::min(colon, host.size())), "["), "]")),
      error);
  if (!plain || error || colon == absl::string_view::npos ||
      !absl::SimpleAtoi(host.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", url, "': want http://ADDRESS:PORT/PATH with a numeric address"));
  }
  asio::io_context context(1);
  Question question(context, {address, static_cast<uint16_t>(port)}, std::string(host),
                    slash == rest.size() ? "/" : std::string(rest.substr(slash)));
  question.Begin(timeout);
  context.run();
  return question.Answer();
}

}  // namespace sheaf::http
