// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Real processes on one bell board, rings between all pairs, which send, sleep, run "user code",
// are killed and stopped at random and replaced, under a parent that does what a raylet does:
// RingAfterDeath, kProcessDied, drains, new rings.
//
//   shm_stress [--seed N] [--seconds N] [--kills N] [--processes N]     ends after --seconds or
//   --kills, whichever is given
//
// Kills come from the parent at random times, and from failpoints inside the protocol (shm.wake:
// between a sender's exchange and its wake; shm.call: between its look at a ring that nobody
// watches and its call). The seed fixes the schedule of signals, sizes and failpoints, not what the
// kernel makes of it. Oracle, checked by every receiver:
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
#include <set>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "shm/stress_process_for_test.h"

namespace sheaf {
namespace {

constexpr Nanos kQuietTime = 30 * kSecond;

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
      std::string failpoints =
          "shm.wake:sleep(2)%0.002:" + seed + ",shm.call:sleep(2)%0.01:" + seed;
      for (const char* kill :
           {"shm.wake:kill%0.0005:", "shm.make_room:kill%0.0005:", "shm.piece:kill%0.005:",
            "shm.batch:kill%0.0001:", "shm.fence:kill%0.001:", "shm.call:kill%0.01:"}) {
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
      OnProcessEnded(at->first, at->second.slot);
    }
  }

  void OnProcessEnded(ProcessId dead, uint32_t slot) {
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
