// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "http/peer_user.h"
#include "http/pending_reply.h"
#include "http/spool.h"
#include "http/target.h"
#include "http/web_socket.h"

namespace sheaf::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;
using Tcp = net::ip::tcp;

constexpr size_t kReadBytes = 4096;
constexpr size_t kBodyPart = 64 * 1024;
constexpr uint64_t kDroppedBody = 4096;       // A route without a body takes this much of one.
constexpr size_t kLingerBytes = 1024 * 1024;  // Read and dropped, so that the answer arrives.
constexpr Nanos kLingerTime = 2 * kSecond;

// A page of ours loads nothing from elsewhere, and is loaded by nobody else's.
constexpr std::pair<const char*, const char*> kSafety[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     "connect-src 'self'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"}};

template <class Transport>
class HttpConnection final : public Connection,
                             public std::enable_shared_from_this<HttpConnection<Transport>> {
 public:
  HttpConnection(std::shared_ptr<ServerState> state, std::string address,
                 std::unique_ptr<Transport> transport)
      : Connection(std::move(state), std::move(address)),
        transport_(std::move(transport)),
        timer_(state_->io) {}

  void Begin() {
    if constexpr (std::is_same_v<Transport, TlsTransport>) {
      SetDeadline(limits().header_time);
      transport_->async_handshake(net::ssl::stream_base::server, [self = Self()](ErrorCode error) {
        if (error) return self->Shutdown();
        self->secure_ = true;
        self->certified_ = SSL_get0_peer_certificate(self->transport_->native_handle()) != nullptr;
        self->AwaitRequest(self->limits().header_time);
      });
    } else {
      AwaitRequest(limits().header_time);
    }
  }

  // The answer of the handler.
  void Deliver(Response response) {
    const auto self = Answered();
    if (self == nullptr) return;
    BeginAnswer(response);
    head_->body() = std::move(response.body);
    head_->prepare_payload();
    head_->keep_alive(keep_alive_);
    serializer_.emplace(*head_);
    SetDeadline(limits().stall_time + Seconds(head_->body().size()));
    const auto done = [self](ErrorCode error, size_t) {
      if (error) return self->Shutdown();
      self->state_->last_activity = self->state_->clock.Now();
      self->keep_alive_ ? self->AwaitRequest(self->limits().idle_time) : self->Linger();
    };
    if (head_only_) {
      beast::http::async_write_header(*transport_, *serializer_, done);
    } else {
      beast::http::async_write(*transport_, *serializer_, done);
    }
  }

  // The handler has begun an answer that goes on.
  void BeginStream(Response head, std::shared_ptr<StreamQueue> queue,
                   std::weak_ptr<Connection>& sender) {
    if (state_->streams >= limits().streams) {
      queue->Abandon();
      return Deliver(PlainText(
          429,
          "Too many answers that go on are open already: close pages, or logs that are followed."));
    }
    if (head_only_) {
      queue->Abandon();
      return Deliver(std::move(head));
    }
    const auto self = Answered();
    if (self == nullptr) return queue->Abandon();
    timer_.cancel();
    if (web_socket_) {
      Tell(101);
      return ServeWebSocket(state_, address_, std::move(transport_), parser_->get(),
                            std::move(queue), sender);
    }
    stream_ = std::move(queue);
    permit_.emplace(state_);
    keep_alive_ = false;  // The end of the connection is seen by a read that waits meanwhile.
    BeginAnswer(head);
    head_->chunked(version_ >= 11);
    head_->keep_alive(false);
    serializer_.emplace(*head_);
    writing_ = true;
    beast::http::async_write_header(*transport_, *serializer_, Wrote());
    WatchForEnd();
  }

  void Pump() override {
    if (stream_ == nullptr || writing_) return;
    StreamQueue::Next next = stream_->Take();
    if (next.bytes) {
      part_ = *std::move(next.bytes);
      writing_ = true;  // No deadline: a viewer may look at what it has for as long as it likes.
      if (version_ < 11) return net::async_write(*transport_, net::buffer(part_), Wrote());
      return net::async_write(*transport_, beast::http::make_chunk(net::buffer(part_)), Wrote());
    }
    if (!next.end) return;
    if (next.end->code != 1000 || version_ < 11) return Shutdown();
    stream_.reset();
    writing_ = true;
    net::async_write(
        *transport_, beast::http::make_chunk_last(),
        [self = Self()](ErrorCode error, size_t) { error ? self->Shutdown() : self->Linger(); });
  }

  void Shutdown() override {
    const auto self = Answered();
    if (stream_ != nullptr) stream_->Abandon();
    stream_.reset();
    permit_.reset();
    timer_.cancel();
    if (transport_ == nullptr) return;
    ErrorCode ignored;
    SocketOf(*transport_).close(ignored);
  }

 private:
  std::shared_ptr<HttpConnection> Self() { return this->shared_from_this(); }
  const Limits& limits() const { return state_->options.limits; }
  Nanos Seconds(uint64_t bytes) const {
    return static_cast<Nanos>(bytes / limits().bytes_per_second) * kSecond;
  }

  // What waits meanwhile is cancelled `after` from now, unless another deadline is set before.
  void SetDeadline(Nanos after) {
    timed_out_ = false;
    timer_.expires_after(std::chrono::nanoseconds(after));
    timer_.async_wait([weak = this->weak_from_this()](ErrorCode error) {
      const auto self = weak.lock();
      if (error || self == nullptr || self->transport_ == nullptr) return;
      self->timed_out_ = true;
      ErrorCode ignored;
      SocketOf(*self->transport_).cancel(ignored);
    });
  }

  void AwaitRequest(Nanos patience) {
    if (buffer_.size() > 0) return ReadHeader();
    SetDeadline(patience);
    transport_->async_read_some(buffer_.prepare(kReadBytes),
                                [self = Self()](ErrorCode error, size_t bytes) {
                                  self->buffer_.commit(bytes);
                                  error ? self->Shutdown() : self->ReadHeader();
                                });
  }

  void ReadHeader() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits().header_bytes));
    parser_->body_limit(boost::none);  // The route has a limit, which is looked at below.
    SetDeadline(limits().header_time);
    beast::http::async_read_header(
        *transport_, buffer_, *parser_,
        [self = Self()](ErrorCode error, size_t) { self->OnHeader(error); });
  }

  void OnHeader(ErrorCode error) {
    asked_at_ = state_->clock.Now();
    route_ = nullptr;
    request_ = {};
    version_ = 11;
    head_only_ = keep_alive_ = web_socket_ = false;
    if (timed_out_) return Refuse(408, "The request's header did not come to its end.");
    if (error == beast::http::error::header_limit) {
      return Refuse(431,
                    absl::StrCat("The header is longer than ", limits().header_bytes, " bytes."));
    }
    if (error == beast::http::error::end_of_stream ||
        (error && error.category() !=
                      beast::http::make_error_code(beast::http::error::end_of_stream).category())) {
      return Shutdown();
    }
    if (error) return Refuse(400, absl::StrCat("This is no HTTP request: ", error.message(), "."));
    TakeRequest();
  }

  void TakeRequest() {
    const auto& message = parser_->get();
    version_ = message.version();
    keep_alive_ = message.keep_alive() && limits().idle_time > 0;
    const auto method = message.method_string();
    request_.method = std::string(method.data(), method.size());
    head_only_ = request_.method == "HEAD";
    for (const auto& field : message) {
      const auto name = field.name_string(), value = field.value();
      request_.headers.emplace_back(
          absl::AsciiStrToLower(absl::string_view(name.data(), name.size())),
          std::string(value.data(), value.size()));
    }
    request_.secure = secure_;
    request_.peer = address_;
    web_socket_ = beast::websocket::is_upgrade(message);
    if (message.count(beast::http::field::host) > 1) return Refuse(400, "There are two Hosts.");
    const auto text = message.target();
    absl::StatusOr<Target> target = ParseTarget({text.data(), text.size()});
    if (!target.ok()) {
      return Refuse(target.status().code() == absl::StatusCode::kOutOfRange ? 414 : 400,
                    absl::StrCat("Not so: ", target.status().message(), "."));
    }
    request_.path = std::move(target->path);
    request_.query = std::move(target->query);
    Router::Match match = state_->router.Find(request_.method, target->segments);
    request_.captures = std::move(match.captures);
    if (const Verdict verdict = JudgeCaller(match.route); !verdict.allowed()) {
      return Refuse(verdict.status, verdict.words);
    }
    if (match.route == nullptr) return RefuseUnrouted(match.allow);
    route_ = match.route;
    if (route_->web_socket && !web_socket_) {
      return Refuse(400, "This is a WebSocket: ask for an upgrade.");
    }
    web_socket_ = route_->web_socket;
    BeginBody();
  }

  Verdict JudgeCaller(const Route* route) {
    const Right right = route == nullptr ? Right::kRead : route->right;
    if (right != Right::kOpen && state_->authenticator.Blocked(request_)) {
      return {429, kTooManyWrong};
    }
    Caller caller = state_->authenticator.Identify(request_, web_socket_, certified_);
    request_.browser = caller.browser || caller.credential == Credential::kCookie;
    const AccessRules& rules = state_->options.access;
    if (right != Right::kOpen && rules.trust == Trust::kSameUser)
      caller.trusted_user = TrustedUser();
    return Judge(rules, right, caller);
  }

  // Asked once a connection: a socket keeps its user.
  bool TrustedUser() {
    if (trusted_user_) return *trusted_user_;
    sockaddr_storage peer{}, own{};
    socklen_t peer_bytes = sizeof(peer), own_bytes = sizeof(own);
    const int fd = SocketOf(*transport_).native_handle();
    std::optional<uint32_t> user;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0) {
      user = UserOfPeer(peer, own);
    }
    trusted_user_ = user && (*user == 0 || *user == geteuid());
    return *trusted_user_;
  }

  void RefuseUnrouted(const std::string& allow) {
    if (allow.empty()) return Refuse(404, "Nothing is served at this path.");
    Response response = PlainText(405, absl::StrCat("Only ", allow, "."));
    response.headers.emplace_back("Allow", allow);
    Refuse(std::move(response));
  }

  void Refuse(int status, std::string_view sentence) {
    Response response = PlainText(status, sentence);
    if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    Refuse(std::move(response));
  }

  void Refuse(Response response) {
    // What has not been read of this request would be taken for the next one.
    keep_alive_ = keep_alive_ && parser_->is_done();
    spool_.End();
    request_.body_file.reset();
    Await();
    Deliver(std::move(response));
  }

  uint64_t BodyLimit() const {
    switch (route_->body) {
      case Body::kNone:
        return kDroppedBody;
      case Body::kMemory:
        return std::min<uint64_t>(limits().body_bytes, route_->most_body_bytes);
      case Body::kFile:
        return std::min(limits().file_bytes, route_->most_body_bytes);
    }
    return 0;
  }

  void RefuseBody() {
    Refuse(413, absl::StrCat("The body is longer than ", BodyLimit(), " bytes."));
  }

  void BeginBody() {
    if (parser_->content_length().value_or(0) > BodyLimit()) return RefuseBody();
    if (route_->body == Body::kFile) {
      request_.body_file = spool_.Begin(state_->options.spool_directory);
      if (request_.body_file == nullptr) return Refuse(507, "The server has no room for files.");
    }
    if (parser_->is_done()) return Handle();
    body_begun_ = state_->clock.Now();
    part_.resize(kBodyPart);
    const auto expect = parser_->get()[beast::http::field::expect];
    if (!beast::iequals(expect, "100-continue")) return ReadBody();
    static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    net::async_write(*transport_, net::buffer(kGoOn), [self = Self()](ErrorCode error, size_t) {
      error ? self->Shutdown() : self->ReadBody();
    });
  }

  void ReadBody() {
    auto& body = parser_->get().body();
    body.data = part_.data();
    body.size = part_.size();
    const Nanos spent = state_->clock.Now() - body_begun_;
    const Nanos earned = limits().stall_time + Seconds(request_.body_bytes);
    SetDeadline(std::clamp<Nanos>(earned - spent, 0, limits().stall_time));
    beast::http::async_read_some(*transport_, buffer_, *parser_,
                                 [self = Self()](ErrorCode error, size_t) { self->OnBody(error); });
  }

  void OnBody(ErrorCode error) {
    if (timed_out_) return Refuse(408, "The request's body comes too slowly.");
    if (error == beast::http::error::need_buffer) error = {};
    if (error) return Refuse(400, absl::StrCat("The body breaks off: ", error.message(), "."));
    const size_t bytes = part_.size() - parser_->get().body().size;
    request_.body_bytes += bytes;
    if (request_.body_bytes > BodyLimit()) return RefuseBody();
    if (route_->body == Body::kMemory) request_.body.append(part_, 0, bytes);
    if (route_->body == Body::kFile && !spool_.Write({part_.data(), bytes})) {
      return Refuse(507, absl::StrCat("The server's disk: ", strerror(errno), "."));
    }
    parser_->is_done() ? Handle() : ReadBody();
  }

  void Handle() {
    spool_.End();
    timer_.cancel();
    Await();
    const auto exchange =
        std::make_shared<PendingReply<HttpConnection>>(state_, this->weak_from_this());
    try {
      route_->handler(std::move(request_), Reply(exchange));
    } catch (const std::exception& failure) {
      Log(LogLevel::kError, "http: ", route_->method, " ", route_->pattern, ": ", failure.what());
      exchange->Send(PlainText(500, "The server has failed at this; its log says how."));
    }
  }

  // From here to Answered the connection lives by its answer that comes.
  void Await() {
    awaiting_ = Self();
    ++state_->answering;
  }
  // What Await kept, which may be the last owner; nullptr: nobody waits for an answer any more.
  std::shared_ptr<HttpConnection> Answered() {
    if (awaiting_ == nullptr) return nullptr;
    --state_->answering;
    state_->last_activity = state_->clock.Now();
    return std::move(awaiting_);
  }

  void Tell(int status) const {
    const ServerEvents& events = state_->options.events;
    if (events.answered) events.answered(status, state_->clock.Now() - asked_at_);
  }

  void BeginAnswer(const Response& response) {
    Tell(response.status);
    head_.emplace(static_cast<beast::http::status>(response.status), version_);
    head_->set("Content-Type", response.content_type);
    head_->set("Cache-Control", "no-store");
    for (const auto& [name, value] : kSafety) head_->set(name, value);
    for (const auto& [name, value] : response.headers) head_->set(name, value);
  }

  auto Wrote() {
    return [self = Self()](ErrorCode error, size_t) {
      self->writing_ = false;
      error ? self->Shutdown() : self->Pump();
    };
  }

  // A viewer that goes, or asks something else meanwhile, ends the stream.
  void WatchForEnd() {
    transport_->async_read_some(net::buffer(&watched_, 1), [self = Self()](ErrorCode, size_t) {
      if (self->stream_ != nullptr) self->Shutdown();
    });
  }

  // Reads what still comes before it closes: a close with unread bytes would take the answer away
  // from who has not read it yet.
  void Linger() {
    ErrorCode ignored;
    SocketOf(*transport_).shutdown(Tcp::socket::shutdown_send, ignored);
    SetDeadline(kLingerTime);
    part_.resize(kBodyPart);
    Drain(0);
  }

  void Drain(size_t drained) {
    SocketOf(*transport_)
        .async_read_some(net::buffer(part_),
                         [self = Self(), drained](ErrorCode error, size_t bytes) {
                           if (error || drained + bytes >= kLingerBytes) return self->Shutdown();
                           self->Drain(drained + bytes);
                         });
  }

  std::unique_ptr<Transport> transport_;
  net::steady_timer timer_;
  bool timed_out_ = false;
  bool secure_ = false;
  bool certified_ = false;
  std::optional<bool> trusted_user_;
  beast::flat_buffer buffer_;

  // The request that is being read or answered.
  std::optional<beast::http::request_parser<beast::http::buffer_body>> parser_;
  const Route* route_ = nullptr;
  Request request_;
  Spool spool_;
  Nanos asked_at_ = 0;  // When its header had come.
  Nanos body_begun_ = 0;
  unsigned version_ = 11;
  bool head_only_ = false;
  bool keep_alive_ = false;
  bool web_socket_ = false;
  std::shared_ptr<HttpConnection> awaiting_;

  // Its answer.
  std::optional<beast::http::response<beast::http::string_body>> head_;
  std::optional<beast::http::response_serializer<beast::http::string_body>> serializer_;
  std::shared_ptr<StreamQueue> stream_;
  std::optional<StreamPermit> permit_;
  std::string part_;  // Bytes on their way in or out.
  bool writing_ = false;
  char watched_ = 0;
};

}  // namespace

void Serve(const std::shared_ptr<ServerState>& state, Tcp::socket socket) {
  ErrorCode ignored;
  std::string address = socket.remote_endpoint(ignored).address().to_string();
  if (state->tls) {
    auto transport = std::make_unique<TlsTransport>(std::move(socket), *state->tls);
    std::make_shared<HttpConnection<TlsTransport>>(state, std::move(address), std::move(transport))
        ->Begin();
  } else {
    auto transport = std::make_unique<PlainTransport>(std::move(socket));
    std::make_shared<HttpConnection<PlainTransport>>(state, std::move(address),
                                                     std::move(transport))
        ->Begin();
  }
}

void TurnAway(Tcp::socket& socket) {
  static constexpr std::string_view kAnswer =
      "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: 25\r\n"
      "Connection: close\r\n\r\nToo many are connected.\r\n";
  ErrorCode ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(net::buffer(kAnswer), ignored);
}

}  // namespace sheaf::http
