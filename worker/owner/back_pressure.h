// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How much of one process may wait for another: credits of calls, and credits of the way.
//
// Calls. What a caller has at one actor (unanswered, or not sent because the actor waits for room,
// starts or restarts) takes at most max_pending, in this process and in the actor's each; then
// `.remote()` waits. A call spends its bytes (TaskRecord::bytes) by being in a list of the actor's
// client, and gives them back by leaving it: with the reply, the error of a death, a cancellation.
// There is no counter that could differ from the lists, so nothing leaks: a reply that comes twice
// finds no call, a push that is repeated for another incarnation is the same call in the same list.
// The actor grants by answering.
//
// The way. Rings and links take whatever comes, and raylets keep what a process does not take. So
// bulk (calls, items of streams) leaves a process only while less than max_untaken of it is on its
// way to its receiver (Channel::queued_bytes); calls that find no room stay in their list, in
// order. Replies always leave: whoever waits for one makes room. But large ones go by the store
// then (CallExecution::Return), so that what is on its way is bounded by the calls that it answers.
//   Within a node: queued_bytes is what did not fit into the ring. The receiver gives room by
//     taking frames out of it (shm/ring.h).
//   Between nodes: what was sent less what the receiver has said it has taken out of its ring. It
//     says so each taken_step, as the sum of all frames since the two met (kTaken): a number, not a
//     step, so that one that comes twice or late changes nothing. Both count the same bytes
//     (RelayedBytes), since between two living processes no frame is lost or doubled: links number
//     their messages over reconnects, rings do not lose. What is never told, the last taken_step,
//     is less than max_untaken, so nobody waits for it.
//   The sender dies: the receiver's raylet says so behind the last frame; its sum goes with its
//     channel. The receiver dies: the sender's sum goes with the channel, its calls are decided by
//     the actor's state. Its next incarnation is another process, and both begin with nothing.
// Raylets grant nothing and hold nobody back: each process bounds its own pairs, so one receiver
// that is stopped takes at most max_untaken a sender, and no link or ring waits for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/frame.h"

namespace sheaf {

struct BackPressure {
  size_t max_pending = size_t{56} << 20;  // Of one caller at one actor: 64 MiB with all around it.
  size_t max_untaken = size_t{4} << 20;   // Bulk on its way, of one process to another.
  size_t taken_step = size_t{256} << 10;
};

// What a call takes beside its arguments, the larger of: at its caller (TaskRecord, ObjectEntry),
// at its executor (CallExecution and its frame).
inline constexpr size_t kCallBytes = 640;

// Receiver -> sender of another node; a kind of those that processes say to each other
// (base/frame.h).
inline constexpr auto kTaken = static_cast<FrameKind>(15);
struct Taken {
  uint64_t bytes;  // RelayedBytes of all frames of that sender, since the two met.
};

constexpr uint64_t RelayedBytes(uint64_t body_bytes) { return sizeof(RelayHead) + body_bytes; }

}  // namespace sheaf
