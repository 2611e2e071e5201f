// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The process's half of shm/attach.h. Every wait has a deadline.
// Errors of both Attach functions: kNotFound, kUnavailable: no raylet at `socket_path`;
// kFailedPrecondition: another version or layout; kPermissionDenied: another user, or an unknown
// token; kResourceExhausted: the node is full; kDeadlineExceeded: no answer in time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/unix_socket.h"
#include "shm/attach.h"
#include "shm/segment.h"

namespace sheaf {

struct AttachRequest {
  std::string socket_path;
  AttachRole role = AttachRole::kDriver;
  std::string token;  // Worker: from TakeWorkerStart (base/config.h).
  std::string words;  // The command line, for listings.
  Nanos timeout = 10 * kSecond;
};

// What a process gets. All descriptors are its own and close-on-exec; sizes are checked, so mapping
// them is safe.
struct Attached {
  UnixSocket socket;  // Keep it open while any view of the arena lives.
  AttachWelcome welcome{};
  ProcessId process;
  Mapping bell_board;  // Read-write; Bell[kMaxProcessesPerNode]. Its fork child does not get it.
  std::shared_ptr<Mapping>
      process_segment;    // Read-write; shm/process_segment.h. Its fork child does not get it.
  UniqueFd arena;         // welcome.arena_bytes long, mapped by the store client.
  UniqueFd raylet_rings;  // For Mailbox::AddRing(RayletOf(process.node), fd, first=false,
                          // welcome.raylet_bell).
  Bell* board() { return reinterpret_cast<Bell*>(bell_board.data()); }
};

// Drivers and workers. A driver's executable (/proc/self/exe) goes along.
absl::StatusOr<Attached> Attach(const AttachRequest& request);

// A ring pair for Mailbox::AddRing(peer, segment, first, peer_bell).
struct NewRingPair {
  ProcessId peer;
  uint64_t ring = 0;
  bool first = false;
  uint32_t peer_bell = 0;
  UniqueFd segment;
};
// The next ring pair on the socket, after a kNewRing frame announced it; they come in the order of
// the frames. kUnavailable: the raylet is gone. kInvalidArgument: not a ring pair; it is dropped.
absl::StatusOr<NewRingPair> ReceiveRing(const UnixSocket& socket, Nanos timeout);

// A tool's connection: asks the raylet for state.
absl::StatusOr<UnixSocket> AttachTool(const std::string& socket_path, Nanos timeout);
// Sends the bytes of a proto::StateQuery and returns those of the proto::StateAnswer.
absl::StatusOr<std::string> AskRaylet(const UnixSocket& socket, std::string_view query,
                                      Nanos timeout);

// Both halves use these for what a ToolHead precedes. `limit_bytes` bounds what is taken from the
// peer.
absl::Status SendInParts(const UnixSocket& socket, std::string_view body, Nanos timeout);
absl::StatusOr<std::string> ReceiveInParts(const UnixSocket& socket, size_t limit_bytes,
                                           Nanos timeout);
// Appends one part to `body`. true: the message is whole. kInvalidArgument: not a part, or over
// `limit_bytes`.
absl::StatusOr<bool> AddPart(std::string_view message, size_t limit_bytes, std::string& body);
// The part of `body` from `offset` on, with its head; `offset` moves behind it.
std::string NextPart(std::string_view body, size_t& offset);

}  // namespace sheaf
