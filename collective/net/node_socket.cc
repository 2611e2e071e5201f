// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/node_socket.h"

#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

absl::StatusOr<SocketAddress> ParseAddress(const std::string& host, int port) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", host, "' is no address of a node: ", gai_strerror(error)));
  }
  SocketAddress out;
  out.size = found->ai_addrlen;
  std::memcpy(&out.bytes, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return out;
}

void Set(const UniqueFd& fd, int level, int name, int value) {
  setsockopt(fd.get(), level, name, &value, sizeof value);
}

// All that exist. The lock is held across a fork.
struct Living {
  Mutex mutex;
  std::set<ClosedInChildren*> sockets ABSL_GUARDED_BY(mutex);
};
Living& TheLiving() {
  static Living& living = *new Living;
  return living;
}

void LockForFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { TheLiving().mutex.Lock(); }
void UnlockAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { TheLiving().mutex.Unlock(); }

}  // namespace

void ClosedInChildren::CloseAll() {
  Living& living = TheLiving();
  for (ClosedInChildren* sockets : living.sockets) sockets->close_();
  living.sockets.clear();
  living.mutex.Unlock();
}

ClosedInChildren::ClosedInChildren(std::function<void()> close) : close_(std::move(close)) {
  static const int registered = pthread_atfork(&LockForFork, &UnlockAfterFork, &CloseAll);
  (void)registered;
  const MutexLock lock(TheLiving().mutex);
  TheLiving().sockets.insert(this);
}

ClosedInChildren::~ClosedInChildren() {
  const MutexLock lock(TheLiving().mutex);
  TheLiving().sockets.erase(this);
}

absl::StatusOr<NodeListener> ListenOnNode(const std::string& host) {
  SHEAF_ASSIGN_OR_RETURN(SocketAddress address, ParseAddress(host, 0));
  NodeListener listener;
  listener.fd.Reset(
      ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  auto* const named = reinterpret_cast<sockaddr*>(&address.bytes);
  if (!listener.fd.valid() || ::bind(listener.fd.get(), named, address.size) != 0 ||
      ::listen(listener.fd.get(), 128) != 0 ||
      getsockname(listener.fd.get(), named, &address.size) != 0) {
    return absl::UnavailableError(absl::StrCat(
        "a collective group cannot listen on this node's address ", host, ": ", strerror(errno)));
  }
  listener.port = ntohs(address.bytes.ss_family == AF_INET
                            ? reinterpret_cast<sockaddr_in*>(&address.bytes)->sin_port
                            : reinterpret_cast<sockaddr_in6*>(&address.bytes)->sin6_port);
  return listener;
}

UniqueFd AcceptFromNode(const NodeListener& listener) {
  return UniqueFd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

absl::StatusOr<UniqueFd> DialNode(const std::string& host, int port) {
  SHEAF_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(host, port));
  UniqueFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 &&
       errno != EINPROGRESS)) {
    return absl::UnavailableError(absl::StrCat(host, ":", port, ": ", strerror(errno)));
  }
  return fd;
}

bool ConnectedToNode(const UniqueFd& fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

void SendAtOnce(const UniqueFd& fd) { Set(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

namespace {

// Drops what has come on `fd`, or a part of much. Whether the other end may still be without
// something that was sent.
bool MayMissBytes(int fd) {
  char bytes[64 * 1024];
  ssize_t size = 1;
  for (int turn = 0; turn < 16 && (size > 0 || errno == EINTR); ++turn) {
    size = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size == 0) break;
  }
  if (size > 0) return true;
  if (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
  int missing = 0;
  return ioctl(fd, SIOCOUTQ, &missing) == 0 && missing > 0;
}

}  // namespace

void CloseDelivered(std::span<UniqueFd> connections, Nanos longest) {
  for (const UniqueFd& fd : connections) {
    if (fd.valid()) shutdown(fd.get(), SHUT_WR);
  }
  const Nanos until = MonotonicNow() + longest;
  while (true) {
    bool missing = false;
    for (UniqueFd& fd : connections) {
      if (!fd.valid()) continue;
      if (MayMissBytes(fd.get()) && MonotonicNow() < until) {
        missing = true;
      } else {
        fd.Reset();
      }
    }
    if (!missing) return;
    poll(nullptr, 0, 1);  // No event tells that bytes were taken.
  }
}

void NoticeSilence(const UniqueFd& fd) {
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);  // Milliseconds.
}

}  // namespace sheaf
