// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/attach_client.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/frame.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace sheaf {
namespace {

absl::Status ToStatus(AttachResult result, std::string_view text, std::string_view version) {
  const std::string words(text);
  switch (result) {
    case AttachResult::kWelcome:
      return absl::OkStatus();
    case AttachResult::kOtherVersion:
    case AttachResult::kOtherLayout:
      return absl::FailedPreconditionError(
          absl::StrCat(words, " (this process: Sheaf ",
                       absl::string_view(kSheafVersion.data(), kSheafVersion.size()),
                       ", node: ", std::string(version), ")"));
    case AttachResult::kOtherUser:
    case AttachResult::kUnknownToken:
      return absl::PermissionDeniedError(words);
    case AttachResult::kNodeFull:
      return absl::ResourceExhaustedError(words);
    case AttachResult::kShuttingDown:
      return absl::UnavailableError(words);
    case AttachResult::kBadHello:
      break;
  }
  return absl::InvalidArgumentError(words);
}

AttachHello HelloOf(const AttachRequest& request) {
  AttachHello hello{};
  hello.magic = kAttachMagic;
  hello.layout_hash = kShmLayoutHash;
  hello.role = static_cast<uint32_t>(request.role);
  hello.os_pid = getpid();
  StoreText(hello.token, request.token);
  StoreText(hello.version, kSheafVersion);
  StoreText(hello.words, request.words);
  return hello;
}

// Sends the hello and returns the answer: a welcome, with its descriptors.
absl::StatusOr<SocketMessage> Greet(const UnixSocket& socket, const AttachRequest& request,
                                    Nanos deadline, AttachWelcome& welcome) {
  const AttachHello hello = HelloOf(request);
  UniqueFd executable;
  std::vector<int> fds;
  if (request.role == AttachRole::kDriver) {
    executable.Reset(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    if (!executable.valid()) return absl::ErrnoToStatus(errno, "cannot open /proc/self/exe");
    fds.push_back(executable.get());
  }
  absl::StatusOr<SocketMessage> answer = [&]() -> absl::StatusOr<SocketMessage> {
    SHEAF_RETURN_IF_ERROR(socket.Send(AsBytes(hello), fds, deadline - MonotonicNow()));
    return socket.Receive(deadline - MonotonicNow());
  }();
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat("the raylet did not answer: ", answer.status().message()));
  }
  if (answer->bytes.size() != sizeof(welcome)) {
    return absl::FailedPreconditionError("what listens there is no raylet of this version");
  }
  std::memcpy(&welcome, answer->bytes.data(), sizeof(welcome));
  if (welcome.magic != kAttachMagic) {
    return absl::FailedPreconditionError("what listens there is no raylet of this version");
  }
  SHEAF_RETURN_IF_ERROR(ToStatus(static_cast<AttachResult>(welcome.result), LoadText(welcome.text),
                                 LoadText(welcome.version)));
  return answer;
}

absl::StatusOr<UnixSocket> ConnectTo(const std::string& path, Nanos timeout) {
  absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(path, timeout);
  if (!socket.ok()) {
    return absl::Status(socket.status().code(),
                        absl::StrCat("no node runs at ", path, ": ", socket.status().message()));
  }
  SHEAF_ASSIGN_OR_RETURN(const PeerCredentials peer, socket->Peer());
  if (peer.uid != geteuid() && peer.uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, " is a socket of user ", peer.uid));
  }
  return socket;
}

}  // namespace

absl::StatusOr<Attached> Attach(const AttachRequest& request) {
  const Nanos deadline = Deadline(MonotonicNow(), request.timeout);
  Attached result;
  SHEAF_ASSIGN_OR_RETURN(result.socket, ConnectTo(request.socket_path, request.timeout));
  SHEAF_ASSIGN_OR_RETURN(SocketMessage answer,
                         Greet(result.socket, request, deadline, result.welcome));
  const AttachWelcome& welcome = result.welcome;
  if (answer.fds.size() != kAttachFds || welcome.bell >= kMaxProcessesPerNode ||
      welcome.raylet_bell >= kMaxProcessesPerNode) {
    return absl::FailedPreconditionError("the raylet sent an incomplete welcome");
  }
  const auto take = [&](AttachFd which) -> UniqueFd& {
    return answer.fds[static_cast<size_t>(which)];
  };
  SHEAF_RETURN_IF_ERROR(CheckSegment(take(AttachFd::kArena).get(), welcome.arena_bytes));
  SHEAF_RETURN_IF_ERROR(CheckSegment(take(AttachFd::kRayletRings).get(), kRingPairBytes));
  SHEAF_RETURN_IF_ERROR(CheckSegment(take(AttachFd::kBellBoard).get(), kBellBoardBytes));
  SHEAF_RETURN_IF_ERROR(CheckSegment(take(AttachFd::kProcessSegment).get(), kProcessSegmentBytes));
  SHEAF_ASSIGN_OR_RETURN(result.bell_board, Mapping::Map(take(AttachFd::kBellBoard).get(), 0,
                                                         kBellBoardBytes, Access::kReadWrite));
  SHEAF_ASSIGN_OR_RETURN(Mapping segment, Mapping::Map(take(AttachFd::kProcessSegment).get(), 0,
                                                       kProcessSegmentBytes, Access::kReadWrite));
  SHEAF_RETURN_IF_ERROR(result.bell_board.DontFork());
  SHEAF_RETURN_IF_ERROR(segment.DontFork());
  result.process_segment = std::make_shared<Mapping>(std::move(segment));
  result.process = ProcessId::Unpack(welcome.process);
  result.arena = std::move(take(AttachFd::kArena));
  result.raylet_rings = std::move(take(AttachFd::kRayletRings));
  return result;
}

absl::StatusOr<NewRingPair> ReceiveRing(const UnixSocket& socket, Nanos timeout) {
  SHEAF_ASSIGN_OR_RETURN(SocketMessage message, socket.Receive(timeout));
  const RingTag* head = FrameHead<RingTag>(message.bytes);
  if (head == nullptr || head->magic != kAttachMagic || message.fds.size() != 1) {
    return absl::InvalidArgumentError("the message on the socket is no ring pair");
  }
  SHEAF_RETURN_IF_ERROR(CheckSegment(message.fds[0].get(), kRingPairBytes));
  return NewRingPair{ProcessId::Unpack(head->peer), head->ring, head->first == 1, head->peer_bell,
                     std::move(message.fds[0])};
}

absl::StatusOr<UnixSocket> AttachTool(const std::string& socket_path, Nanos timeout) {
  AttachRequest request;
  request.socket_path = socket_path;
  request.role = AttachRole::kTool;
  SHEAF_ASSIGN_OR_RETURN(UnixSocket socket, ConnectTo(socket_path, timeout));
  AttachWelcome welcome;
  SHEAF_RETURN_IF_ERROR(
      Greet(socket, request, Deadline(MonotonicNow(), timeout), welcome).status());
  return socket;
}

absl::StatusOr<std::string> AskRaylet(const UnixSocket& socket, std::string_view query,
                                      Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  SHEAF_RETURN_IF_ERROR(SendInParts(socket, query, timeout));
  return ReceiveInParts(socket, kMaxToolAnswer, deadline - MonotonicNow());
}

std::string NextPart(std::string_view body, size_t& offset) {
  const size_t size = std::min(kMaxToolPart, body.size() - offset);
  const ToolHead head{kAttachMagic, offset + size < body.size() ? 1u : 0u,
                      static_cast<uint32_t>(size)};
  std::string part(AsBytes(head));
  part.append(body.substr(offset, size));
  offset += size;
  return part;
}

absl::StatusOr<bool> AddPart(std::string_view message, size_t limit_bytes, std::string& body) {
  const ToolHead* head = FrameHead<ToolHead>(message);
  if (head == nullptr || head->magic != kAttachMagic ||
      message.size() != sizeof(ToolHead) + head->body_bytes) {
    return absl::InvalidArgumentError("not a part of a question or an answer");
  }
  if (body.size() + head->body_bytes > limit_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("a message of over ", limit_bytes, " bytes"));
  }
  body.append(message.substr(sizeof(ToolHead)));
  return head->more == 0;
}

absl::Status SendInParts(const UnixSocket& socket, std::string_view body, Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  size_t offset = 0;
  do {
    SHEAF_RETURN_IF_ERROR(socket.Send(NextPart(body, offset), {}, deadline - MonotonicNow()));
  } while (offset < body.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReceiveInParts(const UnixSocket& socket, size_t limit_bytes,
                                           Nanos timeout) {
  const Nanos deadline = Deadline(MonotonicNow(), timeout);
  std::string body;
  while (true) {
    SHEAF_ASSIGN_OR_RETURN(const SocketMessage message, socket.Receive(deadline - MonotonicNow()));
    SHEAF_ASSIGN_OR_RETURN(const bool whole, AddPart(message.bytes, limit_bytes, body));
    if (whole) return body;
  }
}

}  // namespace sheaf
