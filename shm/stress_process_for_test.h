// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One of the processes that shm_stress kills and stops: sends and receives frames, sleeps and runs
// "user code" at random, and judges what comes (the oracle's points 1 to 3 in stress_test.cc).
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/crc32c.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "shm/mailbox.h"

namespace sheaf {

inline constexpr uint32_t kSlots = 32;  // Bells in use; 0 is the parent's.
inline constexpr size_t kMostQueued = 1 << 20;

// What process `slot` says of its traffic with each other slot. Written by it alone; the parent
// clears it for a new one.
struct Slot {
  struct Confirmed {        // Frames that are published and rung.
    std::atomic<Nanos> at;  // When the last of them was, or a little later.
    std::atomic<uint64_t> count;
  };
  Confirmed confirmed[kSlots][2];
  std::atomic<uint64_t> sent[kSlots][2];
  std::atomic<uint64_t> received[kSlots][2];
  std::atomic<uint32_t> stops;  // By the parent, before each SIGSTOP.
};

struct Shared {
  Slot slots[kSlots];
  std::atomic<uint64_t> frames, sleeps, rescued;
};

struct Introduction {  // On the socket, with the ring pair.
  ProcessId peer;
  uint32_t slot;
  uint32_t first;
};

struct FrameStart {
  uint64_t sequence;
  uint32_t checksum;  // Of the rest of the frame, continuing from the sequence number.
  uint32_t unused;
};

inline uint32_t Checksum(uint64_t sequence, std::string_view payload) {
  return Crc32c(payload, Crc32c(AsBytes(sequence)));
}

[[noreturn]] inline void Fail(ProcessId self, const std::string& what) {
  std::fprintf(stderr, "FAILED in %s: %s\n", self.ToString().c_str(), what.c_str());
  _exit(3);
}

struct Peer {
  uint32_t slot = 0;
  uint64_t sent[2] = {0, 0};
  uint64_t expected[2] = {0, 0};
};

// One process: the driver's thread, and a background thread for control while the driver is away.
class Process final : public FrameHandler {
 public:
  Process(Shared& shared, Bell* bells, ProcessId self, uint32_t slot, UnixSocket socket,
          uint64_t seed)
      : shared_(shared),
        self_(self),
        slot_(slot),
        socket_(std::move(socket)),
        random_(seed),
        mailbox_(bells, slot, nullptr) {}

  void Introduce(const Introduction& peer, int fd) {
    if (!mailbox_.AddRing(peer.peer, fd, peer.first != 0, peer.slot).ok()) Fail(self_, "AddRing");
    if (peer.slot != 0) peers_[peer.peer] = {peer.slot};
  }

  void Run() {
    std::thread background([this] { RunBackground(); });
    while (!leaving_) {
      std::unique_lock lock(token_);
      away_ = false;
      SetBell(mailbox_.bell(), BellState::kAwake);
      mailbox_.Poll(*this, true, 1 + random_.Below(64));
      if (!quiet_ && random_.OneIn(2)) {
        for (uint64_t burst = random_.Below(20); burst != 0; --burst) SendSomething();
      }
      Confirm();
      if (leaving_) break;
      if (!quiet_ && random_.OneIn(3)) {
        RunUserCode(lock);
      } else if (quiet_ || random_.OneIn(2)) {
        Sleep();
      }
    }
    Knock(mailbox_.bell());
    background.join();
  }

  void OnFrame(ProcessId from, const Frame& frame) override {
    switch (frame.kind) {
      case FrameKind::kPushTask:
        Receive(from, Lane::kWork, frame.body);
        break;
      case FrameKind::kTaskReply:
        Receive(from, Lane::kControl, frame.body);
        break;
      case FrameKind::kNewRing: {
        const SocketMessage message = socket_.Receive(kSecond).value();
        Introduce(*FrameHead<Introduction>(message.bytes), message.fds.at(0).get());
        break;
      }
      case FrameKind::kProcessDied: {
        const ProcessId dead = *FrameHead<ProcessId>(frame.body);
        mailbox_.Drain(dead, *this);
        Peer& peer = peers_.at(dead);
        for (int lane : {0, 1}) {
          const uint64_t confirmed = shared_.slots[peer.slot].confirmed[slot_][lane].count.load();
          if (peer.expected[lane] < confirmed) {
            Fail(self_, "drained " + std::to_string(peer.expected[lane]) + " frames of dead " +
                            dead.ToString() + ", which had published " + std::to_string(confirmed));
          }
        }
        mailbox_.Forget(dead);
        peers_.erase(dead);
        mailbox_.To(kParent).Send(Lane::kControl, FrameKind::kPeerDrained, frame.body);
        break;
      }
      case FrameKind::kShutdown:
        quiet_ = true;
        break;
      case FrameKind::kGoodbye:
        leaving_ = true;
        break;
      default:
        Fail(self_, "unknown frame");
    }
  }
  void OnMalformed(ProcessId from) override { Fail(self_, "malformed: " + from.ToString()); }

  static constexpr ProcessId kParent{1, 0};

 private:
  void Receive(ProcessId from, Lane lane, std::string_view body) {
    const auto* start = FrameHead<FrameStart>(body);
    if (start == nullptr) Fail(self_, "short frame");
    Peer& peer = peers_.at(from);
    uint64_t& expected = peer.expected[static_cast<int>(lane)];
    if (start->sequence != expected) {
      Fail(self_, "frame " + std::to_string(start->sequence) + " of " + from.ToString() +
                      ", want " + std::to_string(expected));
    }
    if (start->checksum != Checksum(start->sequence, body.substr(sizeof *start)))
      Fail(self_, "checksum");
    ++expected;
    shared_.slots[slot_].received[peer.slot][static_cast<int>(lane)].store(expected);
    shared_.frames.fetch_add(1, std::memory_order_relaxed);
    if (lane == Lane::kWork && !quiet_ && random_.OneIn(4)) SendTo(from, peer, Lane::kControl, 16);
  }

  void SendSomething() {
    if (peers_.empty()) return;
    auto at = std::next(peers_.begin(), static_cast<ptrdiff_t>(random_.Below(peers_.size())));
    size_t size = random_.Below(200);
    if (random_.OneIn(50)) size = random_.Below(20'000);
    if (random_.OneIn(500)) size = random_.Below(300'000);
    SendTo(at->first, at->second, random_.OneIn(2) ? Lane::kWork : Lane::kControl, size);
  }

  void SendTo(ProcessId id, Peer& peer, Lane lane, size_t size) {
    Channel& channel = mailbox_.To(id);
    if (channel.queued_bytes() > kMostQueued) return;
    std::string payload(size, static_cast<char>(random_.Next()));
    if (size >= 8) std::memcpy(payload.data() + random_.Below(size - 7), &size, sizeof size);
    const int l = static_cast<int>(lane);
    const FrameStart start{peer.sent[l], Checksum(peer.sent[l], payload), 0};
    shared_.slots[slot_].sent[peer.slot][l].store(++peer.sent[l]);
    channel.Send(lane, lane == Lane::kWork ? FrameKind::kPushTask : FrameKind::kTaskReply,
                 AsBytes(start), payload);
  }

  // Not during a Poll: there what was sent is not yet published.
  void Confirm() {
    const Nanos now = MonotonicNow();
    for (auto& [id, peer] : peers_) {
      if (mailbox_.To(id).queued_bytes() != 0) continue;
      for (int lane : {0, 1}) {
        Slot::Confirmed& confirmed = shared_.slots[slot_].confirmed[peer.slot][lane];
        if (confirmed.count.load(std::memory_order_relaxed) == peer.sent[lane]) continue;
        confirmed.at.store(now);
        confirmed.count.store(peer.sent[lane]);
      }
    }
  }

  // Some frame was published and rung before `time` and is not yet taken.
  bool WaitsSince(Nanos time, bool look_at_work) {
    for (auto& [id, peer] : peers_) {
      for (int lane = look_at_work ? 0 : 1; lane < 2; ++lane) {
        Slot::Confirmed& confirmed = shared_.slots[peer.slot].confirmed[slot_][lane];
        if (confirmed.count.load() > peer.expected[lane] && confirmed.at.load() < time) return true;
      }
    }
    return false;
  }

  void JudgeSleep(Nanos start, uint32_t stops, bool look_at_work) {
    shared_.sleeps.fetch_add(1, std::memory_order_relaxed);
    if (MonotonicNow() - start < kLongestSleep || shared_.slots[slot_].stops.load() != stops)
      return;
    if (WaitsSince(start + kLongestSleep / 2, look_at_work)) shared_.rescued.fetch_add(1);
  }

  void Sleep() {
    SetBell(mailbox_.bell(), BellState::kAsleep);
    if (!mailbox_.Pending(true)) {
      const Nanos start = MonotonicNow();
      const uint32_t stops = shared_.slots[slot_].stops.load();
      SleepOnBell(mailbox_.bell(), kLongestSleep);
      JudgeSleep(start, stops, true);
    }
    SetBell(mailbox_.bell(), BellState::kAwake);
  }

  // state := kAway and a second look, until there is nothing. The caller holds the token.
  void GoAway() {
    SetBell(mailbox_.bell(), BellState::kAway);
    while (mailbox_.Pending(false)) {
      mailbox_.Poll(*this, false);
      Confirm();
      SetBell(mailbox_.bell(), BellState::kAway);
    }
  }

  void RunUserCode(std::unique_lock<std::mutex>& lock) {
    away_ = true;
    away_since_ = MonotonicNow();
    GoAway();
    // Drawn under the token: the other thread draws as well.
    useconds_t pause = 0;
    int steps = 0;
    if (random_.OneIn(200)) {
      pause = static_cast<useconds_t>(random_.Below(150'000));  // Longer than any sleep may be.
    } else if (random_.OneIn(3)) {
      pause = static_cast<useconds_t>(random_.Below(1000));
    } else {
      steps = static_cast<int>(random_.Below(160));
    }
    lock.unlock();
    if (pause != 0) usleep(pause);
    for (int step = 0; step < steps; ++step) SpinStep(step);
    lock.lock();
  }

  void RunBackground() {
    while (!leaving_) {
      const Nanos start = MonotonicNow();
      const uint32_t stops = shared_.slots[slot_].stops.load();
      SleepOnKnock(mailbox_.bell(), kLongestSleep);
      const Nanos end = MonotonicNow();
      std::lock_guard lock(token_);
      if (!away_ || leaving_) continue;
      if (end - start >= kLongestSleep && away_since_ < start) JudgeSleep(start, stops, false);
      GoAway();
    }
  }

  Shared& shared_;
  const ProcessId self_;
  const uint32_t slot_;
  const UnixSocket socket_;
  std::mutex token_;  // Guards all below.
  SeededRandom random_;
  Mailbox mailbox_;
  std::map<ProcessId, Peer> peers_;
  bool away_ = false;
  Nanos away_since_ = 0;
  bool quiet_ = false;  // Sends no more.
  std::atomic<bool> leaving_ = false;
};

}  // namespace sheaf
