// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How connections come and go: dialled, accepted, silent, lost.
#include <grpc/support/time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/random.h"
#include "rpc/grpc_links_parts.h"

namespace sheaf {
namespace {

// Of an end that was dialled and ended the connection before it had said anything, as far as this
// can be read from the words of gRPC.
absl::Status WithTlsAdvice(const absl::Status& reason, bool tls_here) {
  const absl::string_view words = reason.message();
  if (!tls_here) {
    if (!absl::StrContains(words, "Socket closed")) return reason;
    return absl::UnavailableError(
        absl::StrCat("it closes the connection before it has said a word, as one with TLS does to "
                     "one without: if the cluster was started with --tls-dir, start this node with "
                     "it, too (",
                     words, ")"));
  }
  if (absl::StrContains(words, "wrong version number")) {
    return absl::UnauthenticatedError(
        absl::StrCat("it speaks without TLS, and this node has a --tls-dir (or SHEAF_TLS_DIR): "
                     "start all nodes of a cluster with it, or none (",
                     words, ")"));
  }
  if (!absl::StrContains(words, "andshake") && !absl::StrContains(words, "SSL")) return reason;
  return absl::UnauthenticatedError(absl::StrCat("the certificates do not fit: ", words));
}

}  // namespace

bool GrpcLinks::WantsDial(const Link& link, Nanos now) const {
  return !stopping_ && !link.gone && link.current == nullptr && link.dialling == nullptr &&
         !link.address.empty() && now >= link.next_dial &&
         (link.keep || link.state.HasSomethingToSend() || !link.waiting_fetches.empty());
}

void GrpcLinks::Dial(const std::shared_ptr<Link>& link, Nanos now) {
  auto connection = std::make_shared<Connection>(this);
  connection->dialled = true;
  connection->phase = Phase::kAwaitChallenge;
  connection->deadline = now + std::min(kHandshakeTime, options_.silence_limit);
  connection->dialler.emplace(options_.credentials.token, SecretBytes());
  connection->link = link;
  connection->outbox.push_back(BufferOf(connection->dialler->Hello()));
  connection->stream = LinkStream::Dial(
      MakeChannel({link->address, certificates_.get(), options_.silence_limit}), kLinkMethod);
  connection->stream->Begin(connection);
  connections_.insert(connection);
  link->dialling = connection;
}

// Of the address that has most of them; there the oldest had its time, and is the likeliest to be
// one that only waits.
std::shared_ptr<GrpcLinks::Connection> GrpcLinks::LeastWorthyHandshake() const {
  std::map<std::string, size_t> of_address;
  size_t most = 0;
  for (const auto& connection : connections_) {
    if (connection->counted)
      most = std::max(most, ++of_address[AddressOf(connection->accepted_from)]);
  }
  std::shared_ptr<Connection> oldest;
  for (const auto& connection : connections_) {
    if (connection->counted && of_address[AddressOf(connection->accepted_from)] == most &&
        (oldest == nullptr || connection->deadline < oldest->deadline)) {
      oldest = connection;
    }
  }
  return oldest;
}

grpc::ServerGenericBidiReactor* GrpcLinks::AcceptStream(
    grpc::GenericCallbackServerContext* context) {
  auto connection = std::make_shared<Connection>(this);
  grpc::ServerGenericBidiReactor* reactor = nullptr;
  Actions actions;
  {
    const MutexLock lock(mutex_);
    connection->stream = LinkStream::Accept(context, &reactor);
    connection->accepted_from = context->peer();
    connection->deadline = MonotonicNow() + kHandshakeTime;
    connection->acceptor.emplace(options_.credentials.token, SecretBytes());
    if (!stopping_ && handshakes_ >= kMaxHandshakes) {
      const std::shared_ptr<Connection> oldest = LeastWorthyHandshake();
      ++figures_.refused_handshakes;
      Drop(oldest, absl::ResourceExhaustedError("too many unfinished handshakes"), &actions);
    }
    connection->counted = true;
    ++handshakes_;
    connections_.insert(connection);
    connection->stream->Begin(connection);
    if (stopping_) Drop(connection, absl::UnavailableError("stopping"), &actions);
  }
  Run(actions);
  return reactor;
}

// --- events of streams ---

void GrpcLinks::OnMessage(const std::shared_ptr<Connection>& connection,
                          const grpc::ByteBuffer& message) {
  {
    Actions actions;
    MutexLock lock(mutex_);
    if (connection->phase == Phase::kOver || connection->phase == Phase::kClosing) return;
    if (connection->phase != Phase::kEstablished) {
      if (message.Length() > kMaxHandshakeBytes) {
        if (!connection->dialled) ++figures_.refused_handshakes;
        Drop(connection,
             absl::UnauthenticatedError(
                 absl::StrCat("a message of ", message.Length(), " bytes instead of a handshake")),
             &actions);
      } else {
        // Known once TLS is through, which it is where a message comes.
        const absl::Status named = CheckPeerName(connection->stream->peer().get());
        if (named.ok()) {
          Handshake(connection, std::string(Flatten(message).bytes), &actions);
          Pump(connection, &actions);
        } else {
          if (!connection->dialled) ++figures_.refused_handshakes;
          Drop(connection, named, &actions);
        }
      }
      lock.Unlock();
      Run(actions);
      return;
    }
  }
  HandleMessage(connection, message);
}

void GrpcLinks::OnWritten(const std::shared_ptr<Connection>& connection) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    connection->writing = false;
    Pump(connection, &actions);
  }
  Run(actions);
}

void GrpcLinks::OnClosed(const std::shared_ptr<Connection>& connection,
                         const grpc::Status& status) {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    absl::Status reason = FromGrpc(status);
    if (reason.ok() || reason.code() == absl::StatusCode::kCancelled) {
      reason = absl::UnavailableError("the other end closed the connection");
    } else if (connection->phase == Phase::kAwaitChallenge) {
      reason = WithTlsAdvice(reason, certificates_ != nullptr);
    }
    Detach(connection, reason, &actions);
    connection->stream = nullptr;
    connections_.erase(connection);
    ++running_;  // Nothing else keeps Stop from ending while the actions run.
  }
  Run(actions);
  const MutexLock lock(mutex_);
  --running_;
  if (stopping_) nothing_runs_.NotifyAll();
}

// --- the end ---

// By value, here and in Detach: the place that held the connection is cleared.

void GrpcLinks::Drop(std::shared_ptr<Connection> connection, const absl::Status& reason,
                     Actions* actions) {
  if (connection->stream != nullptr) {
    actions->closes.emplace_back(connection->stream, ToGrpc(reason));
  }
  Detach(std::move(connection), reason, actions);
}

void GrpcLinks::Detach(std::shared_ptr<Connection> connection, const absl::Status& reason,
                       Actions* actions) {
  if (std::exchange(connection->phase, Phase::kOver) == Phase::kOver) return;
  if (std::exchange(connection->counted, false)) --handshakes_;
  connection->blocks.clear();
  const std::shared_ptr<Link> link = connection->link;
  if (link == nullptr) return;
  const Nanos now = MonotonicNow();
  if (link->current == connection) {
    FailLinkFetches(link.get(), kForever,
                    absl::UnavailableError(
                        absl::StrCat("the connection to ", link->peer.ToString(), " was lost")),
                    actions);
    link->current = nullptr;
    link->state.Disconnected();
    link->lost_connection = connection->number;
    link->lost_at = now;
    // Replaced at once, but not faster than dials that fail; slower where the peer sends nonsense.
    link->backoff = kFirstBackoff;
    link->next_dial = reason.code() == absl::StatusCode::kInvalidArgument
                          ? now + kMaxBackoff
                          : std::max(now, link->established_at + kFirstBackoff);
    actions->tick = true;
    if (!stopping_) {
      Log(LogLevel::kInfo, "the connection to ", link->peer.ToString(),
          " is lost: ", reason.message());
      Report(link, false, reason, actions);
    }
  } else if (link->dialling == connection) {
    link->dialling = nullptr;
    const Nanos jitter = static_cast<Nanos>(EntropySeed() % static_cast<uint64_t>(link->backoff));
    link->next_dial = now + link->backoff / 2 + jitter / 2;
    link->backoff = std::min(2 * link->backoff, kMaxBackoff);
    if (reason.code() == absl::StatusCode::kAlreadyExists ||
        reason.code() == absl::StatusCode::kCancelled) {
      return;
    }
    if (!stopping_) {
      Log(LogLevel::kInfo, "cannot reach ", link->peer.ToString(), " at ", link->address, ": ",
          reason.message());
      if (link->current == nullptr) Report(link, false, reason, actions);
    }
  }
}

void GrpcLinks::Tick() {
  block_threads_.Reap();
  Actions actions;
  std::vector<std::shared_ptr<Connection>> dialled;
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    const Nanos now = MonotonicNow();
    // A process that did not run for a while has not listened: silence counts anew.
    const bool slept = now - last_tick_ > options_.silence_limit / 2;
    last_tick_ = now;
    if (expires_ != 0 && now >= next_expiry_check_) CheckExpiry(now);
    const std::vector<std::shared_ptr<Connection>> connections(connections_.begin(),
                                                               connections_.end());
    for (const auto& connection : connections) {
      if (connection->phase < Phase::kEstablished && now > connection->deadline) {
        if (!connection->dialled) ++figures_.refused_handshakes;
        Drop(connection, absl::UnavailableError("no handshake in time"), &actions);
      }
    }
    std::vector<std::shared_ptr<Link>> links;
    for (const auto& [key, link] : links_) links.push_back(link);
    for (const auto& link : links) {
      if (link->current != nullptr) {
        if (slept || link->delivering) link->state.Heard(now);
        if (now - link->state.last_heard() > options_.silence_limit) {
          Drop(link->current,
               absl::UnavailableError(absl::StrCat("no sign of life for ",
                                                   options_.silence_limit / kMillisecond, " ms")),
               &actions);
        } else {
          Pump(link->current, &actions);
        }
      }
      FailLinkFetches(link.get(), now, absl::DeadlineExceededError("no answer in time"), &actions);
      while (!link->waiting_fetches.empty() && link->waiting_fetches.front().deadline <= now) {
        FailFetch(std::move(link->waiting_fetches.front().done),
                  absl::DeadlineExceededError(
                      absl::StrCat("no connection to ", link->peer.ToString(), " in time")),
                  &actions);
        link->waiting_fetches.pop_front();
      }
      if (WantsDial(*link, now)) {
        Dial(link, now);
        dialled.push_back(link->dialling);
      }
      const bool guest = link->peer.node == 0 && link->peer.process != 0;
      if (guest && link->current == nullptr && now - link->lost_at > kGuestLife) {
        FailFetches(link.get(), absl::UnavailableError("the guest is gone"), &actions);
        for (const uint64_t session : link->sessions) sessions_.erase(session);
        links_.erase(KeyOf(*link));
        last_sent_ = nullptr;
      }
    }
    for (const auto& connection : dialled) Pump(connection, &actions);
  }
  Run(actions);
}

void GrpcLinks::Stop() {
  Actions actions;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) {
      while (!stopped_) nothing_runs_.Wait(mutex_);
      return;
    }
    const absl::Status reason = absl::CancelledError("the links of this process have stopped");
    const std::vector<std::shared_ptr<Connection>> connections(connections_.begin(),
                                                               connections_.end());
    for (const auto& connection : connections) Drop(connection, reason, &actions);
    for (const auto& [key, link] : links_) FailFetches(link.get(), reason, &actions);
    CloseFetchers(reason);
  }
  Run(actions);
  if (server_ != nullptr) {
    listener_->Stop();
    block_service_->Stop();
    server_->Shutdown(gpr_inf_past(GPR_CLOCK_REALTIME));
  }
  block_threads_.AwaitAll();
  {
    const MutexLock lock(mutex_);
    nothing_runs_.Wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return running_ == 0 && connections_.empty();
    });
  }
  executor_->Stop();
  {
    const MutexLock lock(gate_->mutex);
    gate_->links = nullptr;
  }
  server_ = nullptr;
  const MutexLock lock(mutex_);
  links_.clear();
  dirty_.clear();
  sessions_.clear();
  stopped_ = true;
  nothing_runs_.NotifyAll();
}

}  // namespace sheaf
