// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Asks one peer for blocks, over connections that are made as they are needed, closed when they are
// not, and answer one question after the other. Where all are busy, questions that wait go together
// to the next that is free, so that a distant peer gives more than a block of each for a round trip.
// The bytes of a block go from the socket to where they belong, without a copy in between.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "rpc/blocks/block_socket.h"
#include "rpc/blocks/connection_threads.h"
#include "rpc/fetch_session.h"
#include "rpc/links.h"

namespace sheaf {

class BlockFetcher : public std::enable_shared_from_this<BlockFetcher> {
 public:
  // At a time: a source that is slow to answer holds up one of them.
  static constexpr size_t kConnections = 4;
  // Questions that go together at most, and their bytes: those never fill the buffers of sockets,
  // so nobody has to read while it writes.
  static constexpr size_t kMostTogether = 16;
  static constexpr size_t kMostBytesTogether = 8 * 1024;

  // What is on its way is waited for as long as BlockSocket::kProgressBytes come within this, as who
  // answers has it: what is large may take its time over a slow link.
  static constexpr Nanos kPatience = 5 * kSecond;

  struct Question {
    FetchTicket ticket;
    Digest key{};            // Of the link, that the ticket was made with,
    bool peer_dialled_link;  // and who dialled it.
    std::string request;
    Nanos deadline = kForever;
    Links::FetchDone done;
    bool again = false;  // The connection was lost before its turn came, to another's answer.
  };
  struct Options {
    std::string address;                     // "host:port" of the peer.
    std::shared_ptr<const TlsContext> tls;   // Null: not encrypted.
    std::string peer_name;                   // That its certificate must carry; empty: any.
    Nanos idle_limit = 5 * kSecond;          // Shorter than that of who answers.
    std::function<void(uint64_t)> on_bytes;  // So many came.
    // Gives the question a new ticket, as the peer may have seen its own. False: the link is down.
    std::function<bool(Question& question)> renew;
  };
  // `threads` outlives it.
  BlockFetcher(Options options, ConnectionThreads& threads)
      : options_(std::move(options)), threads_(threads) {}

  // `done` is called on a thread of a connection. kUnavailable: no connection, or it was lost;
  // kDeadlineExceeded; or what the peer answers.
  // False: there is no thread for it, and `question` is as it was.
  bool Ask(Question& question);
  // When an answer came last over any of its connections, or BlockSocket::kProgressBytes of one
  // (MonotonicNow); 0: never.
  Nanos moved_at() const { return moved_at_; }
  // All that was asked fails, kUnavailable with `why`. Nothing is asked any more.
  void Close(const std::string& why);

 private:
  class Connection;
  void Run();
  std::vector<Question> Next(bool first);
  bool AskAgain(Question& question);
  Nanos EndOf(const Question& question) const;

  const Options options_;
  ConnectionThreads& threads_;
  std::atomic<Nanos> moved_at_{0};
  Mutex mutex_;
  CondVar changed_;
  std::deque<Question> questions_ ABSL_GUARDED_BY(mutex_);
  size_t connections_ ABSL_GUARDED_BY(mutex_) = 0;  // One for each question at least, or all.
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;         // Of these, those that ask nothing.
  std::set<BlockSocket*> sockets_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf
