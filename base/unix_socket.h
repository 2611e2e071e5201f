// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Unix sockets of type SOCK_SEQPACKET: whole messages, each with up to kMaxMessageFds descriptors.
// Processes of one node meet over one such socket (shm/attach.h); afterwards only descriptors and
// the end of the connection travel on it. Thread-safe: one thread may send while another receives;
// two senders never mix their messages. Everything that came from a peer is bounded here: bytes,
// descriptors, time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/unique_fd.h"

namespace sheaf {

inline constexpr size_t kMaxMessageBytes = 64 * 1024;
inline constexpr size_t kMaxMessageFds = 16;

struct SocketMessage {
  std::string bytes;          // Never empty.
  std::vector<UniqueFd> fds;  // All close-on-exec.
};

struct PeerCredentials {
  pid_t pid = 0;  // As this process's pid namespace names it; 0 when it has no name there.
  uid_t uid = 0;
};

// One connection. Movable; the descriptor is non-blocking and close-on-exec.
class UnixSocket {
 public:
  UnixSocket() = default;
  explicit UnixSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // kNotFound: no socket at `path`. kUnavailable: nobody listens there. kDeadlineExceeded: not
  // accepted within `timeout`. kPermissionDenied: the file system refuses.
  static absl::StatusOr<UnixSocket> Connect(const std::string& path, Nanos timeout);
  // Two ends in this process, close-on-exec, for a child to inherit one.
  static absl::StatusOr<std::pair<UnixSocket, UnixSocket>> Pair();

  // Sends one message; `bytes` is not empty. kInvalidArgument: too many bytes or descriptors.
  // kDeadlineExceeded: the peer did not make room within `timeout` (0: now or never). kUnavailable:
  // the peer is gone.
  absl::Status Send(std::string_view bytes, absl::Span<const int> fds, Nanos timeout) const;
  // kUnavailable: the peer closed its end. kDeadlineExceeded: nothing came within `timeout`.
  // kInvalidArgument: the message had too many bytes or descriptors; it is consumed, its
  // descriptors are closed.
  absl::StatusOr<SocketMessage> Receive(Nanos timeout) const;
  // Who made the other end of the connection, as the kernel knows it.
  absl::StatusOr<PeerCredentials> Peer() const;

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  void Close() { fd_.Reset(); }
  UniqueFd Release() { return std::move(fd_); }

 private:
  UniqueFd fd_;
};

// Listens at a path; removes the file on destruction, if it is still its own.
class UnixListener {
 public:
  UnixListener() = default;
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  // `path` lies in a directory of this user with mode 0700: the protection of everything behind the
  // socket. kPermissionDenied: the directory is another user's or open to others. kAlreadyExists:
  // somebody listens at `path` (a socket file that a dead process left is replaced).
  // kInvalidArgument: the last part of the path is over 90 bytes.
  static absl::StatusOr<UnixListener> Listen(const std::string& path);
  // The file at the path is this socket even now: whoever connects there arrives here.
  bool IsAtItsPath() const;

  // The next connection, whoever made it: callers compare Peer().uid with their own.
  // kDeadlineExceeded: none within `timeout`. kResourceExhausted: no descriptors left.
  absl::StatusOr<UnixSocket> Accept(Nanos timeout) const;
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string path_;
  ino_t inode_ = 0;
};

// Waits until `fd` can be read (or written), its peer is gone or `timeout` is over; survives
// signals. kDeadlineExceeded: it is over.
absl::Status WaitForFd(int fd, bool to_write, Nanos timeout);

}  // namespace sheaf
