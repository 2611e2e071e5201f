// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What GrpcLinks keeps of each link and of each connection. Guarded by its lock, but for the events
// of a connection, which pass through.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "rpc/grpc_links.h"
#include "rpc/link_fetch.h"

namespace sheaf {

inline constexpr char kLinkMethod[] = "/sheaf.Link/Frames";
inline constexpr uint64_t kGuestKey = UINT64_MAX;
inline constexpr Nanos kFirstBackoff = 50 * kMillisecond;
inline constexpr Nanos kMaxBackoff = kSecond;
inline constexpr Nanos kHandshakeTime = 5 * kSecond;
inline constexpr int kMaxHandshakes = 64;
inline constexpr Nanos kGuestLife = 60 * kSecond;  // Without a connection.

enum class GrpcLinks::Phase : uint8_t {
  kAwaitHello,      // Acceptor.
  kAwaitProof,      // Acceptor.
  kAwaitChallenge,  // Dialler.
  kAwaitVerdict,    // Dialler.
  kClosing,         // Once its outbox is written.
  kEstablished,
  kOver,
};

// One step of what a link tells its user, in order.
struct GrpcLinks::Delivery {
  ProcessId peer;
  std::unique_ptr<LinkBatch> batch;  // nullptr: an event.
  uint64_t stream = 0, sequence = 0;
  bool up = false;
  absl::Status reason;
};

struct GrpcLinks::PendingFetch {
  std::string request;
  Nanos deadline = kForever;
  FetchDone done;
};

struct GrpcLinks::Link {
  ProcessId self;
  bool guest = false;  // `self` has no name yet.
  ProcessId peer;
  LinkState state;
  std::string address;
  uint64_t peer_incarnation = 0;

  std::shared_ptr<Connection> current;   // Established.
  std::shared_ptr<Connection> dialling;  // Ours, not yet established.
  bool keep = false;                     // We dialled it once: it is kept up.
  bool was_up = false;
  uint64_t lost_connection = 0;
  Nanos lost_at = 0;
  Nanos established_at = 0;
  Nanos next_dial = 0;
  Nanos backoff = kFirstBackoff;

  bool dirty = false;
  bool gone = false;  // Forgotten.
  bool up = false;    // As told,
  absl::Status told;  // with this reason.
  std::deque<Delivery> deliveries;
  bool delivering = false;

  std::deque<PendingFetch> waiting_fetches;
  std::shared_ptr<BlockFetcher> fetcher;
  std::vector<std::weak_ptr<BlockFetcher>> fetchers;  // It, and those that it replaced.
  std::string fetch_address;                          // Of fetcher.
  std::shared_ptr<const TlsContext> fetch_tls;        // The same.
  struct LinkFetch {
    BlockAssembly block;
    Nanos deadline = kForever;
    Nanos moved_at = 0;  // When it was asked, or a part of it came last.
    FetchDone done;
  };
  std::map<uint64_t, LinkFetch> link_fetches;  // By number.
  uint64_t last_link_fetch = 0;
  // When blocks moved over the link itself, as BlockFetcher::moved_at, and bytes of them since.
  Nanos blocks_moved_at = 0;
  size_t blocks_moved = 0;
  Nanos last_turn = 0;            // What was in line at that time has had a part since.
  std::deque<uint64_t> sessions;  // The newest last.

  explicit Link(const LinkState::Options& options) : state(options) {}
};

// What answers to questions go through: shut when the links have stopped, so that a late answer
// finds nobody. Taken before the links' lock.
struct GrpcLinks::Gate {
  Mutex mutex;
  GrpcLinks* links ABSL_GUARDED_BY(mutex) = nullptr;
};

class GrpcLinks::Connection final : public LinkStream::Events,
                                    public std::enable_shared_from_this<Connection> {
 public:
  explicit Connection(GrpcLinks* links) : links_(links) {}

  void OnMessage(const grpc::ByteBuffer& message) override {
    links_->OnMessage(shared_from_this(), message);
  }
  void OnWritten() override { links_->OnWritten(shared_from_this()); }
  void OnClosed(const grpc::Status& status) override {
    links_->OnClosed(shared_from_this(), status);
  }

  std::shared_ptr<LinkStream> stream;
  std::string accepted_from;  // As gRPC names the peer; empty: dialled.
  bool dialled = false;
  Phase phase = Phase::kAwaitHello;
  Nanos deadline = 0;  // Of the handshake.
  std::optional<DiallerHandshake> dialler;
  std::optional<AcceptorHandshake> acceptor;
  std::shared_ptr<Link> link;
  uint64_t number = 0;
  Digest session_key{};
  uint64_t fetches = 0;  // Asked over this session.

  // Says in `question` that it comes from this end. Under the links' lock, like all of this.
  void Sign(BlockFetcher::Question* question) {
    question->ticket = MakeTicket(session_key, number, ++fetches, question->request);
    question->key = session_key;
    question->peer_dialled_link = !dialled;
  }

  std::deque<grpc::ByteBuffer> outbox;  // Goes before what the link has.
  std::deque<BlockParts> blocks;        // Goes when nothing else is to be sent.
  bool writing = false;
  grpc::Status closing_status;
  bool counted = false;  // In handshakes_.

 private:
  GrpcLinks* const links_;
};

}  // namespace sheaf
