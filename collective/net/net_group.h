// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the ranks of a group on several nodes know of each other while they work: what each called,
// who is gone, and why the group ended. The counterpart of shm_group.h over links. When a rank is
// late all are asked how far they are, so that the error names the one that holds up the others.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "collective/communicator.h"
#include "collective/net/bulk_lane.h"
#include "collective/net/peer_links.h"
#include "collective/net_records.h"
#include "collective/rendezvous.h"
#include "collective/shm/shm_group.h"

namespace sheaf {

// Thread-safe, but Enter and Finish of one thread at a time, and each end of a pair as well.
class NetGroup final : public PeerLinks::Handler {
 public:
  // Meets the other ranks. Errors as those of FormShmCommunicator.
  static absl::StatusOr<std::unique_ptr<NetGroup>> Form(const CommunicatorOptions& options,
                                                        Rendezvous& rendezvous);
  // Tells the others that this rank leaves. Does nothing in a forked child.
  ~NetGroup() override;

  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  uint64_t epoch() const { return epoch_; }
  const CommunicatorOptions& options() const { return options_; }
  const NetMember& member(int rank) const { return members_[static_cast<size_t>(rank)]; }

  // Makes the connections for arrays with the ranks that `wanted` names (both ends name each other).
  absl::Status ConnectBulk(const std::function<bool(int rank)>& wanted, Nanos deadline);
  // Waits until all ranks have come this far. kUnavailable: one did not, and begins again.
  absl::Status AwaitFormed(Nanos deadline);
  // A rendezvous among some of the ranks, by their places in `ranks`; valid as long as this. What
  // it goes through:
  std::unique_ptr<Rendezvous> LocalRendezvous(std::vector<int> ranks);
  void SayPlace(const std::vector<int>& ranks, const std::string& bytes);
  // What it said last. kUnavailable: it is gone.
  absl::StatusOr<std::string> PlaceOf(int rank) const;
  // Called when the group fails, at once if it has, on any thread; never again once this was called
  // with nullptr.
  void OnFailure(std::function<void(const std::string& why)> end_others);

  // The next collective operation, in two steps. Announce tells all ranks that this one has entered
  // it, with `inlined`, at most kInlineBytes, and fills `waiting`; AwaitEntered waits until all have
  // and compares what they called. Between the two bytes may be sent, for what is sent before a
  // rank has called something else ends with the group.
  void Announce(const Operation& operation, bool interruptible, std::string_view inlined,
                Waiting* waiting);
  absl::Status AwaitEntered(const Waiting& waiting);
  void Finish(const Waiting& waiting);
  // What `rank` gave Announce, from AwaitEntered on until the next Announce; not this rank's own.
  const std::string& Inlined(int rank) const { return inlined_[static_cast<size_t>(rank)]; }
  static constexpr size_t kInlineBytes = 32 * 1024;

  // Waits until the receives of `batch`, or all of it, are done.
  absl::Status Await(const Waiting& waiting, BulkLane& lane, const BulkBatch& batch,
                     BulkLane::Until until);
  BulkSockets& bulk() { return *bulk_; }
  // Ends all transfers. Any thread.
  void BreakBulk() {
    if (bulk_ != nullptr) bulk_->Break();
  }

  // One message to or from operation.peer. What is too long to travel with its announcement is
  // moved by `move`, at both ends.
  using Move = absl::FunctionRef<absl::Status(const Waiting& waiting)>;
  absl::Status SendMessage(const Operation& operation, bool interruptible, Move move);
  absl::Status ReceiveMessage(const Operation& operation, bool interruptible, Move move);
  // The `move` for ranks of other nodes.
  absl::Status MoveMessage(const Waiting& waiting);

  // The error of a part of `waiting` that went without this group's help: `status` names the rank
  // `culprit` (-1: none).
  absl::Status FailPart(const Waiting& waiting, const absl::Status& status, int culprit);
  // Ends the group for all ranks, unless it has ended before; returns the failure that ended it.
  absl::Status Fail(absl::StatusCode code, int culprit, absl::string_view text);
  // OK, or how the group ended, as far as this rank knows.
  absl::Status Failure() const;
  bool Forked() const;
  // In a forked child: forgets the group without a word.
  void ForgetAfterFork();

 private:
  static constexpr uint64_t kMessageWindow = 8;  // Messages of a pair that nobody has received.
  static constexpr size_t kHistory = 64;
  static constexpr Nanos kPingTime = 400 * kMillisecond;
  static constexpr Nanos kBreakTime =
      2 * kSecond;  // Between the end of a connection and its reason.
  static constexpr Nanos kLookPeriod = 50 * kMillisecond;

  struct Message {
    MessageRecord record;
    std::string bytes;
  };
  struct Call {
    NetCallRecord record;
    std::string inlined;
  };
  struct Peer {
    std::deque<Call> calls;            // Entered there and not here, or not yet compared.
    std::deque<Message> messages;      // Sent here and not received.
    uint64_t sent = 0;                 // Messages to it.
    uint64_t received = 0;             // Messages from it.
    uint64_t taken = 0;                // Of `sent`, what it has received.
    uint64_t entered = 0;              // By its calls.
    std::optional<uint64_t> finished;  // If it has said so, at `entered`.
    uint64_t pong = 0;                 // The last ping that it answered.
    bool formed = false;               // It has all that it works with.
    bool gone = false;
    bool left = false;  // Gone, and it said so.
    std::optional<FailureRecord> failure;
    std::string failure_text;
    std::string place;       // LocalRendezvous.
    std::string bulk_place;  // Its proof, and where it awaits this rank (net_bulk.cc).
  };
  explicit NetGroup(const CommunicatorOptions& options);
  void OnFrames(int rank, std::span<const LinkFrame> frames, bool closed) override;
  bool OnFrame(int rank, Peer& peer, const LinkFrame& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StateRecord OwnState(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Lets the links bring something, on this thread if no other one reads them; at most about
  // `timeout`. `ready` is asked before this thread sleeps beside one that reads.
  void AwaitNews(Nanos timeout, absl::FunctionRef<bool()> ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until `ready` says so, asked under the mutex. Errors: the group's failure, peer's end, or
  // lateness. What waits, or tells the others of a failure, releases the mutex meanwhile.
  template <class Ready>
  absl::Status WaitUntil(const Waiting& waiting, int peer, Ready ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Compare(const Waiting& waiting, std::vector<NetCallRecord> calls);
  bool Interrupted(const Waiting& waiting) const {
    return waiting.interruptible && options_.interrupted && options_.interrupted();
  }
  absl::Status FailInterrupted(const Waiting& waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The connection for arrays with `peer` (-1: nobody knows which) has ended.
  absl::Status FailBroken(const Waiting& waiting, int peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until this rank or `peer` has ended, at most until `until`.
  void AwaitEnd(int peer, Nanos until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether each rank of this machine has a core of its own.
  bool Spins() const;
  // The first failure that another rank has told of, as this rank's own.
  absl::Status Adopt(const Waiting& waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Lost(const Waiting& waiting, int peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Late(const Waiting& waiting, int peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `others_text`: what the others are told, if not `text`.
  absl::Status FailLocked(absl::StatusCode code, int culprit, const std::string& text,
                          const std::string& others_text = "")
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndOthers(const std::string& why);
  std::string NameOfRank(int rank) const;
  std::string LastOperationOf(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Peer& At(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return peers_[static_cast<size_t>(rank)];
  }
  const Peer& At(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return peers_[static_cast<size_t>(rank)];
  }

  const CommunicatorOptions options_;
  const uint64_t fork_count_;
  uint64_t epoch_ = 0;
  std::vector<NetMember> members_;
  bool spins_ = false;
  std::vector<std::string> inlined_;  // By rank; of the thread that runs a collective operation.

  mutable Mutex mutex_;
  CondVar changed_;
  int beside_ ABSL_GUARDED_BY(mutex_) = 0;  // Threads that wait beside one that reads.
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mutex_);
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t pings_ ABSL_GUARDED_BY(mutex_) = 0;
  // By sequence; arrays are not looked at.
  std::array<Operation, kHistory> history_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // Somebody has failed.

  Mutex end_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // Held while end_others_ runs, too.
  std::function<void(const std::string&)> end_others_ ABSL_GUARDED_BY(end_mutex_);

  std::unique_ptr<BulkSockets> bulk_;
  std::unique_ptr<PeerLinks> links_;  // Last: its thread uses the others.
};

}  // namespace sheaf
