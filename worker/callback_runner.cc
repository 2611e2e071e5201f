// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/callback_runner.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/signal_mask.h"

namespace sheaf {

struct CallbackRunner::Shared {
  const char* const thread_name;
  std::mutex mutex;  // Guards what follows.
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  int threads = 0;
  int idle = 0;               // Of these.
  uint64_t begun = 0;         // Callbacks.
  uint64_t begun_before = 0;  // When Relieve last looked.
  bool closed = false;
};

CallbackRunner::CallbackRunner(const char* thread_name)
    : shared_(std::make_shared<Shared>(thread_name)) {}

CallbackRunner::~CallbackRunner() { Close({}); }

void CallbackRunner::Post(std::function<void()> callback) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->closed) return;
  shared_->queue.push_back(std::move(callback));
  if (shared_->threads == 0) StartThread(shared_);
  shared_->changed.notify_one();
}

void CallbackRunner::Relieve() {
  const std::lock_guard lock(shared_->mutex);
  const bool stuck = !shared_->queue.empty() && shared_->idle == 0 &&
                     std::exchange(shared_->begun_before, shared_->begun) == shared_->begun;
  if (stuck && !shared_->closed && shared_->threads < kMostThreads) StartThread(shared_);
}

// With the mutex held. Where the process may start no thread now, the next Relieve tries again.
void CallbackRunner::StartThread(const std::shared_ptr<Shared>& shared) {
  try {
    const AllSignalsBlocked blocked;
    std::thread([shared] { Run(shared); }).detach();
    ++shared->threads;
  } catch (const std::system_error&) {
  }
}

void CallbackRunner::Run(const std::shared_ptr<Shared>& shared) {
  pthread_setname_np(pthread_self(), shared->thread_name);
  std::unique_lock lock(shared->mutex);
  while (true) {
    if (!shared->queue.empty()) {
      std::function<void()> callback = std::move(shared->queue.front());
      shared->queue.pop_front();
      ++shared->begun;
      lock.unlock();
      callback();
      callback = nullptr;
      lock.lock();
    } else if (shared->closed || shared->idle != 0) {  // One that waits is enough.
      break;
    } else {
      ++shared->idle;
      shared->changed.wait(lock, [&] { return shared->closed || !shared->queue.empty(); });
      --shared->idle;
    }
  }
  --shared->threads;
  shared->changed.notify_all();
}

void CallbackRunner::Close(End end) {
  std::deque<std::function<void()>> dropped;  // Destroyed without the mutex.
  std::unique_lock lock(shared_->mutex);
  shared_->closed = true;
  if (!end.finish) dropped.swap(shared_->queue);
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::nanoseconds(end.patience),
                            [this] { return shared_->threads == 0; });
  for (std::function<void()>& late : shared_->queue) dropped.push_back(std::move(late));
  shared_->queue.clear();
  lock.unlock();
}

}  // namespace sheaf
