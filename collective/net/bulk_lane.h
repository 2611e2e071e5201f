// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Moves arrays between the ranks of a group on several nodes, over TCP connections of their own
// (net_bulk.cc makes and proves them). What travels is the bytes of the arrays and nothing else:
// both ends of a connection begin the same transfers in the same order with the same sizes, as they
// run the same operation, which the links have compared.
//
// Who moves bytes. The thread that waits for some of them moves all that its lane has begun, in
// both directions and with all peers, straight between sockets and arrays. No other thread takes
// part, so nothing moves while nobody waits, and nobody touches an array once a lane was given up.
//
// End. Break shuts all connections down, for good: a wait returns at once, now and later. A lane on
// which a wait failed is given up (Abandon); where its bytes stand nobody knows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "collective/net/node_socket.h"
#include "collective/spinning.h"

namespace sheaf {

// The connections of one rank.
class BulkSockets {
 public:
  // Collective operations, one at a time, and messages of pairs, beside them.
  enum class Lane : uint8_t { kCollective, kMessage };
  static constexpr size_t kLanes = 2;

  // `spins`: a thread that waits may look without a pause for a while, as each rank of this node
  // has a core of its own.
  BulkSockets(int world_size, bool spins)
      : fds_(kLanes * static_cast<size_t>(world_size)), spins_(spins), in_children_([this] {
          for (UniqueFd& fd : fds_) fd.Reset();
        }) {}

  // What was sent still arrives, unless they are broken.
  ~BulkSockets() {
    if (!broken()) CloseDelivered(fds_, kLinger);
  }
  BulkSockets(const BulkSockets&) = delete;
  BulkSockets& operator=(const BulkSockets&) = delete;

  void Add(int peer, Lane lane, UniqueFd fd) { fds_[IndexOf(peer, lane)] = std::move(fd); }
  bool Has(int peer, Lane lane) const { return fds_[IndexOf(peer, lane)].valid(); }
  int fd(int peer, Lane lane) const { return fds_[IndexOf(peer, lane)].get(); }
  int world_size() const { return static_cast<int>(fds_.size() / kLanes); }
  bool spins() const { return spins_; }

  // Any thread, also while others wait.
  void Break();
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // In a forked child: the connections are the parent's.
  void ForgetAfterFork();

 private:
  static constexpr Nanos kLinger = kSecond;
  static size_t IndexOf(int peer, Lane lane) {
    return static_cast<size_t>(peer) * kLanes + static_cast<size_t>(lane);
  }
  std::vector<UniqueFd> fds_;
  const bool spins_;
  std::atomic<bool> broken_{false};
  const ClosedInChildren in_children_;  // Last: it uses the others.
};

// The transfers of one step that are not done. Outlives them, or the lane is abandoned before.
struct BulkBatch {
  size_t sends = 0;
  size_t receives = 0;
};

// One thread at a time. Two lanes that share connections, as both ends of a pair's messages do, use
// each in one direction only.
class BulkLane {
 public:
  enum class Outcome { kDone, kLate, kBroken, kStopped };
  struct Result {
    Outcome outcome;
    int peer = -1;  // Whose bytes were waited for, or whose connection broke.
  };
  enum class Until { kReceived, kAll };

  BulkLane(BulkSockets& sockets, BulkSockets::Lane lane);

  // Begins a transfer; the bytes stay where they are until it is done. Nothing waits.
  void Send(int peer, const std::byte* bytes, size_t size, BulkBatch& batch);
  void Receive(int peer, std::byte* bytes, size_t size, BulkBatch& batch);
  // Moves what can be moved at once, if anything; what is wrong is found by Await.
  void Move();
  // Moves bytes until the receives of `batch`, or all of its transfers, are done. `stop` is asked
  // about every kLookPeriod, and ends the wait. `lost` is asked when nothing has moved for as long,
  // of all with whom something is to be moved: whether that rank is known to be gone; it counts as
  // a connection that ended. On another outcome than kDone the lane is to be abandoned.
  Result Await(const BulkBatch& batch, Until until, Nanos deadline, absl::FunctionRef<bool()> stop,
               absl::FunctionRef<bool(int peer)> lost);
  // Forgets all transfers.
  void Abandon();

 private:
  static constexpr Nanos kLookPeriod = 50 * kMillisecond;
  // At once in one direction: what was just copied is still in the cache for what is done next.
  static constexpr size_t kMostAtOnce = 256 * 1024;

  struct Outgoing {
    const std::byte* bytes;
    size_t left;
    BulkBatch* batch;
  };
  struct Incoming {
    std::byte* bytes;
    size_t left;
    BulkBatch* batch;
  };
  // First in, first out; takes no memory before it is used.
  template <class T>
  class Queue {
   public:
    bool empty() const { return next_ == items_.size(); }
    T& front() { return items_[next_]; }
    void push_back(const T& item) { items_.push_back(item); }
    void pop_front() {
      if (++next_ == items_.size()) clear();
    }
    void clear() {
      items_.clear();
      next_ = 0;
    }

   private:
    std::vector<T> items_;
    size_t next_ = 0;
  };
  struct Flow {
    int fd = -1;
    Queue<Outgoing> sends;
    Queue<Incoming> receives;
  };
  enum class Moved { kNothing, kSome, kEnd };
  static Moved MoveOut(Flow& flow);
  static Moved MoveIn(Flow& flow);
  // Of all flows. kEnd: the connection with `*peer` has ended.
  Moved MoveAll(int* peer);
  // Until a connection may have more to do; at most `longest`.
  void Sleep(Nanos longest);
  int Awaited() const;
  // One with whom something is to be moved, and of whom `lost` says so; -1: none.
  int Lost(absl::FunctionRef<bool(int peer)> lost) const;

  BulkSockets& sockets_;
  std::vector<Flow> flows_;  // By rank.
  Spinning spinning_{100 * kMicrosecond};
};

}  // namespace sheaf
