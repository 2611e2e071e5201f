// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A connection that has become a WebSocket: it sends what a handler writes, and drops what the
// viewer sends. Internal to http/.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/message.hpp>
#include <memory>
#include <string>

#include "http/connection.h"

namespace sheaf::http {

using UpgradeRequest = boost::beast::http::request<boost::beast::http::buffer_body>;

// Accepts `request` over `transport`, sends what `queue` has, and sets `*pumped` to the connection
// that does. Transport: a TCP socket, or TLS over one.
template <class Transport>
void ServeWebSocket(std::shared_ptr<ServerState> state, std::string address,
                    std::unique_ptr<Transport> transport, const UpgradeRequest& request,
                    std::shared_ptr<StreamQueue> queue, std::weak_ptr<Connection>& pumped);

using PlainTransport = boost::asio::ip::tcp::socket;
using TlsTransport = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

inline PlainTransport& SocketOf(PlainTransport& transport) { return transport; }
inline PlainTransport& SocketOf(TlsTransport& transport) { return transport.next_layer(); }

}  // namespace sheaf::http
