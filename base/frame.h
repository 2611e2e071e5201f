// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What processes say to each other: a kind, and bytes. Each kind has one sender role, one receiver
// role and one body, named here. Bodies are fixed structs where calls per second count
// (worker/wire.h, object_store/messages.h) and protobuf messages (proto/raylet.proto) elsewhere.
// A receiver drops kinds it does not know, and treats every body as untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace sheaf {

// Work waits for a worker that is busy; control (replies too) wakes it.
enum class Lane : uint8_t { kWork = 0, kControl = 1 };

enum class FrameKind : uint16_t {
  kNone = 0,
  // Owner <-> executor, borrower <-> owner, caller <-> actor: worker/wire.h.
  kTemplate = 1,  // The constant part of a task, named by a number from here on.
  kPushTask = 2,  // Lane kWork.
  kTaskReply = 3,
  kStreamItem = 4,  // One value of a streaming generator.
  kStreamAck = 5,   // Items consumed so far.
  kCancelTask = 6,
  kTakeBack = 7,      // "Give back what you have not started."
  kTaskReturned = 8,  // "Not started, not going to be": another push is allowed.
  kTransitDone = 9,   // "The references of your frame are registered; let go of yours."
  kObjectQuery = 10,  // Borrower asks the owner for values or locations.
  kObjectAnswer = 11,
  kActorQuery =
      12,  // Where is this actor? Asked of its creator (or the GCS), answered on each change.
  kActorAnswer = 13,
  kActorControl = 14,  // Kill, or "this handle went out of scope".
  // Process -> raylet: proto/raylet.proto.
  kJobStart = 32,
  kLeaseDemand = 33,
  kLeaseReturn = 34,
  kBlocked = 35,
  kConnectRequest = 36,
  kPeerDrained = 37,
  kRefsReport = 38,
  kNodeRefsAck = 39,
  kKillWorker = 40,
  kGroupRequest = 41,
  kActorReport = 42,
  kStateQuery = 43,  // Both ways: the raylet asks processes for their tasks and objects too.
  kStateAnswer = 44,
  kWorkerReady = 45,
  kAdoptedQuery = 46,
  kGoodbye = 47,  // The process leaves on purpose.
  kRelay = 48,    // RelayHead, then the body of a frame for a process of another node.
  // Raylet -> process: proto/raylet.proto.
  kLeaseGrant = 64,
  kLeaseRefused = 65,
  kLeaseRevoke = 66,
  kLeaseBegin = 67,  // To the worker: from now on pushes of this lease are welcome.
  kLeaseEnd = 68,
  kNewRing = 69,  // Its descriptor waits on the socket.
  kConnectRefused = 70,
  kProcessDied = 71,
  kRefsReported = 72,
  kNodeRefs = 73,
  kGroupState = 74,
  kShutdown = 75,
  kLogLines = 76,
  kAdoptedAnswer = 77,
  kJobStarted = 78,
  kRelayed = 79,     // RelayHead, then the body of a frame from a process of another node.
  kNodeGone = 80,    // A node of the cluster is dead.
  kActorLease = 81,  // To a detached actor: until when it may begin calls.
  kNodeSilent = 82,  // Neither a node nor the GCS is heard; or they are again.
  // Raylet -> raylet of another node: proto/raylet.proto.
  kRemoteJob = 96,        // What a worker of a job is; comes before the first demand of that job.
  kSpillbackDemand = 97,  // A demand that finds no room at its owner's node.
  kPrepareBundles = 98,   // Placement groups, in two phases.
  kBundlesPrepared = 99,
  kCommitBundles = 100,
  kReturnBundles = 101,
  kOwnerLeft = 103,   // A process is dead: what it asked for on other nodes ends.
  kOrphanRefs = 104,  // "Which of these objects of dead owners have you? Keep them for my node."
  kOrphanRefsAck = 105,
  // Process <-> raylet about objects: object_store/messages.h.
  kStoreFirst = 128,
  kStoreLast = 159,
  // To and from the GCS, routed by raylets: proto/gcs.proto.
  kGcsRequest = 192,
  kGcsReply = 193,
  kGcsEvent = 194,
};

// A view into a ring or a buffer; valid until the handler that got it returns. 8-byte aligned.
struct Frame {
  FrameKind kind = FrameKind::kNone;
  std::string_view body;
};

// A frame that crosses nodes travels inside kRelay (process -> its raylet) and kRelayed (raylet ->
// its process), on the lane that it is meant for.
struct RelayHead {
  uint64_t peer = 0;  // Packed ProcessId: the receiver in kRelay, the sender in kRelayed.
  uint16_t kind = 0;  // FrameKind of what follows.
  uint16_t lane = 0;
  uint32_t unused = 0;
};

// The fixed struct at the start of `body`, or nullptr when it is too short to hold one.
template <class T>
const T* FrameHead(std::string_view body) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
  return body.size() < sizeof(T) ? nullptr : reinterpret_cast<const T*>(body.data());
}

template <class T>
std::string_view AsBytes(const T& head) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&head), sizeof(T)};
}

}  // namespace sheaf
