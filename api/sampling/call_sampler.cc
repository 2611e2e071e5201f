// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/sampling/call_sampler.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "api/sampling/code_names.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "telemetry/profile_writer.h"

namespace sheaf::inline v1::internal {
namespace {

constexpr size_t kMostFrames = 126;  // Of a stack, the innermost ones.
constexpr size_t kSamples = 32;      // Of a thread, between two looks at them.
constexpr Nanos kLooksEvery = 200 * kMillisecond;

struct Sample {
  const FunctionRecord* function;
  uint32_t periods;  // So many of the timer passed since the last one.
  uint32_t depth;
  std::array<uintptr_t, kMostFrames> frames;  // Addresses of instructions, the innermost first.
};

// What one thread's handler notes. Lives until the thread has ended and its samples were read.
struct ThreadSamples {
  uintptr_t stack_begin = 0, stack_end = 0;
  std::atomic<uint64_t> written{0}, read{0};
  std::atomic<uint64_t> lost{0};  // Periods for which there was no room,
  std::atomic<const FunctionRecord*> lost_in{nullptr};
  std::atomic<bool> thread_ended{false};
  std::array<Sample, kSamples> samples;
};

// Of the calling thread. The handler reads them, so they are set in an order in which each moment is
// right, and are words of their own.
struct ThreadState {
  std::atomic<const FunctionRecord*> function{nullptr};
  std::atomic<uintptr_t> outermost{0};
  std::atomic<ThreadSamples*> samples{nullptr};
};
// Static: the handler must not have the loader find, or make, its memory.
[[gnu::tls_model("initial-exec")]] thread_local constinit ThreadState here;

// The samplers of a process, one after the other, and the handler, which may be late, share these.
struct Shared {
  std::atomic<Nanos> period{0};  // 0: nobody wants samples.
  std::atomic<bool> asleep{false};
  sem_t wake{};
  Mutex mutex;
  std::vector<std::unique_ptr<ThreadSamples>> threads ABSL_GUARDED_BY(mutex);

  Shared() { sem_init(&wake, 0, 0); }
};
Shared& TheShared() {
  static Shared& shared = *new Shared;  // For the process's life.
  return shared;
}

struct Registers {
  uintptr_t instruction, stack, frame;
};
Registers RegistersOf(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {static_cast<uintptr_t>(machine.gregs[REG_RIP]),
          static_cast<uintptr_t>(machine.gregs[REG_RSP]),
          static_cast<uintptr_t>(machine.gregs[REG_RBP])};
#elif defined(__aarch64__)
  return {machine.pc, machine.sp, machine.regs[29]};
#else
#error "how are the registers of this processor called?"
#endif
}

#if defined(__aarch64__)
constexpr uintptr_t kAddressBits = (uintptr_t{1} << 48) - 1;  // The others may be a signature.
#else
constexpr uintptr_t kAddressBits = ~uintptr_t{0};
#endif

// Each frame begins with the frame pointer of its caller and the address to return to. A register that
// holds something else leads out of the bounds sooner or later, never to another's memory.
[[gnu::no_sanitize_address]] uint32_t Walk(Registers at, uintptr_t stack_begin, uintptr_t stack_end,
                                           uintptr_t outermost,
                                           std::array<uintptr_t, kMostFrames>& frames) {
  uint32_t depth = 0;
  frames[depth++] = at.instruction;
  // Either may be of a fiber, or of a handler with a stack of its own.
  const auto is_on = [&](uintptr_t address) {
    return address >= stack_begin && address < stack_end;
  };
  if (!is_on(at.stack) || !is_on(outermost)) return depth;
  uintptr_t lowest = at.stack;
  uintptr_t frame = at.frame;
  while (depth < kMostFrames && frame >= lowest && frame % sizeof(uintptr_t) == 0 &&
         frame < outermost && outermost - frame >= 2 * sizeof(uintptr_t)) {
    const auto* const words = reinterpret_cast<const uintptr_t*>(frame);
    const uintptr_t returns_to = words[1] & kAddressBits;
    if (returns_to == 0) break;
    frames[depth++] = returns_to - 1;  // Within the call, not behind it.
    lowest = frame + 2 * sizeof(uintptr_t);
    frame = words[0];
  }
  return depth;
}

void OnTimer(int, siginfo_t* info, void* context) {
  const FunctionRecord* const function = here.function.load(std::memory_order_relaxed);
  ThreadSamples* const samples = here.samples.load(std::memory_order_relaxed);
  if (function == nullptr || samples == nullptr || info->si_code != SI_TIMER) return;
  const int error = errno;
  const auto periods = 1 + static_cast<uint32_t>(std::max(info->si_overrun, 0));
  const uint64_t written = samples->written.load(std::memory_order_relaxed);
  if (written - samples->read.load(std::memory_order_acquire) == kSamples) {
    samples->lost_in.store(function, std::memory_order_relaxed);
    samples->lost.fetch_add(periods, std::memory_order_relaxed);
    return;
  }
  Sample& sample = samples->samples[written % kSamples];
  sample.function = function;
  sample.periods = periods;
  sample.depth = Walk(RegistersOf(context), samples->stack_begin, samples->stack_end,
                      here.outermost.load(std::memory_order_relaxed), sample.frames);
  samples->written.store(written + 1, std::memory_order_release);
  Shared& shared = TheShared();
  // Behind `written`, as the sampler looks once more after it has said that it sleeps.
  if (shared.asleep.exchange(false, std::memory_order_seq_cst)) sem_post(&shared.wake);
  errno = error;
}

struct Stack {
  uintptr_t begin = 0, end = 0;
};
constinit Stack main_stack;  // Once it was learned.

// That of the calling thread. Empty where nobody knows: then no stack is followed.
Stack FindStack() {
  if (main_stack.end != 0 && syscall(SYS_gettid) == getpid()) return main_stack;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* begin = nullptr;
  size_t size = 0;
  Stack stack;
  if (pthread_attr_getstack(&attributes, &begin, &size) == 0) {
    stack.begin = reinterpret_cast<uintptr_t>(begin);
    stack.end = stack.begin + size;
  }
  pthread_attr_destroy(&attributes);
  return stack;
}

// The timer of the calling thread, from its first call to its end.
class ThreadTimer {
 public:
  ThreadTimer() = default;
  ~ThreadTimer() { Stop(); }
  ThreadTimer(const ThreadTimer&) = delete;
  ThreadTimer& operator=(const ThreadTimer&) = delete;

  void Prepare(Nanos period) {
    if (period_ == period) [[likely]]
      return;
    Stop();
    period_ = period;
    if (period == 0) return;
    auto samples = std::make_unique_for_overwrite<ThreadSamples>();
    const Stack stack = FindStack();
    samples->stack_begin = stack.begin;
    samples->stack_end = stack.end;
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SampleSignal();
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    // None is to be had: this thread is not sampled.
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0) return;
    samples_ = samples.get();
    {
      Shared& shared = TheShared();
      const MutexLock lock(shared.mutex);
      shared.threads.push_back(std::move(samples));
    }
    here.samples.store(samples_, std::memory_order_relaxed);
    sigset_t sample;
    sigemptyset(&sample);
    sigaddset(&sample, SampleSignal());
    pthread_sigmask(SIG_UNBLOCK, &sample, nullptr);
    const timespec every{period / kSecond, period % kSecond};
    const itimerspec often{every, every};
    timer_settime(timer_, 0, &often, nullptr);
  }

 private:
  void Stop() {
    if (samples_ == nullptr) return;
    timer_delete(timer_);  // One that is on its way finds no room to note it in.
    here.samples.store(nullptr, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    samples_->thread_ended.store(true, std::memory_order_release);
    samples_ = nullptr;
  }

  Nanos period_ = 0;
  timer_t timer_{};
  ThreadSamples* samples_ = nullptr;
};

bool IsOfSheaf(std::string_view name) {
  return name.starts_with("sheaf::") || name.starts_with("libsheaf");
}

}  // namespace

void LearnMainStack() { main_stack = FindStack(); }

// Names samples and writes them, on a thread of its own.
class CallSampler::Writer {
 public:
  Writer(std::shared_ptr<std::byte> segment, Nanos period)
      : segment_(std::move(segment)),
        writer_(telemetry::ProfilePageOf(segment_.get())),
        period_us_(static_cast<uint64_t>(period / kMicrosecond)),
        looks_every_(std::min<Nanos>(kLooksEvery, static_cast<Nanos>(kSamples) / 2 * period)),
        thread_("sheaf-profile") {
    thread_.Post([this] { Run(); });
  }
  ~Writer() {
    stopping_.store(true, std::memory_order_relaxed);
    sem_post(&TheShared().wake);
    thread_.Stop();
    while (Read()) {
    }
  }

 private:
  struct Called {
    std::string plain_name;
    uint32_t node = 0;
  };

  void Run();
  bool Read();
  bool ReadFrom(ThreadSamples& samples);
  void Add(const Sample& sample);
  const Called& CalledBy(const FunctionRecord* function);

  const std::shared_ptr<std::byte> segment_;
  telemetry::ProfileWriter writer_;
  const uint64_t period_us_;
  const Nanos looks_every_;
  CodeNames names_{writer_};
  absl::flat_hash_map<const FunctionRecord*, Called> called_;
  std::atomic<bool> stopping_{false};
  ThreadExecutor thread_;  // Last: it uses the others.
};

void CallSampler::Writer::Run() {
  Shared& shared = TheShared();
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (Read()) {
      const Nanos end = MonotonicNow() + looks_every_;
      const timespec until{end / kSecond, end % kSecond};
      sem_clockwait(&shared.wake, CLOCK_MONOTONIC, &until);
      continue;
    }
    shared.asleep.store(true, std::memory_order_seq_cst);
    if (Read()) {
      shared.asleep.store(false, std::memory_order_relaxed);
    } else if (!stopping_.load(std::memory_order_relaxed)) {
      sem_wait(&shared.wake);  // Until some thread works, or this ends.
    }
  }
}

// True: there was something.
bool CallSampler::Writer::Read() {
  std::vector<ThreadSamples*> threads;
  Shared& shared = TheShared();
  {
    const MutexLock lock(shared.mutex);
    std::erase_if(shared.threads, [](const std::unique_ptr<ThreadSamples>& thread) {
      return thread->thread_ended.load(std::memory_order_acquire) &&
             thread->written.load(std::memory_order_relaxed) ==
                 thread->read.load(std::memory_order_relaxed);
    });
    for (const auto& thread : shared.threads) threads.push_back(thread.get());
  }
  bool some = false;
  for (ThreadSamples* thread : threads) some |= ReadFrom(*thread);
  return some;
}

bool CallSampler::Writer::ReadFrom(ThreadSamples& samples) {
  const uint64_t written = samples.written.load(std::memory_order_acquire);
  uint64_t read = samples.read.load(std::memory_order_relaxed);
  const bool some = read != written;
  for (; read != written; ++read) {
    Add(samples.samples[read % kSamples]);
    samples.read.store(read + 1, std::memory_order_release);
  }
  if (const uint64_t lost = samples.lost.exchange(0, std::memory_order_relaxed); lost != 0) {
    Sample sample;
    sample.function = samples.lost_in.load(std::memory_order_relaxed);
    sample.periods = static_cast<uint32_t>(lost);
    sample.depth = 0;
    Add(sample);
  }
  return some;
}

void CallSampler::Writer::Add(const Sample& sample) {
  const Called& called = CalledBy(sample.function);
  uint32_t node = called.node;
  uint32_t depth = sample.depth;
  const auto name = [&]() -> const std::string& {
    return names_.Of(sample.frames[depth - 1]).function;
  };
  while (depth > 0 && (name().empty() || IsOfSheaf(name()))) --depth;
  // The function that was called, behind what the standard library calls it by, or inlined there.
  const uint32_t below = depth;
  while (depth > 0 && name().starts_with("std::")) --depth;
  if (depth > 0 && name() == called.plain_name) {
    --depth;
  } else {
    depth = below;
  }
  uint32_t last = telemetry::ProfileWriter::kNoFrame;
  for (; depth > 0; --depth) {
    const CodeNames::Name& at = names_.Of(sample.frames[depth - 1]);
    // Words that were no addresses of functions; and a library that calls itself, without names.
    if (at.function.empty() || (at.frame == last && at.is_library)) continue;
    last = at.frame;
    node = writer_.Below(node, at.frame);
  }
  writer_.Add(node, sample.periods * period_us_);
}

// Remembered: a program that exits destroys its functions while their last samples are read.
const CallSampler::Writer::Called& CallSampler::Writer::CalledBy(const FunctionRecord* function) {
  const auto [known, is_new] = called_.try_emplace(function);
  if (is_new) {
    known->second = {
        WithoutTemplates(function->name),
        writer_.Below(telemetry::ProfileWriter::kRoot, writer_.FrameOf(function->name, "", 0))};
  }
  return known->second;
}

int SampleSignal() { return SIGRTMAX - 5; }

CallSampler::CallSampler(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}

std::unique_ptr<CallSampler> CallSampler::Start(std::shared_ptr<std::byte> segment, int64_t hz) {
  struct sigaction now{}, ours{};
  ours.sa_sigaction = OnTimer;
  ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  if (sigaction(SampleSignal(), nullptr, &now) != 0) return nullptr;
  const bool is_ours = (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnTimer;
  if (!is_ours && ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL)) return nullptr;
  TheShared();  // The handler makes nothing.
  if (!is_ours && sigaction(SampleSignal(), &ours, nullptr) != 0) return nullptr;
  const Nanos period = kSecond / std::max<int64_t>(hz, 1);
  std::unique_ptr<CallSampler> sampler(
      new CallSampler(std::make_unique<Writer>(std::move(segment), period)));
  TheShared().period.store(period, std::memory_order_release);
  return sampler;
}

CallSampler::~CallSampler() { TheShared().period.store(0, std::memory_order_relaxed); }

RunningFunction CurrentFunction() {
  return {here.function.load(std::memory_order_relaxed),
          reinterpret_cast<const void*>(here.outermost.load(std::memory_order_relaxed))};
}

SampledCall::SampledCall(const FunctionRecord* function) : outer_(CurrentFunction()) {
  thread_local ThreadTimer timer;
  if (function != nullptr) timer.Prepare(TheShared().period.load(std::memory_order_acquire));
  here.function.store(nullptr, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  here.outermost.store(reinterpret_cast<uintptr_t>(this), std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  here.function.store(function, std::memory_order_relaxed);
}

SampledCall::~SampledCall() {
  here.function.store(nullptr, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  here.outermost.store(reinterpret_cast<uintptr_t>(outer_.outermost), std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  here.function.store(outer_.function, std::memory_order_relaxed);
}

}  // namespace sheaf::inline v1::internal
