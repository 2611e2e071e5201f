// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/parallel_copy.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "base/mutex.h"
#include "base/signal_mask.h"
#include "shm/segment.h"
#include "shm/usable_cores.h"

namespace sheaf {
namespace {

constexpr size_t kParallelFrom = 8 * 1024 * 1024;
constexpr size_t kBytesPerThread = 4 * 1024 * 1024;
constexpr size_t kChunk = 2 * 1024 * 1024;
constexpr int kMaxThreads = 4;

// One range, cut into chunks that whoever comes takes.
struct Job {
  char* to;
  const char* from;  // nullptr: nothing is copied.
  size_t size;
  Pages pages;  // Of `to`: cold ones are entered.
  size_t chunks;
  std::atomic<size_t> taken{0};
  std::atomic<size_t> done{0};

  static void Do(char* to, const char* from, size_t size, Pages pages) {
    if (pages == Pages::kCold) EnterPages(reinterpret_cast<std::byte*>(to), size);
    if (from != nullptr) std::memcpy(to, from, size);
  }
  void Help() {
    for (size_t chunk; (chunk = taken.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      const size_t begin = chunk * kChunk;
      Do(to + begin, from == nullptr ? nullptr : from + begin, std::min(kChunk, size - begin),
         pages);
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) done.notify_all();
    }
  }
};

// Threads that wait for copies to help with. Started on first need, never ended.
class Helpers {
 public:
  static Helpers& Get() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] {
      // The threads stayed with the parent, and so may a locked mutex: begin anew.
      g_helpers.store(nullptr, std::memory_order_relaxed);
    });
    (void)registered;
    Helpers* helpers = g_helpers.load(std::memory_order_acquire);
    if (helpers != nullptr) return *helpers;
    auto* made = new Helpers;
    if (g_helpers.compare_exchange_strong(helpers, made, std::memory_order_acq_rel)) return *made;
    delete made;
    return *helpers;
  }

  void Invite(const std::shared_ptr<Job>& job, int helpers) {
    const MutexLock lock(mutex_);
    for (int i = 0; i < helpers; ++i) invitations_.push_back(job);
    invited_.NotifyAll();
    while (threads_ < helpers && Start()) ++threads_;
  }

 private:
  bool Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const AllSignalsBlocked blocked;
    pthread_t thread;
    const bool started = pthread_create(&thread, nullptr, &Helpers::Main, this) == 0;
    if (started) pthread_detach(thread);
    return started;
  }
  static void* Main(void* self) {
    static_cast<Helpers*>(self)->Serve();
    return nullptr;
  }
  void Serve() {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        const MutexLock lock(mutex_);
        while (invitations_.empty()) invited_.Wait(mutex_);
        job = std::move(invitations_.front());
        invitations_.pop_front();
      }
      job->Help();
    }
  }

  static std::atomic<Helpers*> g_helpers;
  Mutex mutex_;
  CondVar invited_;
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<Job>> invitations_ ABSL_GUARDED_BY(mutex_);
};
std::atomic<Helpers*> Helpers::g_helpers{nullptr};

// Of so many cores those that nobody runs on now: "0.1 0.1 0.1 RUNNABLE/ALL PID".
int IdleCores(int usable) {
  const int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128];
  const ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* slash = std::strchr(text, '/');
  if (slash == nullptr) return 0;
  while (slash > text && slash[-1] != ' ') --slash;
  return std::max(0, usable - std::atoi(slash));
}

void DoWith(int threads, char* to, const char* from, size_t size, Pages pages) {
  if (size <= kChunk) {
    if (size != 0) Job::Do(to, from, size, pages);
    return;
  }
  if (threads <= 1) {
    if (pages == Pages::kEntered) return Job::Do(to, from, size, pages);
    Job job{to, from, size, pages, (size + kChunk - 1) / kChunk};
    return job.Help();
  }
  auto job = std::make_shared<Job>();
  job->to = to;
  job->from = from;
  job->size = size;
  job->pages = pages;
  job->chunks = (size + kChunk - 1) / kChunk;
  Helpers::Get().Invite(job, threads - 1);
  job->Help();
  for (size_t done; (done = job->done.load(std::memory_order_acquire)) < job->chunks;) {
    job->done.wait(done, std::memory_order_acquire);
  }
}

// For so many bytes, now. Cold memory comes from a raylet that readies more of it on another core,
// which is not idle then: it is shared.
int ThreadsFor(size_t size, Pages pages) {
  if (size < kParallelFrom) return 1;
  const auto threads = static_cast<int>(std::min<size_t>(size / kBytesPerThread, kMaxThreads));
  const int usable = UsableCores();
  const int shared = pages == Pages::kCold && usable > 1 ? 1 : 0;
  return std::min(threads, 1 + std::max(shared, IdleCores(usable)));
}

}  // namespace

void ParallelCopyWith(int threads, void* to, const void* from, size_t size) {
  DoWith(threads, static_cast<char*>(to), static_cast<const char*>(from), size, Pages::kEntered);
}

void ParallelCopy(void* to, const void* from, size_t size, Pages pages) {
  DoWith(ThreadsFor(size, pages), static_cast<char*>(to), static_cast<const char*>(from), size,
         pages);
}

void ParallelEnterPages(std::byte* begin, size_t bytes) {
  DoWith(ThreadsFor(bytes, Pages::kCold), reinterpret_cast<char*>(begin), nullptr, bytes,
         Pages::kCold);
}

}  // namespace sheaf
