// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/web_socket.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <chrono>
#include <utility>

#include "base/utf8.h"

namespace sheaf::http {
namespace {

namespace websocket = boost::beast::websocket;
using ErrorCode = boost::system::error_code;

constexpr size_t kMaxMessage = 64 * 1024;
constexpr size_t kMaxReason = 100;  // Of the 123 bytes that a close frame can hold.

// Takes at most `most` bytes from the front of `text`, and no part of a character.
std::string TakeFront(std::string& text, size_t most) {
  size_t length = std::min(text.size(), most);
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) {
    --length;
  }
  std::string front = text.substr(0, length);
  text.erase(0, length);
  return front;
}

template <class Transport>
class WebSocketConnection final
    : public Connection,
      public std::enable_shared_from_this<WebSocketConnection<Transport>> {
 public:
  WebSocketConnection(std::shared_ptr<ServerState> state, std::string address,
                      std::unique_ptr<Transport> transport, std::shared_ptr<StreamQueue> queue)
      : Connection(std::move(state), std::move(address)),
        permit_(state_),
        transport_(std::move(transport)),
        socket_(*transport_),
        queue_(std::move(queue)) {
    // A ping after half of the idle time keeps load balancers from ending what is quiet.
    socket_.set_option(websocket::stream_base::timeout{
        std::chrono::seconds(5), std::chrono::seconds(40), /*keep_alive_pings=*/true});
    socket_.read_message_max(kMaxMessage);
    socket_.text(true);
  }

  ~WebSocketConnection() override { queue_->Abandon(); }

  void Accept(const UpgradeRequest& request) {
    socket_.async_accept(request, [self = this->shared_from_this()](ErrorCode error) {
      if (error) return;
      self->accepted_ = true;
      self->Read();
      self->Pump();
    });
  }

  void Pump() override {
    if (!accepted_ || writing_) return;
    if (rest_.empty()) {
      StreamQueue::Next next = queue_->Take();
      if (next.bytes) rest_ = ValidUtf8(*std::move(next.bytes));
      if (next.end) return End(*next.end);
    }
    if (rest_.empty()) return;
    writing_ = true;
    sent_ = TakeFront(rest_, kMaxMessage);
    socket_.async_write(boost::asio::buffer(sent_),
                        [self = this->shared_from_this()](ErrorCode error, size_t) {
                          self->writing_ = false;
                          if (error) return self->Shutdown();
                          self->Pump();
                        });
  }

  void Shutdown() override {
    queue_->Abandon();
    ErrorCode ignored;
    SocketOf(*transport_).close(ignored);
  }

 private:
  void Read() {
    socket_.async_read(buffer_, [self = this->shared_from_this()](ErrorCode error, size_t) {
      self->buffer_.clear();
      if (error) return self->Shutdown();
      self->Read();
    });
  }

  void End(const StreamQueue::End& end) {
    writing_ = true;  // Nothing follows.
    std::string reason = ValidUtf8(end.reason);
    reason = TakeFront(reason, kMaxReason);
    socket_.async_close(
        websocket::close_reason(static_cast<websocket::close_code>(end.code), reason),
        [self = this->shared_from_this()](ErrorCode) { self->Shutdown(); });
  }

  const StreamPermit permit_;
  const std::unique_ptr<Transport> transport_;
  websocket::stream<Transport&> socket_;
  const std::shared_ptr<StreamQueue> queue_;
  boost::beast::flat_buffer buffer_;
  std::string rest_;  // Of the bytes that were taken last.
  std::string sent_;
  bool accepted_ = false;
  bool writing_ = false;
};

}  // namespace

template <class Transport>
void ServeWebSocket(std::shared_ptr<ServerState> state, std::string address,
                    std::unique_ptr<Transport> transport, const UpgradeRequest& request,
                    std::shared_ptr<StreamQueue> queue, std::weak_ptr<Connection>& pumped) {
  const auto connection = std::make_shared<WebSocketConnection<Transport>>(
      std::move(state), std::move(address), std::move(transport), std::move(queue));
  pumped = connection;
  connection->Accept(request);
}

template void ServeWebSocket(std::shared_ptr<ServerState>, std::string,
                             std::unique_ptr<PlainTransport>, const UpgradeRequest&,
                             std::shared_ptr<StreamQueue>, std::weak_ptr<Connection>&);
template void ServeWebSocket(std::shared_ptr<ServerState>, std::string,
                             std::unique_ptr<TlsTransport>, const UpgradeRequest&,
                             std::shared_ptr<StreamQueue>, std::weak_ptr<Connection>&);

}  // namespace sheaf::http
