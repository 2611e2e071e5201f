// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Real processes on one bell board, rings between all pairs, which send, sleep, run "user code",
// are killed and stopped at random and replaced, under a parent that does what a raylet does:
// RingAfterDeath, kProcessDied, drains, new rings.
//
//   shm_stress [--seed N] [--seconds N] [--kills N] [--processes N]     ends after --seconds or
//   --kills, whichever is given
//
// Kills come from the parent at random times, and from failpoints inside the protocol (shm.wake:
// between a sender's exchange and its wake). The seed fixes the schedule of signals, sizes and
// failpoints, not what the kernel makes of it. Oracle, checked by every receiver:
//   1. Frames of one lane of one sender have sequence numbers 0, 1, 2, ... and the right checksum.
//   2. Of a dead sender everything is drained that its last finished Send had published; of a
//   living one, in the end,
//      everything that it sent.
//   3. A sleep that lasts kLongestSleep although a frame was published and rung in its first half
//   is a lost wake-up, which
//      only the bound on sleeps saved. There may be no more of them than senders killed or stopped.
//   4. In the end, when nobody sends any more, all is received within kQuietTime.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "shm/mailbox.h"

namespace sheaf {
namespace {

constexpr uint32_t kSlots = 32;  // Bells in use; 0 is the parent's.
constexpr Nanos kQuietTime = 30 * kSecond;
constexpr size_t kMostQueued = 1 << 20;

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

uint32_t Checksum(uint64_t sequence, std::string_view payload) {
  return Crc32c(payload, Crc32c(AsBytes(sequence)));
}

[[noreturn]] void Fail(ProcessId self, const std::string& what) {
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

struct Options {
  uint64_t seed = EntropySeed() % 1'000'000'000;
  Nanos time = 12 * kSecond;
  uint64_t kills = UINT64_MAX;
  size_t processes = 6;
};

// The parent, in the raylet's part.
class Raylet final : public FrameHandler {
 public:
  explicit Raylet(const Options& options)
      : options_(options),
        random_(options.seed),
        shared_(static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
        board_fd_(MakeSegment("bells", kBellBoardBytes).value()),
        board_(Mapping::Map(board_fd_.get(), 0, kBellBoardBytes, Access::kReadWrite).value()),
        bells_(reinterpret_cast<Bell*>(board_.data())),
        mailbox_(bells_, 0, nullptr) {
    SHEAF_CHECK(shared_ != MAP_FAILED, "mmap");
    for (uint32_t slot = 1; slot < kSlots; ++slot) free_slots_.insert(slot);
  }

  void Run() {
    const Nanos end = MonotonicNow() + options_.time;
    while (children_.size() < options_.processes) Spawn();
    Nanos next = 0;
    while (kills_ < options_.kills && (options_.kills != UINT64_MAX || MonotonicNow() < end)) {
      if (MonotonicNow() >= next) {
        KillOrStopOne();
        next = MonotonicNow() + static_cast<Nanos>(random_.Below(150)) * kMillisecond;
      }
      Step();
      while (children_.size() < options_.processes) Spawn();
    }
    ResumeAll();
    for (auto& [id, child] : children_)
      mailbox_.To(id).Send(Lane::kControl, FrameKind::kShutdown, "");
    const Nanos deadline = MonotonicNow() + kQuietTime;
    while (!dying_.empty() || !AllReceived()) {
      if (MonotonicNow() > deadline)
        Fail(Process::kParent, "frames that never arrive: " + Missing());
      Step();
    }
    ending_ = true;
    for (auto& [id, child] : children_)
      mailbox_.To(id).Send(Lane::kControl, FrameKind::kGoodbye, "");
    while (!children_.empty()) {
      if (MonotonicNow() > deadline) Fail(Process::kParent, "a process that does not leave");
      Step();
    }
    std::printf(
        "%lu frames, %lu sleeps, %lu kills, %lu stops, %lu wake-ups saved by the bound on sleeps\n",
        shared_->frames.load(), shared_->sleeps.load(), kills_, stops_, shared_->rescued.load());
    if (shared_->rescued.load() > kills_ + stops_)
      Fail(Process::kParent, "wake-ups were lost without a cause");
  }

  void OnFrame(ProcessId from, const Frame& frame) override {
    SHEAF_CHECK(frame.kind == FrameKind::kPeerDrained, "what the processes say to the parent");
    Drained(*FrameHead<ProcessId>(frame.body), from);
  }
  void OnMalformed(ProcessId from) override {
    Fail(Process::kParent, "malformed: " + from.ToString());
  }

 private:
  struct Child {
    pid_t pid;
    uint32_t slot;
    UnixSocket socket;
    Nanos resume_at;  // 0: it runs.
  };
  struct Dying {
    uint32_t slot;
    std::set<ProcessId> undrained;  // Peers that may still read what the dead has written.
  };

  void Spawn() {
    const ProcessId id{1, ++last_process_};
    const uint32_t slot = *free_slots_.begin();
    free_slots_.erase(free_slots_.begin());
    SetBell(bells_[slot], BellState::kAwake);
    auto [own, theirs] = UnixSocket::Pair().value();
    std::vector<std::pair<Introduction, UniqueFd>> introductions;
    UniqueFd pair = MakeSegment("ring pair", kRingPairBytes).value();
    SHEAF_CHECK(mailbox_.AddRing(id, pair.get(), true, slot).ok(), "AddRing");
    introductions.emplace_back(Introduction{Process::kParent, 0, 0}, std::move(pair));
    for (auto& [other, child] : children_) {
      pair = MakeSegment("ring pair", kRingPairBytes).value();
      const Introduction introduction{id, slot, 1};
      const int fd = pair.get();
      // Fails when the other is dead, which Reap will find.
      child.socket.Send(AsBytes(introduction), {&fd, 1}, kSecond).IgnoreError();
      mailbox_.To(other).Send(Lane::kControl, FrameKind::kNewRing, "");
      introductions.emplace_back(Introduction{other, child.slot, 0}, std::move(pair));
    }
    std::fflush(nullptr);
    const pid_t pid = fork();
    SHEAF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string seed = std::to_string(options_.seed);
      std::string failpoints = "shm.wake:sleep(2)%0.002:" + seed;
      for (const char* kill :
           {"shm.wake:kill%0.0005:", "shm.make_room:kill%0.0005:", "shm.piece:kill%0.005:",
            "shm.batch:kill%0.0001:", "shm.fence:kill%0.001:"}) {
        failpoints += std::string(",") + kill + seed;
      }
      SHEAF_CHECK(ArmFailpoints(failpoints, id.process).ok(), "failpoints");
      Process process(*shared_, bells_, id, slot, std::move(theirs), options_.seed + id.process);
      for (auto& [introduction, fd] : introductions) process.Introduce(introduction, fd.get());
      process.Run();
      _exit(0);
    }
    children_[id] = {pid, slot, std::move(own), 0};
  }

  void KillOrStopOne() {
    auto at = std::next(children_.begin(), static_cast<ptrdiff_t>(random_.Below(children_.size())));
    Child& child = at->second;
    if (random_.OneIn(3)) {
      const Nanos pause = static_cast<Nanos>(random_.Below(300)) * kMillisecond;
      if (child.resume_at != 0) return;
      shared_->slots[child.slot].stops.fetch_add(1);
      kill(child.pid, SIGSTOP);
      child.resume_at = MonotonicNow() + pause;
      ++stops_;
    } else {
      kill(child.pid, SIGKILL);
    }
  }

  void Step() {
    for (auto& [id, child] : children_) {
      if (child.resume_at != 0 && MonotonicNow() >= child.resume_at) Resume(child);
    }
    Reap();
    mailbox_.Poll(*this, true);
    SetBell(mailbox_.bell(), BellState::kAsleep);
    if (!mailbox_.Pending(true)) SleepOnBell(mailbox_.bell(), kMillisecond);
    SetBell(mailbox_.bell(), BellState::kAwake);
  }

  void Resume(Child& child) {
    kill(child.pid, SIGCONT);
    child.resume_at = 0;
  }
  void ResumeAll() {
    for (auto& [id, child] : children_) {
      if (child.resume_at != 0) Resume(child);
    }
  }

  void Reap() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
      auto at = children_.begin();
      while (at->second.pid != pid) ++at;
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      const bool left = ending_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (!killed && !left) Fail(at->first, "ended with status " + std::to_string(status));
      kills_ += killed;
      Bury(at->first, at->second.slot);
    }
  }

  void Bury(ProcessId dead, uint32_t slot) {
    children_.erase(dead);
    for (auto& [id, child] : children_) RingAfterDeath(bells_[child.slot]);
    mailbox_.Drain(dead, *this);
    mailbox_.Forget(dead);
    Dying& dying = dying_[dead];
    dying.slot = slot;
    for (auto& [id, child] : children_) {
      dying.undrained.insert(id);
      mailbox_.To(id).Send(Lane::kControl, FrameKind::kProcessDied, AsBytes(dead));
    }
    std::vector<ProcessId> others;
    for (auto& [id, other] : dying_) others.push_back(id);
    for (ProcessId other : others) Drained(other, dead);
  }

  // Nobody but those in `undrained` will read what `dead` wrote.
  void Drained(ProcessId dead, ProcessId by) {
    auto found = dying_.find(dead);
    if (found == dying_.end()) return;
    found->second.undrained.erase(by);
    if (!found->second.undrained.empty()) return;
    const uint32_t slot = found->second.slot;
    std::memset(static_cast<void*>(&shared_->slots[slot]), 0, sizeof(Slot));
    for (Slot& other : shared_->slots) {
      for (int lane : {0, 1}) {
        other.confirmed[slot][lane].count = 0;
        other.sent[slot][lane] = 0;
        other.received[slot][lane] = 0;
      }
    }
    free_slots_.insert(slot);
    dying_.erase(found);
  }

  bool AllReceived() { return Missing().empty(); }
  std::string Missing() {
    std::string missing;
    for (auto& [from, sender] : children_) {
      for (auto& [to, receiver] : children_) {
        for (int lane : {0, 1}) {
          const uint64_t sent = shared_->slots[sender.slot].sent[receiver.slot][lane];
          const uint64_t received = shared_->slots[receiver.slot].received[sender.slot][lane];
          if (sent != received) {
            missing += from.ToString() + "->" + to.ToString() + " " + std::to_string(received) +
                       " of " + std::to_string(sent) + "; ";
          }
        }
      }
    }
    return missing;
  }

  const Options options_;
  SeededRandom random_;
  Shared* const shared_;
  const UniqueFd board_fd_;
  const Mapping board_;
  Bell* const bells_;
  Mailbox mailbox_;
  std::map<ProcessId, Child> children_;
  std::map<ProcessId, Dying> dying_;
  std::set<uint32_t> free_slots_;
  uint32_t last_process_ = 0;
  uint64_t kills_ = 0, stops_ = 0;
  bool ending_ = false;
};

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seed") options.seed = value;
    if (name == "--seconds") options.time = static_cast<Nanos>(value) * kSecond;
    if (name == "--kills") options.kills = value;
    if (name == "--processes") options.processes = value;
  }
  std::printf("shm_stress --seed %lu\n", options.seed);
  Raylet(options).Run();
  return 0;
}

}  // namespace
}  // namespace sheaf

int main(int argc, char** argv) { return sheaf::Main(argc, argv); }
