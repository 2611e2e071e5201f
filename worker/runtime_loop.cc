// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Async actors whose language has an event loop (TaskHandler::has_event_loop). Three threads share
// the work:
//   the loop's  takes the calls. When it has nothing to do it waits for them as all threads wait
//               (DriveUntil): a call wakes it alone, and one that comes fast enough nobody.
//   the main    sleeps in epoll for it: what the loop's descriptors have to say ends that wait.
//   the helper  runs the creation, and waits for arguments that are not within reach, or may not be
//               held yet.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

constexpr uint32_t kReadableOnce = EPOLLIN | EPOLLONESHOT;
constexpr int kLongestWatch = 1000;  // Milliseconds; whatever ends it writes to leave_event_.

}  // namespace

bool RuntimeImpl::RunsLoop() const {
  return executor_->is_async() && options_.handler->has_event_loop();
}

// False: there are none.
bool RuntimeImpl::CollectCalls(std::vector<std::shared_ptr<Execution>>* calls) {
  for (std::shared_ptr<Execution>& call : fetched_) calls->push_back(std::move(call));
  fetched_.clear();
  for (auto& group : executor_->groups()) {
    while (executor_->HasWork(*group) &&
           group->queue.front()->spec().kind() == proto::TaskTemplate::ACTOR_METHOD) {
      SHEAF_FAILPOINT("worker.before_call");
      std::shared_ptr<CallExecution> call = executor_->Take(*group);
      const bool may_hold =
          !call->has_store_arguments() || executor_->argument_holds().Begin(*call);
      std::vector<const StoreArgument*> missing;
      if (may_hold) missing = PinArguments(*call);
      if (may_hold && missing.empty() && call->Unpack()) {
        calls->push_back(std::move(call));
      } else {
        group->held_back = true;
        Fetch& fetch = to_fetch_.emplace_back();
        fetch.call = std::move(call);
        fetch.admitted = may_hold;
        fetch.missing = std::move(missing);
        to_fetch_changed_.notify_one();
        if (driving_) {  // The helper may wait for others: whoever drives lets it look again.
          look_again_ = true;
          RingBell(mailbox_->bell(), Lane::kControl);
        }
      }
    }
  }
  return !calls->empty();
}

absl::Status RuntimeImpl::WatchLoop(int descriptor) {
  UniqueFd watch(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd leave(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event loop = {.events = kReadableOnce, .data = {.fd = descriptor}};
  epoll_event leaves = {.events = EPOLLIN, .data = {.fd = leave.get()}};
  if (!watch.valid() || !leave.valid() ||
      epoll_ctl(watch.get(), EPOLL_CTL_ADD, descriptor, &loop) != 0 ||
      epoll_ctl(watch.get(), EPOLL_CTL_ADD, leave.get(), &leaves) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("the event loop's descriptor ", descriptor,
                                                     " cannot be watched: ", strerror(errno)));
  }
  Lock lock(*this);
  loop_descriptor_ = descriptor;
  loop_watch_ = std::move(watch);
  leave_event_ = std::move(leave);
  loop_watched_ = true;
  leaves_.notify_all();
  if (leaving_) eventfd_write(leave_event_.get(), 1);
  return absl::OkStatus();
}

// For each time that it is readable the main thread is called once, and not while the loop runs.
void RuntimeImpl::ArmLoopWatch() {
  if (std::exchange(loop_watched_, true)) return;
  epoll_event loop = {.events = kReadableOnce, .data = {.fd = loop_descriptor_}};
  epoll_ctl(loop_watch_.get(), EPOLL_CTL_MOD, loop_descriptor_, &loop);
}

// The main thread, until a descriptor has something to say or a while has passed.
void RuntimeImpl::WatchDescriptors(Lock& lock) {
  lock.Unlock();
  epoll_event event;
  const int count = epoll_wait(loop_watch_.get(), &event, 1, kLongestWatch);
  lock.Relock();
  if (count != 1 || event.data.fd != loop_descriptor_) return;
  loop_watched_ = false;
  loop_looks_ = true;
  Recheck();
}

bool RuntimeImpl::TakeCalls(Nanos deadline, std::vector<std::shared_ptr<Execution>>* calls) {
  Lock lock(*this);
  if (deadline != 0) {
    ArmLoopWatch();
    const absl::Status status = DriveUntil(
        lock, deadline, [&] { return CollectCalls(calls) || std::exchange(loop_looks_, false); },
        WaitsFor::kCalls);
    return status.ok() || absl::IsDeadlineExceeded(status);
  }
  if (!driving_) {  // Else another thread looks at the rings.
    driving_ = true;
    SetBell(mailbox_->bell(), BellState::kAwake);
    PollRings();
    ServeWaiters();
    LeaveToken();
  }
  CollectCalls(calls);
  return !raylet_dead_;
}

void RuntimeImpl::HelpLoop() {
  pthread_setname_np(pthread_self(), "sheaf-actor");
  Lock lock(*this);
  while (!stopping_) {
    ConcurrencyGroup& first = executor_->default_group();
    if (executor_->HasWork(first) &&
        first.queue.front()->spec().kind() == proto::TaskTemplate::ACTOR_CREATION) {
      RunCall(lock, executor_->Take(first));
      lock.Breathe();
      continue;
    }
    if (to_fetch_.empty()) {
      to_fetch_changed_.wait_for(lock.native(), std::chrono::nanoseconds(kLongestSleep));
      continue;
    }
    // Of several groups: each by itself, whatever the others wait for.
    auto next = to_fetch_.begin();
    const absl::Status waited = DriveUntil(
        lock, kForever,
        [&] {
          for (next = to_fetch_.begin(); next != to_fetch_.end(); ++next) {
            if (LookAtFetch(*next)) return true;
          }
          return false;
        },
        WaitsFor::kArguments);
    if (!waited.ok()) next = to_fetch_.begin();
    std::list<Fetch> taken;
    taken.splice(taken.begin(), to_fetch_, next);
    Fetch& fetch = taken.front();
    const absl::Status fetched = EndFetch(fetch, waited);
    fetch.call->group->held_back = false;
    if (fetch.call->cancelled()) {
      fetch.call->Fail(CancelledBeforeStart(fetch.call->name()), false);
      fetch.call.reset();
    } else if (fetched.ok()) {
      fetched_.push_back(std::move(fetch.call));
    } else {
      fetch.call->Fail({ErrorKind::kObjectLost, std::string(fetched.message()), {}}, true);
      fetch.call.reset();
    }
    Recheck();
    lock.Breathe();
  }
}

}  // namespace sheaf
