// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "rpc/blocks/block_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "rpc/listen_address.h"
#include "rpc/security/certificates.h"

namespace sheaf {
namespace {

constexpr Nanos kLookPeriod = 100 * kMillisecond;  // At the deadline, while nothing moves.

absl::Status Lost(const char* doing) {
  return absl::UnavailableError(
      absl::StrCat("the connection for blocks was lost while ", doing, ": ",
                   errno == 0 ? "the other end closed it" : std::strerror(errno)));
}

int Milliseconds(Nanos left) {
  return static_cast<int>(std::clamp<Nanos>(left / kMillisecond + 1, 0, 3600 * 1000));
}

absl::Status StandsStill() {
  return absl::DeadlineExceededError("a connection for blocks stands still");
}

// 1: ready, or `over`, which is looked at where it is given: nothing else wakes who waits for a
// connection that does not stand yet. 0: not by the deadline. -1: errno.
int Await(int fd, short events, Nanos deadline, const std::atomic<bool>* over = nullptr) {
  while (over == nullptr || !*over) {
    pollfd entry{fd, events, 0};
    Nanos left = deadline - MonotonicNow();
    if (left <= 0) return 0;
    if (over != nullptr) left = std::min(left, kLookPeriod);
    const int ready = poll(&entry, 1, Milliseconds(left));
    if (ready > 0) return 1;
    if (ready < 0 && errno != EINTR) return -1;
  }
  return 1;
}

}  // namespace

BlockSocket::BlockSocket(UniqueFd accepted) : shared_fd_(accepted.get()), fd_(std::move(accepted)) {
  if (!Prepare().ok()) Shutdown();
}

absl::Status BlockSocket::Prepare() {
  const int on = 1;
  const timeval period{0, kLookPeriod / 1000};
  const int flags = fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK) != 0 ||
      setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &period, sizeof period) != 0 ||
      setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &period, sizeof period) != 0) {
    return Lost("it was prepared");
  }
  return absl::OkStatus();
}

absl::Status BlockSocket::Connect(const std::string& address, Nanos deadline) {
  SHEAF_ASSIGN_OR_RETURN(const ListenAddress there, ParseListenAddress(address));
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(there.host.c_str(), absl::StrCat(there.port).c_str(), &hints, &found);
  if (code != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot find ", address, ": ",
                     code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  absl::Status status;
  for (const addrinfo* each = found; each != nullptr && !over_; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = 0;
    socklen_t size = sizeof error;
    if (!fd.valid() ||
        (::connect(fd.get(), each->ai_addr, each->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      error = errno;
    } else if (const int ready = Await(fd.get(), POLLOUT, deadline, &over_); ready <= 0) {
      error = ready == 0 ? ETIMEDOUT : errno;
    } else {
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (over_) break;
    if (error == 0) {
      fd_ = std::move(fd);
      shared_fd_ = fd_.get();
      if (over_) break;
      return Prepare();
    }
    status = absl::UnavailableError(
        absl::StrCat("cannot reach ", address, " for blocks: ", std::strerror(error)));
  }
  return over_ ? absl::UnavailableError("the links of this process have stopped") : status;
}

absl::Status BlockSocket::StartTls(const TlsContext& context, const std::string& host,
                                   const std::string& peer_name, Nanos deadline) {
  tls_ = std::make_unique<TlsStream>(context, fd_.get(), host);
  // Else OpenSSL would go on for as long as a byte comes now and then, and not look at the deadline.
  const int flags = fcntl(fd_.get(), F_GETFL);
  fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK);
  while (true) {
    SHEAF_ASSIGN_OR_RETURN(const bool done, tls_->Handshake());
    if (done) break;
    const int ready = Await(fd_.get(), tls_->wants_to_write() ? POLLOUT : POLLIN, deadline);
    if (ready < 0) return Lost("TLS began");
    if (ready == 0) return StandsStill();
    if (over_) return absl::UnavailableError("the connection for blocks was closed");
  }
  fcntl(fd_.get(), F_SETFL, flags);
  if (peer_name.empty()) return absl::OkStatus();
  const std::vector<std::string> names = tls_->PeerNames();
  if (NamesInclude(names, peer_name)) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("the other end's certificate carries the names ",
                                                 absl::StrJoin(names, ", "), ", and not ",
                                                 peer_name));
}

// After a read or write that gave `result`, which is not a number of bytes.
absl::Status BlockSocket::GoesOn(ssize_t result, Nanos deadline) const {
  if (over_) return absl::UnavailableError("the connection for blocks was closed");
  if (result == 0) errno = 0;
  if (errno != EAGAIN && errno != EINTR && errno != EWOULDBLOCK) return Lost("it was used");
  return MonotonicNow() < deadline ? absl::OkStatus() : StandsStill();
}

absl::StatusOr<size_t> BlockSocket::ReadSome(char* to, size_t most, Nanos deadline) {
  while (true) {
    if (MonotonicNow() >= deadline) return StandsStill();  // However little came until now.
    const ssize_t got = tls_ != nullptr ? tls_->Read(to, most) : recv(fd_.get(), to, most, 0);
    if (got > 0) return static_cast<size_t>(got);
    SHEAF_RETURN_IF_ERROR(GoesOn(got, deadline));
  }
}

absl::Status BlockSocket::ReadAll(char* to, size_t size, Nanos deadline) {
  while (size > 0) {
    SHEAF_ASSIGN_OR_RETURN(const size_t got, ReadSome(to, size, deadline));
    to += got;
    size -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> BlockSocket::WriteSome(std::string_view bytes, bool more, Nanos deadline) {
  const int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);
  const ssize_t put = tls_ != nullptr ? tls_->Write(bytes.data(), bytes.size())
                                      : send(fd_.get(), bytes.data(), bytes.size(), flags);
  if (put > 0) return static_cast<size_t>(put);
  SHEAF_RETURN_IF_ERROR(GoesOn(put == 0 ? -1 : put, deadline));
  return 0;
}

absl::Status BlockSocket::Write(std::string_view bytes, bool more, Nanos deadline) {
  while (!bytes.empty()) {
    SHEAF_ASSIGN_OR_RETURN(const size_t put, WriteSome(bytes, more, deadline));
    bytes.remove_prefix(put);
  }
  return absl::OkStatus();
}

absl::Status BlockSocket::WriteWhileItMoves(std::string_view bytes, bool more, Nanos patience) {
  Nanos deadline = MonotonicNow() + patience;
  size_t moved = 0;  // Since the deadline was set.
  while (!bytes.empty()) {
    SHEAF_ASSIGN_OR_RETURN(const size_t put, WriteSome(bytes, more, deadline));
    bytes.remove_prefix(put);
    moved += put;
    if (moved >= kProgressBytes) {
      deadline = MonotonicNow() + patience;
      moved = 0;
    } else if (MonotonicNow() >= deadline) {  // However little leaves.
      return StandsStill();
    }
  }
  return absl::OkStatus();
}

absl::Status BlockSocket::AwaitBytes(Nanos deadline) {
  if (tls_ != nullptr && tls_->has_unread()) return absl::OkStatus();
  const int ready = Await(fd_.get(), POLLIN, deadline);
  if (ready > 0) return absl::OkStatus();
  if (ready < 0) return Lost("it was idle");
  return absl::DeadlineExceededError("nothing was asked over a connection for blocks");
}

bool BlockSocket::IsQuiet() const {
  if (over_ || !fd_.valid() || (tls_ != nullptr && tls_->has_unread())) return false;
  char byte;
  return recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void BlockSocket::Shutdown() {
  over_ = true;
  if (const int fd = shared_fd_; fd >= 0) shutdown(fd, SHUT_RDWR);
}

}  // namespace sheaf
