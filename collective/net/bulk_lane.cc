// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/bulk_lane.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace sheaf {

void BulkSockets::Break() {
  if (broken_.exchange(true, std::memory_order_acq_rel)) return;
  for (const UniqueFd& fd : fds_) {
    if (fd.valid()) shutdown(fd.get(), SHUT_RDWR);
  }
}

void BulkSockets::ForgetAfterFork() {
  for (UniqueFd& fd : fds_) fd.Release();
}

BulkLane::BulkLane(BulkSockets& sockets, BulkSockets::Lane lane)
    : sockets_(sockets), flows_(static_cast<size_t>(sockets.world_size())) {
  for (int peer = 0; peer < sockets.world_size(); ++peer) {
    flows_[static_cast<size_t>(peer)].fd = sockets.fd(peer, lane);
  }
}

void BulkLane::Send(int peer, const std::byte* bytes, size_t size, BulkBatch& batch) {
  if (size == 0) return;
  flows_[static_cast<size_t>(peer)].sends.push_back({bytes, size, &batch});
  ++batch.sends;
}

void BulkLane::Receive(int peer, std::byte* bytes, size_t size, BulkBatch& batch) {
  if (size == 0) return;
  flows_[static_cast<size_t>(peer)].receives.push_back({bytes, size, &batch});
  ++batch.receives;
}

BulkLane::Moved BulkLane::MoveOut(Flow& flow) {
  Moved moved = Moved::kNothing;
  for (size_t room = kMostAtOnce; room > 0 && !flow.sends.empty();) {
    Outgoing& next = flow.sends.front();
    const ssize_t size =
        send(flow.fd, next.bytes, std::min(next.left, room), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? moved : Moved::kEnd;
    moved = Moved::kSome;
    room -= static_cast<size_t>(size);
    next.bytes += size;
    next.left -= static_cast<size_t>(size);
    if (next.left != 0) return moved;  // The connection is full, or `room` is.
    --next.batch->sends;
    flow.sends.pop_front();
  }
  return moved;
}

BulkLane::Moved BulkLane::MoveIn(Flow& flow) {
  Moved moved = Moved::kNothing;
  for (size_t room = kMostAtOnce; room > 0 && !flow.receives.empty();) {
    Incoming& next = flow.receives.front();
    const ssize_t size = recv(flow.fd, next.bytes, std::min(next.left, room), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? moved : Moved::kEnd;
    if (size == 0) return Moved::kEnd;
    moved = Moved::kSome;
    room -= static_cast<size_t>(size);
    next.bytes += size;
    next.left -= static_cast<size_t>(size);
    if (next.left != 0) continue;
    --next.batch->receives;
    flow.receives.pop_front();
  }
  return moved;
}

BulkLane::Moved BulkLane::MoveAll(int* peer) {
  Moved moved = Moved::kNothing;
  for (size_t rank = 0; rank < flows_.size(); ++rank) {
    Flow& flow = flows_[rank];
    for (const Moved part : {MoveOut(flow), MoveIn(flow)}) {
      if (part == Moved::kEnd) {
        *peer = static_cast<int>(rank);
        return part;
      }
      if (part == Moved::kSome) moved = part;
    }
  }
  return moved;
}

void BulkLane::Move() {
  int peer = -1;
  MoveAll(&peer);
}

int BulkLane::Awaited() const {
  int sender = -1;
  for (size_t rank = 0; rank < flows_.size(); ++rank) {
    if (!flows_[rank].receives.empty()) return static_cast<int>(rank);
    if (!flows_[rank].sends.empty()) sender = static_cast<int>(rank);
  }
  return sender;
}

void BulkLane::Sleep(Nanos longest) {
  std::vector<pollfd> entries;
  for (const Flow& flow : flows_) {
    const int events = (flow.receives.empty() ? 0 : POLLIN) | (flow.sends.empty() ? 0 : POLLOUT);
    if (events != 0) entries.push_back({flow.fd, static_cast<short>(events), 0});
  }
  const timespec limit{longest / kSecond, longest % kSecond};
  ppoll(entries.data(), entries.size(), &limit, nullptr);
}

int BulkLane::Lost(absl::FunctionRef<bool(int peer)> lost) const {
  for (size_t rank = 0; rank < flows_.size(); ++rank) {
    const Flow& flow = flows_[rank];
    if (flow.receives.empty() && flow.sends.empty()) continue;
    if (lost(static_cast<int>(rank))) return static_cast<int>(rank);
  }
  return -1;
}

BulkLane::Result BulkLane::Await(const BulkBatch& batch, Until until, Nanos deadline,
                                 absl::FunctionRef<bool()> stop,
                                 absl::FunctionRef<bool(int peer)> lost) {
  const auto done = [&] {
    return batch.receives == 0 && (until == Until::kReceived || batch.sends == 0);
  };
  int peer = -1;
  Moved moved = Moved::kNothing;
  const auto move = [&] { return (moved = MoveAll(&peer)) != Moved::kNothing; };
  Nanos looked = MonotonicNow();
  while (!done()) {
    const Nanos began = MonotonicNow();
    // Also while bytes come, however slowly.
    if (began - looked >= kLookPeriod) {
      if (stop()) return {Outcome::kStopped, Awaited()};
      looked = began;
    }
    while (!move() && (!sockets_.spins() || !spinning_.Until(move))) {
      const Nanos now = MonotonicNow();
      if (sockets_.broken()) return {Outcome::kBroken, peer};
      if (now >= deadline) return {Outcome::kLate, Awaited()};
      Sleep(std::min(deadline - now, kLookPeriod));
      const Nanos slept = MonotonicNow() - began;
      spinning_.Slept(slept);
      if (slept < kLookPeriod) continue;
      if (stop()) return {Outcome::kStopped, Awaited()};
      looked = began + slept;
      if (const int gone = Lost(lost); gone >= 0 && !move()) return {Outcome::kBroken, gone};
    }
    if (moved == Moved::kEnd || sockets_.broken()) return {Outcome::kBroken, peer};
  }
  return {Outcome::kDone};
}

void BulkLane::Abandon() {
  for (Flow& flow : flows_) {
    flow.sends.clear();
    flow.receives.clear();
  }
}

}  // namespace sheaf
