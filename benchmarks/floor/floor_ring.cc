// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Calls between two processes over bare rings: a call is 64 bytes of arguments and an 8-byte
// result, both checked. What any actor call between two processes of this machine costs at least.
// No code of Sheaf: a slot per record, no lengths, lanes, batches, errors or peers to choose from.
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "figures.h"

namespace {

constexpr uint64_t kSlots = 2048;  // More than are ever in flight, so no ring is ever full.
constexpr uint64_t kInFlight = 1000;
// The replier looks at the bell once in so many replies, or when it runs out of calls.
constexpr int kReplyBatch = 32;
constexpr int kSpinSteps = 200;  // 20-40 us, then the futex.

struct Call {
  uint64_t id;
  uint64_t arguments[8];
};
struct Reply {
  uint64_t id;
  uint64_t value;
};

template <class Record>
struct Ring {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) Record slots[kSlots];
};

struct Shared {
  alignas(64) std::atomic<uint32_t> caller_bell, replier_bell;  // 1: asleep.
  Ring<Call> calls;
  Ring<Reply> replies;
};

void SpinStep() {
  for (int i = 0; i < 8; ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  sched_yield();
}

void RingBell(std::atomic<uint32_t>& bell) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (bell.load(std::memory_order_relaxed) == 1 && bell.exchange(0) == 1) {
    syscall(SYS_futex, &bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

// Until `tail` has passed `seen`; returns it.
uint64_t Await(std::atomic<uint64_t>& tail, uint64_t seen, std::atomic<uint32_t>& bell,
               int spin_steps) {
  for (int spins = 0;; ++spins) {
    const uint64_t now = tail.load(std::memory_order_acquire);
    if (now != seen) return now;
    if (spins < spin_steps) {
      SpinStep();
      continue;
    }
    bell.exchange(1);
    if (tail.load() == seen) syscall(SYS_futex, &bell, FUTEX_WAIT, 1, nullptr, nullptr, 0);
    bell.store(0);
  }
}

void RunReplier(Shared& shared, int spin_steps, bool several) {
  uint64_t seen = 0, replied = 0;
  while (true) {
    const uint64_t tail = Await(shared.calls.tail, seen, shared.replier_bell, spin_steps);
    int unrung = 0;
    for (; seen != tail; ++seen) {
      const Call& call = shared.calls.slots[seen % kSlots];
      uint64_t sum = 0;
      for (uint64_t argument : call.arguments) sum += argument;
      shared.replies.slots[replied++ % kSlots] = {call.id, sum};
      if (++unrung == kReplyBatch) {
        unrung = 0;
        shared.replies.tail.store(replied, std::memory_order_release);
        RingBell(shared.caller_bell);
      }
    }
    shared.calls.head.store(seen, std::memory_order_release);
    shared.replies.tail.store(replied, std::memory_order_release);
    RingBell(shared.caller_bell);
    if (several) floors::PauseBetweenLooks();
  }
}

class Caller {
 public:
  Caller(Shared& shared, int spin_steps) : shared_(shared), spin_steps_(spin_steps) {}

  // `count` calls, then their `count` results.
  uint64_t Batch(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      Call& call = shared_.calls.slots[called_ % kSlots];
      call.id = called_;
      for (uint64_t j = 0; j < 8; ++j) call.arguments[j] = called_ + j;
      shared_.calls.tail.store(++called_, std::memory_order_release);
      RingBell(shared_.replier_bell);
    }
    while (seen_ != called_) {
      const uint64_t tail = Await(shared_.replies.tail, seen_, shared_.caller_bell, spin_steps_);
      for (; seen_ != tail; ++seen_) {
        const Reply& reply = shared_.replies.slots[seen_ % kSlots];
        floors::Require(reply.id == seen_ && reply.value == 8 * seen_ + 28, "reply");
      }
      shared_.replies.head.store(seen_, std::memory_order_release);
    }
    return count;
  }

 private:
  Shared& shared_;
  const int spin_steps_;
  uint64_t called_ = 0, seen_ = 0;
};

int argument_count;
char** arguments;

void Measure(const char* name, int spin_steps, uint64_t in_flight, double seconds) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  floors::Require(memory != MAP_FAILED, "mmap");
  auto* shared = new (memory) Shared{};
  const pid_t child = fork();
  floors::Require(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    floors::PlaceProcess(argument_count, arguments, true);
    RunReplier(*shared, spin_steps, in_flight > 1);
  }
  Caller caller(*shared, spin_steps);
  floors::Print(name, "calls/s", floors::MedianRate(seconds, [&] {
                  for (uint64_t i = 0; i < 100; i += in_flight) caller.Batch(in_flight);
                  return in_flight < 100 ? 100 / in_flight * in_flight : in_flight;
                }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  munmap(memory, sizeof(Shared));
}

}  // namespace

int main(int argc, char** argv) {
  argument_count = argc;
  arguments = argv;
  floors::PlaceProcess(argc, argv, false);
  const double seconds = floors::SecondsArgument(argc, argv, 1.0);
  Measure("floor_ring_sync_spinning", kSpinSteps, 1, seconds);
  Measure("floor_ring_sync_asleep", 0, 1, seconds);
  Measure("floor_ring_1000_in_flight", kSpinSteps, kInFlight, seconds);
}
