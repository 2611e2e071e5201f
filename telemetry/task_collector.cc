// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/task_collector.h"

#include <pthread.h>

#include <utility>

#include "base/clock.h"
#include "base/signal_mask.h"

namespace sheaf::telemetry {
namespace {

constexpr Nanos kLookWhileBusy = 250 * kMillisecond;
constexpr Nanos kLookWhileQuiet = kSecond;

}  // namespace

TaskCollector::TaskCollector(size_t history_bytes) : history_(history_bytes) {
  const AllSignalsBlocked blocked;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "task-events");
}

TaskCollector::~TaskCollector() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void TaskCollector::Push(Step step) {
  {
    const MutexLock lock(mutex_);
    steps_.push_back(std::move(step));
  }
  changed_.NotifyAll();
}

void TaskCollector::Add(ProcessId process, int32_t os_pid, std::shared_ptr<Mapping> segment) {
  Push([this, process, os_pid, segment = std::move(segment)] {
    const std::byte* const bytes = std::as_const(*segment).data();
    history_.Add(process, os_pid, EventPageOf(bytes));
    profile_.Add(process, ProfilePageOf(bytes),
                 [reader = EventReader(EventPageOf(bytes))] { return reader.job(); });
    segments_[process] = segment;
  });
}

void TaskCollector::Remove(ProcessId process) {
  Push([this, process] {
    history_.Remove(process);
    profile_.Remove(process, MonotonicNow());
    segments_.erase(process);
  });
}

void TaskCollector::Ask(proto::StateQuery query, uint32_t limit,
                        std::function<void(proto::StateAnswer)> done) {
  Push([this, query = std::move(query), limit, done = std::move(done)] {
    Read();
    proto::StateAnswer answer;
    answer.set_request(query.request());
    if (query.what() == proto::StateQuery::FUNCTIONS) {
      history_.AddFunctions(answer);
    } else if (query.what() == proto::StateQuery::PROFILE) {
      profile_.AddProfile(query, limit, UnixNow() - MonotonicNow(), answer);
    } else {
      history_.AddTasks(query, limit, UnixNow() - MonotonicNow(), answer);
    }
    done(std::move(answer));
  });
}

bool TaskCollector::Read() {
  const bool ended = history_.Read();
  return profile_.Read(MonotonicNow()) || ended;
}

void TaskCollector::Run() {
  Nanos look_at = MonotonicNow();
  while (true) {
    std::deque<Step> steps;
    {
      const MutexLock lock(mutex_);
      while (steps_.empty() && !ending_) {
        const Nanos now = MonotonicNow();
        if (segments_.empty()) {
          changed_.Wait(mutex_);
        } else if (now >= look_at) {
          break;
        } else {
          changed_.WaitFor(mutex_, look_at - now);
        }
      }
      if (steps_.empty() && ending_) return;
      steps = std::exchange(steps_, {});
    }
    for (Step& step : steps) step();
    if (MonotonicNow() < look_at) continue;
    const bool news = Read();
    look_at = MonotonicNow() + (news ? kLookWhileBusy : kLookWhileQuiet);
  }
}

}  // namespace sheaf::telemetry
