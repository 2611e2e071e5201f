// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/blocks/block_service.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "base/text/same_secret.h"
#include "rpc/blocks/block_wire.h"

namespace sheaf {
namespace {

// That OpenSSL or the kernel is given at a time; when its checksum is made, it is in the cache.
constexpr size_t kPiece = 256 * 1024;

std::string HostOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

// What the user says to one question, from any thread, maybe after the connection is gone.
class BlockService::Answer {
 public:
  void Give(absl::StatusOr<Block> block) {
    const MutexLock lock(mutex_);
    if (std::exchange(given_, true)) return;
    block_ = std::move(block);
    changed_.NotifyAll();
  }
  absl::StatusOr<Block> Await() {
    const MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return given_; });
    return std::move(block_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool given_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<Block> block_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("not answered");
};

class BlockService::Connection {
 public:
  Connection(UniqueFd fd, std::string peer) : socket(std::move(fd)), peer(std::move(peer)) {}

  BlockSocket socket;
  const std::string peer;
  bool proven = false;  // Its thread's own, as the next.
  ProcessId asker;      // Who has proven to be there.
  // Of questions in their order. Its thread's own, and changed under the service's mutex.
  std::deque<std::shared_ptr<Answer>> awaited;
};

void BlockService::Accept(UniqueFd fd, const std::string& peer) {
  const auto connection = std::make_shared<Connection>(std::move(fd), peer);
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    if (strangers_.size() >= kMaxStrangers) DropLeastWorthy();
    strangers_.push_back(connection.get());
    connections_.insert(connection.get());
    if (threads_.Start("links serve", [this, connection] { Run(*connection); })) return;
    strangers_.remove(connection.get());
    connections_.erase(connection.get());
  }
}

void BlockService::DropLeastWorthy() {
  std::map<std::string, size_t> of_host;
  size_t most = 0;
  for (const Connection* stranger : strangers_)
    most = std::max(most, ++of_host[HostOf(stranger->peer)]);
  const auto oldest = std::find_if(
      strangers_.begin(), strangers_.end(),
      [&](const Connection* stranger) { return of_host[HostOf(stranger->peer)] == most; });
  (*oldest)->socket.Shutdown();
  strangers_.erase(oldest);
}

void BlockService::Stop() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  for (Connection* connection : connections_) {
    connection->socket.Shutdown();
    for (const std::shared_ptr<Answer>& answer : connection->awaited)
      answer->Give(absl::UnavailableError("the links of this process have stopped"));
  }
}

void BlockService::Run(Connection& connection) {
  absl::Status status = Greet(connection);
  while (status.ok()) {
    // Questions that are there already are put to the user together, and their answers are made
    // while earlier ones leave.
    const bool takes = connection.awaited.empty() ||
                       (connection.awaited.size() < kMostAhead && !connection.socket.IsQuiet());
    status = takes ? TakeQuestion(connection) : DeliverNext(connection);
  }
  if (!connection.proven) options_.on_refused();
  const MutexLock lock(mutex_);
  connections_.erase(&connection);
  strangers_.remove(&connection);
  if (connection.proven && --of_peer_[connection.asker] == 0) of_peer_.erase(connection.asker);
}

absl::Status BlockService::Greet(Connection& connection) {
  const Nanos deadline = MonotonicNow() + kGreetingTime;
  BlockSocket& socket = connection.socket;
  std::string magic(kBlockMagic.size(), '\0');
  SHEAF_RETURN_IF_ERROR(socket.ReadAll(magic.data(), magic.size(), deadline));
  if (magic != kBlockMagic) return absl::InvalidArgumentError("not a connection for blocks");
  if (const std::shared_ptr<const TlsContext> tls = options_.tls(); tls != nullptr)
    SHEAF_RETURN_IF_ERROR(socket.StartTls(*tls, /*host=*/"", options_.peer_name, deadline));
  Greeting greeting;
  SHEAF_RETURN_IF_ERROR(socket.ReadInto(&greeting, deadline));
  const std::optional<Digest> proof = options_.prove(greeting.connection, greeting.nonce);
  if (!proof.has_value()) return absl::UnauthenticatedError("of a link that is over");
  return socket.Write(AsView(*proof), /*more=*/false, deadline);
}

absl::Status BlockService::TakeQuestion(Connection& connection) {
  BlockSocket& socket = connection.socket;
  const Nanos patience = connection.proven ? options_.idle_limit : kGreetingTime;
  SHEAF_RETURN_IF_ERROR(socket.AwaitBytes(MonotonicNow() + patience));
  const Nanos deadline = MonotonicNow() + options_.silence_limit;
  QuestionHeader header;
  SHEAF_RETURN_IF_ERROR(socket.ReadInto(&header, deadline));
  absl::StatusOr<ProcessId> asker = options_.check(header.ticket);
  std::string request;
  if (asker.ok() && header.request_bytes > kMaxQuestionBytes) {
    asker = absl::InvalidArgumentError(absl::StrCat("a request of ", header.request_bytes,
                                                    " bytes; the limit is ", kMaxQuestionBytes));
  } else if (asker.ok()) {
    request.resize(header.request_bytes);
    SHEAF_RETURN_IF_ERROR(socket.ReadAll(request.data(), request.size(), deadline));
    if (!SameSecret(AsView(Sha256(request)), AsView(header.ticket.request_hash)))
      asker = absl::UnauthenticatedError("a fetch whose request was changed on its way");
  }
  if (!asker.ok()) return Refuse(connection, asker.status());
  if (const absl::Status status = Admit(connection, *asker); !status.ok())
    return Refuse(connection, status);
  const auto answer = std::make_shared<Answer>();
  {
    const MutexLock lock(mutex_);
    if (stopping_) return absl::CancelledError("the links of this process have stopped");
    connection.awaited.push_back(answer);
  }
  {
    // Whoever lets the last copy of it go without a word has answered too.
    const std::shared_ptr<Answer> once(answer.get(), [answer](Answer* given) {
      given->Give(absl::CancelledError("the fetch was not answered"));
    });
    options_.on_fetch(*asker, std::move(request),
                      [once](absl::StatusOr<Block> block) { once->Give(std::move(block)); });
  }
  return absl::OkStatus();
}

absl::Status BlockService::DeliverNext(Connection& connection) {
  absl::StatusOr<Block> block = connection.awaited.front()->Await();
  {
    const MutexLock lock(mutex_);
    connection.awaited.pop_front();
  }
  return Deliver(connection, std::move(block));
}

absl::Status BlockService::Refuse(Connection& connection, const absl::Status& reason) {
  if (connection.proven) options_.on_refused();
  while (!connection.awaited.empty()) SHEAF_RETURN_IF_ERROR(DeliverNext(connection));
  (void)Deliver(connection, reason);
  return reason;
}

// After its first question; later ones change nothing.
absl::Status BlockService::Admit(Connection& connection, ProcessId asker) {
  if (connection.proven) return absl::OkStatus();
  {
    const MutexLock lock(mutex_);
    size_t& count = of_peer_[asker];
    if (count >= kMostOfOnePeer) {
      return absl::UnavailableError(absl::StrCat(asker.ToString(), " has ", count,
                                                 " connections for blocks; close some first"));
    }
    ++count;
    connection.proven = true;
    connection.asker = asker;
    strangers_.remove(&connection);
  }
  options_.on_proven(connection.peer);
  return absl::OkStatus();
}

absl::Status BlockService::Deliver(Connection& connection, absl::StatusOr<Block> block) {
  if (block.ok() &&
      (block->bytes.size() > kMaxBlockBytes || block->head.size() > kMaxAnswerTextBytes)) {
    block = absl::InvalidArgumentError(absl::StrCat(
        "a block of ", block->bytes.size(), " bytes with a head of ", block->head.size(),
        "; the limits are ", kMaxBlockBytes, " and ", kMaxAnswerTextBytes));
  }
  const std::string_view text =
      block.ok() ? std::string_view(block->head)
                 : std::string_view(
                       block.status().message().data(),
                       std::min<size_t>(block.status().message().size(), kMaxAnswerTextBytes));
  AnswerHeader header;
  header.code = static_cast<uint32_t>(block.status().raw_code());
  header.text_bytes = static_cast<uint32_t>(text.size());
  const std::string_view bytes =
      block.ok() ? std::string_view(block->bytes.data(), block->bytes.size()) : std::string_view();
  header.bytes = bytes.size();
  BlockSocket& socket = connection.socket;
  const Nanos patience = options_.silence_limit;
  std::string front(BytesOf(header));
  front.append(text);
  SHEAF_RETURN_IF_ERROR(socket.WriteWhileItMoves(front, /*more=*/!bytes.empty(), patience));
  options_.on_bytes(bytes.size());
  if (bytes.empty()) return absl::OkStatus();
  BlockCrc crc = 0;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::string_view piece = bytes.substr(at, kPiece);
    crc = Crc32c(piece, crc);
    SHEAF_RETURN_IF_ERROR(socket.WriteWhileItMoves(piece, /*more=*/true, patience));
  }
  return socket.WriteWhileItMoves(BytesOf(crc), /*more=*/false, patience);
}

}  // namespace sheaf
