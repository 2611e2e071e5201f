// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One TCP connection between each two ranks of a group on several nodes, for what they say about
// operations; the arrays go another way (bulk_lane.h). link_formation.cc makes them: both ends
// prove that they read what the other published at the rendezvous, so only members of the job's
// cluster get in. What travels is neither encrypted nor signed: a group on several nodes needs a
// network in which nobody listens or forges packets, as Gloo and NCCL do.
//
//   frame: | uint32 bytes of the payload | uint32 kind | payload |     at most kMaxFrameBytes
//
// A connection that ends, or that nothing has crossed for about 15 s though the other node was
// asked, is closed for good: its rank is gone.
//
// Who reads. One thread at a time has the right to read (`reading_`): mostly one that waits for what
// the links bring (Drive), so that no other need wake up first. The links' own thread reads when
// nobody has waited for kLease, and answers pings meanwhile; while somebody waits again and again it
// leaves the connections alone, and looks each kLease whether that is still so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "collective/communicator.h"
#include "collective/net/node_socket.h"
#include "collective/rendezvous.h"
#include "collective/spinning.h"

namespace sheaf {

inline constexpr size_t kMaxFrameBytes = 64 * 1024;

enum class LinkFrameKind : uint32_t {
  kHello,   // link_formation.cc
  kAnswer,  // The same.
  kReady,   // The same.
  kPlace,   // For the rendezvous of the ranks of one node.
  kBulk,    // Where the sender's bulk transport awaits the receiver.
  kCall,    // net_records.h, from here on.
  kMessage,
  kTaken,
  kFailure,
  kPing,
  kPong,
  kLeave,
};

struct LinkFrame {
  LinkFrameKind kind;
  std::string_view bytes;
};

// One end of one connection, and what came on it that nobody has looked at.
struct Link {
  UniqueFd fd;
  std::string received;
};

// What the ranks know of each other.
struct NetMember {
  pid_t pid = 0;
  std::string node;
  std::string host;
};

// The frames at the start of `received`, whole ones only. kInvalidArgument: no frame of ours.
absl::StatusOr<std::vector<LinkFrame>> FramesIn(std::string_view received, size_t* used);
std::string EncodeFrame(LinkFrameKind kind, std::string_view bytes);

class PeerLinks {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    // What came from `rank` at one time, in order; `closed`: and nothing more will. On whatever
    // thread reads.
    virtual void OnFrames(int rank, std::span<const LinkFrame> frames, bool closed) = 0;
  };

  struct Formed {
    std::vector<Link> links;  // By rank; this rank's own is empty.
    std::vector<NetMember> members;
    uint64_t epoch = 0;
  };
  // Meets the other ranks at `rendezvous`, which is used until this returns. Errors as those of
  // FormShmCommunicator.
  static absl::StatusOr<Formed> Form(const CommunicatorOptions& options, Rendezvous& rendezvous);

  explicit PeerLinks(std::vector<Link> links);
  // Gives what was sent a moment to leave.
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Once: `handler` is called from now on, until this is destroyed.
  void Start(Handler& handler);
  // Any thread; never waits. What cannot be sent, as the link is closed, is dropped.
  void Send(int rank, LinkFrameKind kind, std::string_view bytes);
  void SendAll(LinkFrameKind kind, std::string_view bytes);
  // Reads what has come, if any, else waits until something comes, for at most `longest`; `spins`:
  // at first without a pause, as long as that pays. False: another thread reads, and nothing was
  // done. `came` is asked when no other thread can read any more: whether what the caller waits for
  // has come meanwhile; nothing is waited for then.
  bool Drive(Nanos longest, bool spins, absl::FunctionRef<bool()> came);
  // Whether a thread reads now. It ends that before it does anything else.
  bool Reading() const { return reading_.load(std::memory_order_acquire); }
  // Returns when the handler has seen what has come so far; at most about a second later.
  void Settle();
  // In a forked child: the links are the parent's; nothing of them is touched any more.
  void ForgetAfterFork();

 private:
  static constexpr Nanos kLease = 50 * kMillisecond;

  struct Peer {
    UniqueFd fd;           // Closed by who reads, under the mutex.
    std::string received;  // Of who reads.
    Mutex mutex;           // Held to send on `fd`, too.
    std::string to_send ABSL_GUARDED_BY(mutex);
  };

  void Loop();
  // The links' own thread: waits for what it has to do, and does it.
  void Turn(bool reads, int timeout_ms);
  bool BeginReading() { return !reading_.exchange(true, std::memory_order_acquire); }
  void EndReading() { reading_.store(false, std::memory_order_release); }
  // By who reads: what has come, after at most `timeout`. Whether anything had.
  bool ReadAll(Nanos timeout);
  void Receive(int rank);
  void Flush(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(peer.mutex);
  void Wake();

  Handler* handler_ = nullptr;
  std::vector<std::unique_ptr<Peer>> peers_;
  UniqueFd wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> reading_{false};
  std::atomic<Nanos> driven_{0};           // When somebody drove last.
  Spinning spinning_{200 * kMicrosecond};  // Of who reads.
  std::unique_ptr<ClosedInChildren> in_children_;
  std::unique_ptr<ThreadExecutor> thread_;  // Last: it uses the others.
};

}  // namespace sheaf
