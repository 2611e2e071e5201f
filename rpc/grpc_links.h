// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Links over gRPC. Everything but the streams themselves is under one lock; what must not run under
// it (writes, closes, callbacks) is collected in Actions and done after the lock is gone.
//
// Threads: callers, gRPC's, one for each connection of blocks, and one of its own, which ticks (dials, deadlines, acknowledgements,
// pings). Whatever goes to on_frames and on_link passes through the queue of its link, which one
// thread at a time empties: that keeps their order over reconnects.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "rpc/blocks/block_fetcher.h"
#include "rpc/blocks/block_service.h"
#include "rpc/blocks/connection_threads.h"
#include "rpc/fetch_session.h"
#include "rpc/grpc_channel.h"
#include "rpc/grpc_stream.h"
#include "rpc/link_handshake.h"
#include "rpc/link_state.h"
#include "rpc/links.h"
#include "rpc/term_fence.h"

namespace sheaf {

class GrpcLinks final : public Links {
 public:
  explicit GrpcLinks(LinksOptions options);
  ~GrpcLinks() override;
  absl::Status Listen();

  std::string address() const override { return address_; }
  void SetTerm(const GcsTerm& term) override;
  void AddSelf(ProcessId end) override;
  void SetAddress(ProcessId peer, const std::string& address) override;
  void Forget(ProcessId peer) override;
  absl::Status SetCertificates(const Credentials& next) override;
  void Send(ProcessId self, ProcessId peer, const LinkFrame& frame) override;
  void SendAhead(ProcessId self, ProcessId peer, const LinkFrame& frame) override;
  void Flush() override;
  size_t queued_bytes(ProcessId peer) const override;
  Nanos last_frame(ProcessId peer) const override;
  Nanos last_block(ProcessId peer) const override;
  GcsTerm followed_term() const override;
  void Fetch(ProcessId self, ProcessId peer, std::string request, Nanos timeout,
             FetchDone done) override;
  void Stop() override;
  Figures figures() const override;

 private:
  struct Link;
  struct Delivery;
  struct PendingFetch;
  class Connection;
  class Service;
  enum class Phase : uint8_t;
  using Key = std::pair<uint64_t, uint64_t>;  // Self and peer; a guest's self is kGuestKey.

  // The other end asks for a block over the link.
  struct LinkQuestion {
    std::shared_ptr<Connection> connection;
    ProcessId peer;
    uint64_t number;
    std::string request;
  };

  // What is to be done once the lock is gone, in this order.
  struct Actions {
    std::vector<std::pair<std::shared_ptr<LinkStream>, grpc::ByteBuffer>> writes;
    std::vector<std::pair<std::shared_ptr<LinkStream>, grpc::Status>> closes;
    std::vector<std::shared_ptr<Link>> deliveries;  // Links with something to deliver.
    std::vector<std::pair<FetchDone, absl::Status>> failed_fetches;
    std::vector<std::pair<FetchDone, absl::StatusOr<std::unique_ptr<ReceivedBlock>>>> fetched;
    std::vector<LinkQuestion> questions;
    bool tick = false;
  };
  void Run(Actions& actions) ABSL_LOCKS_EXCLUDED(mutex_);

  // grpc_links.cc: links and their frames.
  std::shared_ptr<Link> FindOrMake(ProcessId self, bool guest, ProcessId peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Link* FindToSend(ProcessId self, ProcessId peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // Null: nothing goes there.
  std::shared_ptr<Link> Find(ProcessId self, ProcessId peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::pair<ProcessId, bool> SelfNamed(ProcessId self) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static Key KeyOf(const Link& link);
  void RenamePeer(const std::shared_ptr<Link>& link, ProcessId name, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report(const std::shared_ptr<Link>& link, bool up, const absl::Status& reason,
              Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(const std::shared_ptr<Connection>& connection, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(const std::shared_ptr<Link>& link) ABSL_LOCKS_EXCLUDED(mutex_);
  void HandleMessage(const std::shared_ptr<Connection>& connection, const grpc::ByteBuffer& message)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // grpc_connections.cc: how connections come and go.
  bool WantsDial(const Link& link, Nanos now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Dial(const std::shared_ptr<Link>& link, Nanos now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Connection> LeastWorthyHandshake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::ServerGenericBidiReactor* AcceptStream(grpc::GenericCallbackServerContext* context)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnMessage(const std::shared_ptr<Connection>& connection, const grpc::ByteBuffer& message)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritten(const std::shared_ptr<Connection>& connection) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnClosed(const std::shared_ptr<Connection>& connection, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The connection is over, because of `reason`: takes it from its link and closes it.
  void Drop(std::shared_ptr<Connection> connection, const absl::Status& reason, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Detach(std::shared_ptr<Connection> connection, const absl::Status& reason, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);

  // grpc_link_handshake.cc: who is at the other end of a connection.
  void Handshake(const std::shared_ptr<Connection>& connection, std::string_view bytes,
                 Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnProof(const std::shared_ptr<Connection>& connection, std::string_view bytes,
               Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Judge(const std::shared_ptr<Connection>& connection, const Introduction& peer,
                     std::shared_ptr<Link>* link, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Establish(const std::shared_ptr<Link>& link, const std::shared_ptr<Connection>& connection,
                 const Introduction& peer, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Introduction Introduce(const Link& link) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CompareTerms(const Introduction& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // grpc_link_certificates.cc.
  void CheckExpiry(Nanos now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPeerName(const grpc::AuthContext* peer) const;

  // grpc_fetch.cc.
  void StartFetch(const std::shared_ptr<Link>& link, PendingFetch fetch, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<BlockFetcher> FetcherOf(const std::shared_ptr<Link>& asked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<BlockService> MakeBlockService();
  void CloseFetchers(const absl::Status& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailFetch(FetchDone done, const absl::Status& reason, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailFetches(Link* link, const absl::Status& reason, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // grpc_link_fetch.cc: fetches over the link itself, from a peer that cannot be dialled.
  struct Gate;
  class LinkServing;
  void StartLinkFetch(const std::shared_ptr<Link>& link, PendingFetch fetch, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status HandleFetch(const std::shared_ptr<Connection>& connection,
                           const MessageHeader& header, std::string_view payload, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLinkFetches(Link* link, Nanos until, const absl::Status& reason, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool NextPart(const std::shared_ptr<Connection>& connection, grpc::ByteBuffer* message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskUser(LinkQuestion question) ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishFetch(FetchDone done, absl::StatusOr<std::unique_ptr<ReceivedBlock>> block)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const LinksOptions options_;                            // But for its certificates.
  const std::unique_ptr<GrpcCertificates> certificates_;  // Null: there are none.
  const uint64_t incarnation_;
  std::string address_;  // Constant after Listen.

  mutable Mutex mutex_;
  CondVar nothing_runs_;
  absl::flat_hash_map<Key, std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);
  // Of the last Send, since many frames go one way. Null where ends or links have changed.
  std::shared_ptr<Link> last_sent_ ABSL_GUARDED_BY(mutex_);
  std::pair<ProcessId, ProcessId> last_sent_ends_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProcessId> ends_ ABSL_GUARDED_BY(mutex_);
  TermFence fence_ ABSL_GUARDED_BY(mutex_);
  std::map<ProcessId, std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  std::set<ProcessId> forgotten_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint64_t> forgotten_streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Link>> dirty_
      ABSL_GUARDED_BY(mutex_);  // With frames that wait for Flush.
  std::set<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  // By connection.
  absl::flat_hash_map<uint64_t, std::shared_ptr<FetchSession>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<BlockFetcher>> fetchers_ ABSL_GUARDED_BY(mutex_);
  // Of connections that are made from now on; null: they are not encrypted.
  std::shared_ptr<const TlsContext> block_tls_ ABSL_GUARDED_BY(mutex_);
  uint32_t guests_ ABSL_GUARDED_BY(mutex_) = 0;
  int handshakes_ ABSL_GUARDED_BY(mutex_) =
      0;  // Accepted connections whose peer has not proved itself.
  int running_ ABSL_GUARDED_BY(mutex_) = 0;  // Threads inside callbacks of the user.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Nanos last_tick_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t expires_ ABSL_GUARDED_BY(mutex_) =
      0;  // Of the certificates, seconds since 1970; 0: there are none.
  Nanos next_expiry_check_ ABSL_GUARDED_BY(mutex_) = 0;
  Figures figures_ ABSL_GUARDED_BY(mutex_);

  const std::shared_ptr<Gate> gate_;
  std::unique_ptr<Service> service_;
  ConnectionThreads block_threads_;
  std::unique_ptr<BlockService> block_service_;  // Constant after Listen.
  std::unique_ptr<GrpcListener> listener_;       // Constant after Listen.
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ThreadExecutor> executor_;
};

}  // namespace sheaf
