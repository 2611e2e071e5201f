// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Answers questions for blocks, each connection on a thread of its own, in their order.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rpc/blocks/block_socket.h"
#include "rpc/blocks/connection_threads.h"
#include "rpc/fetch_session.h"
#include "rpc/links.h"

namespace sheaf {

class BlockService {
 public:
  // Connections over which nothing was asked by anybody who could prove who it is. One more, and
  // the oldest goes of the address that has most.
  static constexpr size_t kMaxStrangers = 256;
  // Questions of one connection to which answers are made or wait at a time.
  static constexpr size_t kMostAhead = 8;
  static constexpr Nanos kGreetingTime = 5 * kSecond;
  // Over which one process asks. Its fetcher has four, and those that it replaced some more.
  static constexpr size_t kMostOfOnePeer = 16;

  struct Options {
    Nanos idle_limit = 10 * kSecond;  // Without a question a connection is closed after this.
    // If no BlockSocket::kProgressBytes of an answer leave within this, too.
    Nanos silence_limit = 5 * kSecond;
    std::string peer_name;  // That certificates must carry; empty: any.
    // All on threads of the service. Null: not encrypted.
    std::function<std::shared_ptr<const TlsContext>()> tls;
    // That this process is the end of the link `connection`; nothing: it is not.
    std::function<std::optional<Digest>(uint64_t connection, const Digest& nonce)> prove;
    // Who asks. kUnauthenticated: not the other end of a link.
    std::function<absl::StatusOr<ProcessId>(const FetchTicket& ticket)> check;
    std::function<void(ProcessId peer, std::string request, LinksOptions::Respond respond)>
        on_fetch;
    std::function<void(const std::string& peer)> on_proven;  // As given to Accept.
    std::function<void()> on_refused;
    std::function<void(uint64_t)> on_bytes;  // So many leave.
  };
  // `threads` outlives it.
  BlockService(Options options, ConnectionThreads& threads)
      : options_(std::move(options)), threads_(threads) {}

  // A connection whose other end has said kBlockMagic, which is still to be read.
  void Accept(UniqueFd fd, const std::string& peer);
  // Ends all connections; their threads end soon. No more are accepted.
  void Stop();

 private:
  class Answer;
  class Connection;
  void DropLeastWorthy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Connection& connection);
  absl::Status Greet(Connection& connection);
  absl::Status TakeQuestion(Connection& connection);
  absl::Status DeliverNext(Connection& connection);
  absl::Status Refuse(Connection& connection, const absl::Status& reason);
  absl::Status Admit(Connection& connection, ProcessId asker);
  absl::Status Deliver(Connection& connection, absl::StatusOr<Block> block);

  const Options options_;
  ConnectionThreads& threads_;
  Mutex mutex_;
  std::set<Connection*> connections_ ABSL_GUARDED_BY(mutex_);
  std::list<Connection*> strangers_ ABSL_GUARDED_BY(mutex_);     // The oldest first.
  std::map<ProcessId, size_t> of_peer_ ABSL_GUARDED_BY(mutex_);  // Those that are proven.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
