// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/net/peer_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sheaf {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr Nanos kLinger = 500 * kMillisecond;

}  // namespace

std::string EncodeFrame(LinkFrameKind kind, std::string_view bytes) {
  const uint32_t header[2] = {static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(kind)};
  std::string out(reinterpret_cast<const char*>(header), sizeof header);
  return out.append(bytes);
}

absl::StatusOr<std::vector<LinkFrame>> FramesIn(std::string_view received, size_t* used) {
  std::vector<LinkFrame> frames;
  *used = 0;
  while (received.size() - *used >= kHeaderBytes) {
    uint32_t header[2];
    std::memcpy(header, received.data() + *used, sizeof header);
    if (header[0] > kMaxFrameBytes || header[1] > static_cast<uint32_t>(LinkFrameKind::kLeave)) {
      return absl::InvalidArgumentError("no frame of a collective group");
    }
    if (received.size() - *used - kHeaderBytes < header[0]) break;
    frames.push_back(
        {static_cast<LinkFrameKind>(header[1]), received.substr(*used + kHeaderBytes, header[0])});
    *used += kHeaderBytes + header[0];
  }
  return frames;
}

PeerLinks::PeerLinks(std::vector<Link> links) : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (Link& link : links) {
    auto peer = std::make_unique<Peer>();
    peer->fd = std::move(link.fd);
    peer->received = std::move(link.received);
    peers_.push_back(std::move(peer));
  }
}

void PeerLinks::Start(Handler& handler) {
  handler_ = &handler;
  in_children_ = std::make_unique<ClosedInChildren>([this] {
    for (const auto& peer : peers_) close(peer->fd.Release());
  });
  // What came while the group was formed.
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank]->fd.valid()) Receive(static_cast<int>(rank));
  }
  thread_ = std::make_unique<ThreadExecutor>("peer-links");
  thread_->Post([this] { Loop(); });
}

PeerLinks::~PeerLinks() {
  if (thread_ == nullptr) return;
  in_children_.reset();
  stopping_.store(true);
  Wake();
  thread_.reset();
  std::vector<UniqueFd> connections;
  for (const auto& peer : peers_) connections.push_back(std::move(peer->fd));
  CloseDelivered(connections, kLinger);
}

void PeerLinks::ForgetAfterFork() {
  thread_.release();
  for (const auto& peer : peers_) peer->fd.Release();
  wake_.Release();
}

void PeerLinks::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
}

void PeerLinks::Flush(Peer& peer) {
  size_t sent = 0;
  while (sent < peer.to_send.size()) {
    const ssize_t size = send(peer.fd.get(), peer.to_send.data() + sent, peer.to_send.size() - sent,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK) sent = peer.to_send.size();
    if (size < 0) break;
    sent += static_cast<size_t>(size);
  }
  peer.to_send.erase(0, sent);
}

void PeerLinks::Send(int rank, LinkFrameKind kind, std::string_view bytes) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  const MutexLock lock(peer.mutex);
  if (!peer.fd.valid()) return;
  const bool idle = peer.to_send.empty();
  peer.to_send += EncodeFrame(kind, bytes);
  if (!idle) return;
  Flush(peer);
  if (!peer.to_send.empty()) Wake();
}

void PeerLinks::SendAll(LinkFrameKind kind, std::string_view bytes) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) Send(rank, kind, bytes);
}

bool PeerLinks::ReadAll(Nanos timeout) {
  std::vector<pollfd> entries;
  std::vector<int> ranks;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (!peers_[rank]->fd.valid()) continue;
    entries.push_back({peers_[rank]->fd.get(), POLLIN, 0});
    ranks.push_back(static_cast<int>(rank));
  }
  const timespec limit{timeout / kSecond, timeout % kSecond};
  if (ppoll(entries.data(), entries.size(), &limit, nullptr) <= 0) return false;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents != 0) Receive(ranks[i]);
  }
  return true;
}

bool PeerLinks::Drive(Nanos longest, bool spins, absl::FunctionRef<bool()> came) {
  if (!BeginReading()) return false;
  if (came()) {  // Another thread has read it since the caller looked.
    EndReading();
    return true;
  }
  const auto read = [&] { return ReadAll(0); };
  if (!read() && (!spins || !spinning_.Until(read))) {
    const Nanos began = MonotonicNow();
    if (ReadAll(longest)) spinning_.Slept(MonotonicNow() - began);
  }
  driven_.store(MonotonicNow(), std::memory_order_relaxed);
  EndReading();
  return true;
}

void PeerLinks::Settle() {
  std::vector<pollfd> entries;
  for (const auto& peer : peers_) {
    const MutexLock lock(peer->mutex);
    if (peer->fd.valid()) entries.push_back({peer->fd.get(), POLLIN, 0});
  }
  const Nanos until = MonotonicNow() + kSecond;
  while (poll(entries.data(), entries.size(), 0) > 0 && MonotonicNow() < until) {
    if (Drive(0, /*spins=*/false, [] { return false; })) return;
    poll(nullptr, 0, 1);  // Who reads is about to take what has come.
  }
}

void PeerLinks::Receive(int rank) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  bool closed = false;
  char bytes[64 * 1024];
  while (true) {
    const ssize_t size = recv(peer.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size > 0) peer.received.append(bytes, static_cast<size_t>(size));
    if (size == static_cast<ssize_t>(sizeof bytes) || (size < 0 && errno == EINTR)) continue;
    closed = size == 0 || (size < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  size_t used = 0;
  const absl::StatusOr<std::vector<LinkFrame>> frames = FramesIn(peer.received, &used);
  closed |= !frames.ok();
  if (closed) {
    const MutexLock lock(peer.mutex);
    peer.fd.Reset();
    peer.to_send.clear();
  }
  if (closed || !frames->empty()) {
    handler_->OnFrames(rank, frames.ok() ? *frames : std::vector<LinkFrame>(), closed);
  }
  peer.received.erase(0, used);
}

void PeerLinks::Turn(bool reads, int timeout_ms) {
  std::vector<pollfd> entries(1, {wake_.get(), POLLIN, 0});
  std::vector<int> ranks(1, -1);
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = *peers_[rank];
    const MutexLock lock(peer.mutex);
    const int events = (reads ? POLLIN : 0) | (peer.to_send.empty() ? 0 : POLLOUT);
    if (!peer.fd.valid() || events == 0) continue;
    entries.push_back({peer.fd.get(), static_cast<short>(events), 0});
    ranks.push_back(static_cast<int>(rank));
  }
  if (poll(entries.data(), entries.size(), timeout_ms) <= 0) return;
  if (entries[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof count);
  }
  bool came = false;
  for (size_t i = 1; i < entries.size(); ++i) {
    Peer& peer = *peers_[static_cast<size_t>(ranks[i])];
    if ((entries[i].revents & POLLOUT) != 0) {
      const MutexLock lock(peer.mutex);
      Flush(peer);
    }
    came |= (entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
  }
  if (!came || !reads || !BeginReading()) return;
  ReadAll(0);
  EndReading();
}

void PeerLinks::Loop() {
  Nanos end = kForever;
  while (true) {
    const bool driven = reading_.load(std::memory_order_acquire) ||
                        MonotonicNow() - driven_.load(std::memory_order_relaxed) < kLease;
    if (stopping_.load()) {
      if (end == kForever) end = MonotonicNow() + kLinger;
      bool to_send = false;
      for (const auto& peer : peers_) {
        const MutexLock lock(peer->mutex);
        to_send |= !peer->to_send.empty();
      }
      if (!to_send || MonotonicNow() >= end) return;
      Turn(/*reads=*/true, 10);
    } else {
      Turn(!driven, driven ? static_cast<int>(kLease / kMillisecond) : -1);
    }
  }
}

}  // namespace sheaf
