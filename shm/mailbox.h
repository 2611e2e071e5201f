// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// All rings of one process, and its bell: the Transport between the processes of a node.
//
// Not thread-safe: the caller holds one lock (a worker's runtime) or is one loop (the raylet).
// Frames of one lane of one peer arrive in order. What does not fit into a ring waits here, without
// bound by itself: the caller looks at queued_bytes() and holds its users back. Outside Poll and
// Drain a frame is published when Send returns. What handlers send during them is published in the
// order of the sends, in batches, at the latest when Poll or Drain returns: one fence and bell for
// up to kBatchFrames.
//
// Polls look at the peers that were heard of lately. One that was quiet for kQuietPolls polls, of
// more than kAlwaysWatched, calls when it has something (ring.h, doorbell.h), so that what a poll
// costs does not grow with the peers that say nothing.
//
// Bells that are put off (PutBellsOff). Who calls many sleeping receivers in turn would else wake
// each for one frame. While as many as there are cores still look at what they were woken for
// (rung_bells.h), the bell of another that sleeps is put off: what is sent to it meanwhile is
// published without a fence or a look at its bell, and the fence, the call and the ring (Tell) come
// once, behind all of it. To the receiver that is a sender that was stopped between publishing and
// ringing; the models of doorbell.h have it, and its death, too. Bells that were put off are rung
// in their order, as those in front of them have looked, by sends and polls; whoever neither sends
// nor polls any more calls RingAllPutOff. Control frames are never put off.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/transport.h"
#include "shm/doorbell.h"
#include "shm/ring.h"
#include "shm/rung_bells.h"

namespace sheaf {

class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // May call Mailbox::To, Send, AddRing, Forget and Drain; `frame` is valid until it returns. Its
  // bytes may lie in memory that the peer can still write: read once what is checked.
  virtual void OnFrame(ProcessId from, const Frame& frame) = 0;
  // `from` wrote what no correct peer writes; nothing more is read from it.
  virtual void OnMalformed(ProcessId from) = 0;
};

// Since the mailbox was made.
struct MailboxCounts {
  uint64_t work_frames = 0, control_frames = 0;  // Sent.
  uint64_t bytes = 0;                            // Of their bodies.
  uint64_t waited = 0;  // Frames, or pieces of long ones, that found no room in the ring.
  uint64_t wakes = 0;   // Receivers woken by a system call.
};

class Mailbox final : public Transport {
 public:
  // `board` is the node's bell board, kBellBoardBytes long; `own_bell` this process's index on it.
  // `make_contact` is called when the first frame for an unknown peer is queued; the answer is
  // AddRing or Forget.
  Mailbox(Bell* board, uint32_t own_bell, std::function<void(ProcessId)> make_contact);
  ~Mailbox() override;

  Channel& To(ProcessId peer) override;
  void Forget(ProcessId peer) override;

  // The ring pair with `peer`, whose bell is `peer_bell`. What was queued for it is sent.
  // kInvalidArgument: the segment or the bell number is not usable; kAlreadyExists: there is a ring
  // already.
  absl::Status AddRing(ProcessId peer, int segment_fd, bool first, uint32_t peer_bell);
  bool HasRing(ProcessId peer) const;

  // Hands at most `budget` records a lane of each peer to `handler`, control before work; work only
  // when `take_work`. Sends what was queued and now fits. Returns the number of frames handed over.
  // A loop that does nothing else between polls pauses (SpinStep) also after one that found frames:
  // who looks at a cursor again at once takes the cache line from its writer for each record.
  size_t Poll(FrameHandler& handler, bool take_work, size_t budget = 256);
  // Hands over everything that `peer`, dead or alive, has published. For the time after a death.
  void Drain(ProcessId peer, FrameHandler& handler);
  // Poll has something to do: the second look of a sleeper.
  bool Pending(bool take_work) const;
  // Looks at all peers, once: for now and then, should one of them not have called.
  void LookAtAll();
  // Some frame waits here for room. Its receiver rings this process's bell when it has made some.
  bool HasQueued() const { return queued_channels_ != 0; }

  // From now on bells are put off while `at_once` receivers look; while this process polls, that is
  // has nothing else to do, kWaitingTimes as many may. `clock` outlives the mailbox.
  void PutBellsOff(const Clock& clock, size_t at_once);
  bool HasPutOff() const { return !put_off_.empty(); }
  // Rings those that may be rung now. A process that polls no more, or sleeps, rings all.
  void RingPutOff() { RingPutOff(kWaitingTimes * at_once_); }
  void RingAllPutOff() { RingPutOff(SIZE_MAX); }

  // Peers that each Poll looks at.
  size_t watched() const { return watched_.size(); }

  Bell& bell() { return board_[own_bell_]; }
  const MailboxCounts& counts() const { return counts_; }

  static constexpr int kBatchFrames = 32;
  static constexpr uint32_t kQuietPolls = 256;
  static constexpr size_t kAlwaysWatched = 8;
  static constexpr size_t kWaitingTimes = 12;

 private:
  class PeerChannel;
  void Flush(PeerChannel& channel);
  void FlushLane(PeerChannel& channel, Lane lane);
  void AddToBatch(PeerChannel& channel, Lane lane);
  void CloseBatch();
  void Ring(Bell& bell, Lane lane) { counts_.wakes += RingBell(bell, lane) ? 1 : 0; }
  // Tells the peer of what was published in `lane`; sooner or later.
  void TellInTime(PeerChannel& channel, Lane lane);
  void RingPutOff(size_t at_once);
  // Tells the peer of what was published in `lane`, as of something in lane `as`.
  void Tell(PeerChannel& channel, Lane lane, Lane as);
  void TakeCalls();
  void Watch(PeerChannel& channel);
  bool Unwatch(PeerChannel& channel);  // False: there is something to look at.
  size_t PollLane(PeerChannel& channel, Lane lane, FrameHandler& handler, size_t budget);
  // Hands over one record, or keeps it as a piece of a frame; false: it is malformed.
  bool TakeRecord(PeerChannel& channel, Lane lane, FrameHandler& handler, const Frame& record,
                  bool more, size_t* handled);
  void EndPolling();
  void DeleteForgotten();

  Bell* const board_;
  const uint32_t own_bell_;
  const std::function<void(ProcessId)> make_contact_;
  absl::flat_hash_map<ProcessId, PeerChannel*> by_peer_;
  std::vector<std::unique_ptr<PeerChannel>> channels_;  // In order of first contact.
  std::vector<PeerChannel*> watched_;                   // Those that each Poll looks at.
  size_t unwatched_ = 0;                                // The others that live and have a ring.
  absl::flat_hash_map<uint32_t, std::vector<PeerChannel*>> by_call_;  // With rings, by their bit.
  MailboxCounts counts_;
  PeerChannel* last_to_ = nullptr;  // What To found last: a stream of frames goes to one peer.
  size_t queued_channels_ = 0;
  int polling_ = 0;         // Depth of Poll and Drain: channels are destroyed only at depth 0.
  bool forgotten_ = false;  // Some channel waits for its destruction.
  // Frames that a handler sent and nobody was told of yet: to one lane of one peer, so that
  // publication keeps the order of the sends also between peers.
  PeerChannel* batch_ = nullptr;
  Lane batch_lane_ = Lane::kWork;
  int batch_frames_ = 0;
  std::optional<RungBells> rung_;  // None: no bell is put off.
  size_t at_once_ = 0;
  std::deque<PeerChannel*> put_off_;  // Whose bells are, for their work lanes. The longest first.
  uint32_t sends_behind_ = 0;         // To one of them.
};

}  // namespace sheaf
