// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/callback_runner.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/signal_mask.h"

namespace sheaf {

struct CallbackRunner::Shared : std::enable_shared_from_this<Shared> {
  explicit Shared(const char* name) : thread_name(name) {}
  // Where the process may start no thread now, the next Relieve tries again.
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Run();  // On a thread.

  const char* const thread_name;
  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> queue ABSL_GUARDED_BY(mutex);
  int threads ABSL_GUARDED_BY(mutex) = 0;
  int idle ABSL_GUARDED_BY(mutex) = 0;               // Of these.
  uint64_t begun ABSL_GUARDED_BY(mutex) = 0;         // Callbacks.
  uint64_t begun_before ABSL_GUARDED_BY(mutex) = 0;  // When Relieve last looked.
  bool closed ABSL_GUARDED_BY(mutex) = false;
};

CallbackRunner::CallbackRunner(const char* thread_name)
    : shared_(std::make_shared<Shared>(thread_name)) {}

CallbackRunner::~CallbackRunner() { Close({}); }

void CallbackRunner::Post(std::function<void()> callback) {
  const MutexLock lock(shared_->mutex);
  if (shared_->closed) return;
  shared_->queue.push_back(std::move(callback));
  if (shared_->threads == 0) shared_->StartThread();
  shared_->changed.NotifyOne();
}

void CallbackRunner::Relieve() {
  const MutexLock lock(shared_->mutex);
  const bool stuck = !shared_->queue.empty() && shared_->idle == 0 &&
                     std::exchange(shared_->begun_before, shared_->begun) == shared_->begun;
  if (stuck && !shared_->closed && shared_->threads < kMostThreads) shared_->StartThread();
}

void CallbackRunner::Shared::StartThread() {
  try {
    const AllSignalsBlocked blocked;
    std::thread([shared = shared_from_this()] { shared->Run(); }).detach();
    ++threads;
  } catch (const std::system_error&) {
  }
}

void CallbackRunner::Shared::Run() {
  pthread_setname_np(pthread_self(), thread_name);
  MutexLock lock(mutex);
  while (true) {
    if (!queue.empty()) {
      std::function<void()> callback = std::move(queue.front());
      queue.pop_front();
      ++begun;
      lock.Unlock();
      callback();
      callback = nullptr;
      lock.Lock();
    } else if (closed || idle != 0) {  // One that waits is enough.
      break;
    } else {
      ++idle;
      while (!closed && queue.empty()) changed.Wait(mutex);
      --idle;
    }
  }
  --threads;
  changed.NotifyAll();
}

void CallbackRunner::Close(End end) {
  std::deque<std::function<void()>> dropped;  // Destroyed without the mutex.
  const MutexLock lock(shared_->mutex);
  shared_->closed = true;
  if (!end.finish) dropped.swap(shared_->queue);
  const size_t running = static_cast<size_t>(shared_->threads - shared_->idle);
  for (size_t more = std::min<size_t>(running + shared_->queue.size(), kMostThreads);
       end.all && static_cast<size_t>(shared_->threads) < more; --more) {
    shared_->StartThread();
  }
  shared_->changed.NotifyAll();
  shared_->changed.WaitFor(
      shared_->mutex, end.patience,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_->mutex) { return shared_->threads == 0; });
  if (end.all && shared_->threads > 0) return;
  for (std::function<void()>& late : shared_->queue) dropped.push_back(std::move(late));
  shared_->queue.clear();
}

}  // namespace sheaf
