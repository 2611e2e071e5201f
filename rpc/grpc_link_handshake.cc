// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How the two ends of a connection prove who they are, and which connection a link keeps.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rpc/grpc_links_parts.h"

namespace sheaf {
namespace {

// Of two connections dialled at once, that of the lower end stays.
bool IsLower(ProcessId self, ProcessId peer) { return self.packed() < peer.packed(); }

}  // namespace

Introduction GrpcLinks::Introduce(const Link& link) const {
  Introduction self;
  self.end = link.self;
  self.guest = link.guest;
  self.wanted = link.peer;
  self.incarnation = incarnation_;
  self.stream = link.state.stream();
  self.known_stream = link.state.peer_stream();
  self.has_messages = link.state.ReceivedOf(link.state.peer_stream());
  self.lost_connection = link.lost_connection;
  self.gcs_term = fence_.term();
  self.version = options_.version;
  return self;
}

absl::Status GrpcLinks::CompareTerms(const Introduction& peer) {
  const bool gcs_here = std::find(ends_.begin(), ends_.end(), kGcs) != ends_.end();
  return fence_.Compare(gcs_here, peer.end == kGcs, peer.gcs_term);
}

void GrpcLinks::Handshake(const std::shared_ptr<Connection>& connection, std::string_view bytes,
                          Actions* actions) {
  switch (connection->phase) {
    case Phase::kAwaitHello: {
      absl::StatusOr<std::string> challenge = connection->acceptor->Challenge(bytes);
      if (!challenge.ok()) {
        ++figures_.refused_handshakes;
        connection->phase = Phase::kClosing;
        connection->closing_status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                                  std::string(challenge.status().message()));
        return;
      }
      connection->outbox.push_back(BufferOf(*challenge));
      connection->phase = Phase::kAwaitProof;
      return;
    }
    case Phase::kAwaitChallenge: {
      absl::StatusOr<std::string> proof =
          connection->dialler->Answer(bytes, Introduce(*connection->link));
      if (!proof.ok()) return Drop(connection, proof.status(), actions);
      connection->outbox.push_back(BufferOf(*proof));
      connection->phase = Phase::kAwaitVerdict;
      return;
    }
    case Phase::kAwaitProof:
      return OnProof(connection, bytes, actions);
    case Phase::kAwaitVerdict: {
      const absl::StatusOr<Introduction> peer = connection->dialler->Conclude(bytes);
      if (!peer.ok()) return Drop(connection, peer.status(), actions);
      const absl::Status version = SameVersion(options_.version, peer->version);
      if (!version.ok()) return Drop(connection, version, actions);
      if (peer->end != connection->link->peer) {
        return Drop(connection,
                    absl::UnavailableError(absl::StrCat(connection->link->address, " is ",
                                                        peer->end.ToString(), " and not ",
                                                        connection->link->peer.ToString())),
                    actions);
      }
      const absl::Status term = CompareTerms(*peer);
      if (!term.ok()) return Drop(connection, term, actions);
      connection->session_key = connection->dialler->session_key();
      connection->number = connection->dialler->connection();
      connection->link->keep = true;
      return Establish(connection->link, connection, *peer, actions);
    }
    case Phase::kClosing:
    case Phase::kEstablished:
    case Phase::kOver:
      return;
  }
}

void GrpcLinks::OnProof(const std::shared_ptr<Connection>& connection, std::string_view bytes,
                        Actions* actions) {
  const absl::StatusOr<Introduction> peer = connection->acceptor->Check(bytes);
  if (!peer.ok()) {
    ++figures_.refused_handshakes;
    connection->phase = Phase::kClosing;
    connection->closing_status = ToGrpc(peer.status());
    return;
  }
  --handshakes_;
  connection->counted = false;
  std::shared_ptr<Link> link;
  const absl::Status verdict = Judge(connection, *peer, &link, actions);
  if (!verdict.ok()) {
    if (verdict.code() != absl::StatusCode::kAlreadyExists) ++figures_.refused_handshakes;
    connection->outbox.push_back(BufferOf(connection->acceptor->Refuse(verdict)));
    connection->phase = Phase::kClosing;
    return;
  }
  connection->outbox.push_back(BufferOf(connection->acceptor->Accept(Introduce(*link))));
  connection->session_key = connection->acceptor->session_key();
  connection->number = connection->acceptor->connection();
  return Establish(link, connection, *peer, actions);
}

// Whether the end that dialled and proved itself gets its connection, and which link that is.
// kAlreadyExists: another connection serves it.
absl::Status GrpcLinks::Judge(const std::shared_ptr<Connection>& connection,
                              const Introduction& peer, std::shared_ptr<Link>* link,
                              Actions* actions) {
  const bool here = std::find(ends_.begin(), ends_.end(), peer.wanted) != ends_.end();
  if (const absl::Status version = SameVersion(options_.version, peer.version); !version.ok()) {
    Log(LogLevel::kWarning, "refused ", peer.guest ? "a guest" : peer.end.ToString(), ": ",
        version.message());
    if (here && !peer.guest && !forgotten_.contains(peer.end)) {
      const std::shared_ptr<Link> named = FindOrMake(peer.wanted, false, peer.end);
      // Else it stands, to another process of that name: nothing would say again that it is up.
      if (named->current == nullptr) Report(named, false, version, actions);
    }
    return version;
  }
  if (!here) {
    return absl::UnavailableError(
        absl::StrCat(peer.wanted.ToString(), " is not here: this process is ",
                     ends_.empty() ? "nobody yet" : ends_.front().ToString()));
  }
  if (const absl::Status term = CompareTerms(peer); !term.ok()) {
    if (!peer.guest) {
      const std::shared_ptr<Link> named = FindOrMake(peer.wanted, false, peer.end);
      // A link that stands is to the GCS of the later term. (kAborted is about the GCS here.)
      if (named->current == nullptr || absl::IsAborted(term)) Report(named, false, term, actions);
    }
    return TermFence::ForPeer(term);
  }
  if ((!peer.guest && forgotten_.contains(peer.end)) || forgotten_streams_.contains(peer.stream)) {
    return absl::PermissionDeniedError(absl::StrCat(peer.guest ? "this guest" : peer.end.ToString(),
                                                    " was declared dead; it has to start anew"));
  }
  for (const auto& [key, other] : links_) {
    if (other->state.peer_stream() == peer.stream && other->self == peer.wanted) *link = other;
  }
  if (*link == nullptr) {
    *link = FindOrMake(peer.wanted, false, peer.guest ? ProcessId{0, ++guests_} : peer.end);
    if ((*link)->state.peer_stream() != 0 && (*link)->peer_incarnation == peer.incarnation) {
      return absl::AlreadyExistsError("the other end knows this link by another name");
    }
  } else if (!peer.guest && (*link)->peer != peer.end) {
    RenamePeer(*link, peer.end, actions);
  }
  Link& mine = **link;
  const bool restarted = mine.peer_incarnation != 0 && mine.peer_incarnation != peer.incarnation;
  const bool lower = IsLower(mine.self, mine.peer);
  const absl::Status other = absl::AlreadyExistsError("another connection was dialled at once");
  if (mine.current != nullptr) {
    if (!restarted && mine.current->dialled && lower &&
        peer.lost_connection != mine.current->number) {
      return other;
    }
  } else if (mine.dialling != nullptr && mine.dialling->phase == Phase::kAwaitVerdict && lower) {
    return other;
  }
  connection->link = *link;
  return absl::OkStatus();
}

void GrpcLinks::Establish(const std::shared_ptr<Link>& link,
                          const std::shared_ptr<Connection>& connection, const Introduction& peer,
                          Actions* actions) {
  const bool restarted = link->peer_incarnation != 0 && link->peer_incarnation != peer.incarnation;
  if (restarted) {
    Report(link, false, absl::UnavailableError("the other end was restarted"), actions);
  }
  for (std::shared_ptr<Connection>* place : {&link->current, &link->dialling}) {
    const std::shared_ptr<Connection> other = std::exchange(*place, nullptr);
    if (other == nullptr || other == connection) continue;
    FailLinkFetches(link.get(), kForever, absl::UnavailableError("the connection was replaced"),
                    actions);
    Drop(other, absl::CancelledError("replaced by another connection"), actions);
  }
  const Nanos now = MonotonicNow();
  const absl::StatusOr<uint64_t> again =
      link->state.Connected(peer.stream, peer.known_stream, peer.has_messages, now);
  if (!again.ok()) {
    link->next_dial = now + kMaxBackoff;
    return Drop(connection, again.status(), actions);
  }
  figures_.resent_messages += *again;
  if (std::exchange(link->was_up, true)) ++figures_.reconnects;
  link->peer_incarnation = peer.incarnation;
  link->current = connection;
  link->established_at = now;
  connection->phase = Phase::kEstablished;
  if (!connection->dialled) listener_->Proven(connection->accepted_from);
  sessions_[connection->number] = std::make_shared<FetchSession>(
      connection->session_key, connection->number, connection->dialled, link->peer);
  link->sessions.push_back(connection->number);
  if (link->sessions.size() > 2) {  // A fetch may be on its way with the one before.
    sessions_.erase(link->sessions.front());
    link->sessions.pop_front();
  }
  Report(link, true, absl::OkStatus(), actions);
  while (!link->waiting_fetches.empty()) {
    PendingFetch fetch = std::move(link->waiting_fetches.front());
    link->waiting_fetches.pop_front();
    StartFetch(link, std::move(fetch), actions);
  }
  Pump(connection, actions);
}

}  // namespace sheaf
