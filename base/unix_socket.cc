// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

absl::Status Errno(std::string_view what) {
  const int error = errno;
  return absl::ErrnoToStatus(error, std::string(what));
}

// A socket address for `path`. Addresses hold 107 bytes: a longer path is named through a
// descriptor of its directory, which `directory` keeps open meanwhile.
absl::StatusOr<sockaddr_un> AddressOf(const std::string& path, UniqueFd& directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string shown = path;
  if (shown.size() >= sizeof(address.sun_path)) {
    const size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash);
    directory.Reset(open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid()) return Errno(parent);
    shown = absl::StrCat("/proc/self/fd/", directory.get(), "/", path.substr(slash + 1));
    if (shown.size() >= sizeof(address.sun_path)) {
      return absl::InvalidArgumentError(absl::StrCat("the socket name in ", path, " is too long"));
    }
  }
  if (shown.empty()) return absl::InvalidArgumentError("an empty socket path");
  std::memcpy(address.sun_path, shown.data(), shown.size());
  return address;
}

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid())
    return absl::ResourceExhaustedError(absl::StrCat("socket: ", std::strerror(errno)));
  return fd;
}

// 0 or the errno of one attempt; EAGAIN: the listener's backlog is full.
int TryConnect(int fd, const sockaddr_un& address) {
  while (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

absl::Status CheckDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash);
  struct stat info;
  if (stat(parent.c_str(), &info) != 0) return Errno(parent);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(parent, " must be a directory of this user with mode 0700"));
  }
  return absl::OkStatus();
}

// Descriptors that came with a message, whatever else is wrong with it.
void TakeFds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

absl::Status WaitForFd(int fd, bool to_write, Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), std::max<Nanos>(timeout, 0));
  while (true) {
    const Nanos left = std::max<Nanos>(deadline - MonotonicNow(), 0);
    pollfd entry{fd, static_cast<short>(to_write ? POLLOUT : POLLIN), 0};
    const timespec wait{static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    const int ready = ppoll(&entry, 1, &wait, nullptr);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Errno("poll");
    if (ready == 0 && MonotonicNow() >= deadline)
      return absl::DeadlineExceededError("no answer in time");
  }
}

absl::StatusOr<UnixSocket> UnixSocket::Connect(const std::string& path, Nanos timeout) {
  UniqueFd directory;
  SHEAF_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path, directory));
  SHEAF_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  while (const int error = TryConnect(fd.get(), address)) {
    if (error == ECONNREFUSED) {
      return absl::UnavailableError(absl::StrCat("nobody listens at ", path));
    }
    if (error != EAGAIN) return absl::ErrnoToStatus(error, path);
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(path, " accepts no connection"));
    }
    // The kernel offers no event for "the backlog has room" to a non-blocking connect.
    poll(nullptr, 0, 1);
  }
  return UnixSocket(std::move(fd));
}

absl::StatusOr<std::pair<UnixSocket, UnixSocket>> UnixSocket::Pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  return std::pair(UnixSocket(UniqueFd(fds[0])), UnixSocket(UniqueFd(fds[1])));
}

absl::Status UnixSocket::Send(std::string_view bytes, absl::Span<const int> fds,
                              Nanos timeout) const {
  if (bytes.empty() || bytes.size() > kMaxMessageBytes || fds.size() > kMaxMessageFds) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes.size(), " bytes and ", fds.size(), " descriptors"));
  }
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxMessageFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
  }
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  while (sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
      return absl::UnavailableError("the peer closed the connection");
    }
    // ETOOMANYREFS: too many descriptors under way; the peer takes some out, as it makes room
    // otherwise.
    if (errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS) return Errno("sendmsg");
    const Nanos left = deadline - MonotonicNow();
    if (left <= 0) return absl::DeadlineExceededError("the peer does not read its socket");
    if (errno == EAGAIN) {
      SHEAF_RETURN_IF_ERROR(WaitForFd(fd_.get(), /*to_write=*/true, left));
    } else {
      poll(nullptr, 0, 1);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SocketMessage> UnixSocket::Receive(Nanos timeout) const {
  SocketMessage result;
  // Not cleared: most messages are short, and to clear a page that nobody has touched costs more than
  // to receive one.
  const auto bytes = std::make_unique_for_overwrite<char[]>(kMaxMessageBytes);
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  while (true) {
    iovec part{bytes.get(), kMaxMessageBytes};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxMessageFds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0) {
      if (errno == EINTR) continue;
      if (errno == ECONNRESET) return absl::UnavailableError("the peer closed the connection");
      if (errno != EAGAIN) return Errno("recvmsg");
      const Nanos left = deadline - MonotonicNow();
      if (left <= 0) return absl::DeadlineExceededError("the peer sent nothing in time");
      SHEAF_RETURN_IF_ERROR(WaitForFd(fd_.get(), /*to_write=*/false, left));
      continue;
    }
    TakeFds(message, result.fds);
    if ((message.msg_flags & MSG_CTRUNC) != 0 && result.fds.size() < kMaxMessageFds) {
      return absl::ResourceExhaustedError(
          "descriptors came that this process may not open: it has as many open files as it may "
          "have; close some or raise the limit (ulimit -n)");
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return absl::InvalidArgumentError("a message with too many bytes or descriptors");
    }
    if (size == 0) return absl::UnavailableError("the peer closed the connection");
    result.bytes.assign(bytes.get(), static_cast<size_t>(size));
    return result;
  }
}

absl::StatusOr<PeerCredentials> UnixSocket::Peer() const {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return Errno("SO_PEERCRED");
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

UnixListener::~UnixListener() {
  if (fd_.valid() && IsAtItsPath()) unlink(path_.c_str());
}

bool UnixListener::IsAtItsPath() const {
  struct stat info;
  return lstat(path_.c_str(), &info) == 0 && info.st_ino == inode_;
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path) {
  SHEAF_RETURN_IF_ERROR(CheckDirectory(path));
  UniqueFd directory;
  SHEAF_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path, directory));
  SHEAF_ASSIGN_OR_RETURN(UniqueFd probe, NewSocket());
  const int found = TryConnect(probe.get(), address);
  if (found == 0 || found == EAGAIN) {
    return absl::AlreadyExistsError(absl::StrCat("another process listens at ", path));
  }
  if (found == ECONNREFUSED) unlink(path.c_str());
  UnixListener result;
  SHEAF_ASSIGN_OR_RETURN(result.fd_, NewSocket());
  if (bind(result.fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(result.fd_.get(), SOMAXCONN) != 0) {
    return Errno(path);
  }
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Errno(path);
  result.path_ = path;
  result.inode_ = info.st_ino;
  return result;
}

absl::StatusOr<UnixSocket> UnixListener::Accept(Nanos timeout) const {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  while (true) {
    UniqueFd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return UnixSocket(std::move(fd));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN)
      return absl::ResourceExhaustedError(absl::StrCat("accept: ", std::strerror(errno)));
    const Nanos left = deadline - MonotonicNow();
    if (left <= 0) return absl::DeadlineExceededError("nobody connects");
    SHEAF_RETURN_IF_ERROR(WaitForFd(fd_.get(), /*to_write=*/false, left));
  }
}

}  // namespace sheaf
