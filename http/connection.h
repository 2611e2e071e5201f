// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the connections of one server share, and how each begins. Internal to http/.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/http/fields.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "http/authenticator.h"
#include "http/router.h"
#include "http/server.h"
#include "http/stream_queue.h"

namespace sheaf::http {

class Connection;

// All but `stopped`, `answering` and `last_activity` is touched by the server's thread alone.
// Replies keep it, and with it the context, alive; the connections go with the server.
struct ServerState {
  ServerState(ServerOptions server_options, Router server_router, std::vector<std::string> hosts)
      : options(std::move(server_options)),
        router(std::move(server_router)),
        authenticator(std::move(hosts), options.token, options.session_key, clock) {}

  const MonotonicClock clock{};
  ServerOptions options;
  Router router;
  Authenticator authenticator;
  std::optional<boost::asio::ssl::context> tls{};
  boost::asio::io_context io{1};
  absl::flat_hash_set<Connection*> connections{};
  absl::flat_hash_map<std::string, int> per_address{};
  int streams = 0;
  std::atomic<bool> stopped = false;
  std::atomic<int> answering = 0;  // Requests that handlers have, and streams.
  std::atomic<Nanos> last_activity = 0;

  // A server that has stopped tells nothing: whom it would tell may be gone.
  void TellConnections() const {
    if (!stopped && options.events.connections)
      options.events.connections(static_cast<int>(connections.size()));
  }
};

// One connection; it lives as long as something is under way on it.
class Connection {
 public:
  Connection(std::shared_ptr<ServerState> state, std::string address)
      : state_(std::move(state)), address_(std::move(address)) {
    state_->connections.insert(this);
    ++state_->per_address[address_];
    state_->TellConnections();
  }
  virtual ~Connection() {
    state_->connections.erase(this);
    const auto entry = state_->per_address.find(address_);
    if (--entry->second == 0) state_->per_address.erase(entry);
    state_->TellConnections();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // Ends what is under way, soon; the server stops.
  virtual void Shutdown() = 0;
  // There may be something to send.
  virtual void Pump() {}

 protected:
  const std::shared_ptr<ServerState> state_;
  const std::string address_;
};

// While it lives one more answer goes on.
class StreamPermit {
 public:
  explicit StreamPermit(std::shared_ptr<ServerState> state) : state_(std::move(state)) {
    ++state_->streams;
    ++state_->answering;
  }
  ~StreamPermit() {
    --state_->streams;
    --state_->answering;
    state_->last_activity = state_->clock.Now();
  }
  StreamPermit(const StreamPermit&) = delete;
  StreamPermit& operator=(const StreamPermit&) = delete;

 private:
  const std::shared_ptr<ServerState> state_;
};

// Serves what comes over `socket`, until either side ends it.
void Serve(const std::shared_ptr<ServerState>& state, boost::asio::ip::tcp::socket socket);

// Says no to a connection that there is no room for, and closes it.
void TurnAway(boost::asio::ip::tcp::socket& socket);

}  // namespace sheaf::http
