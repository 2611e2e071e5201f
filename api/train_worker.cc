// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/train_worker.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "api/train_files.h"

namespace sheaf::inline v1::train {
namespace internal {
namespace {

constexpr size_t kMostUnread = 1000;  // Reports that the driver has not fetched; others wait.
// Reports that nobody waits for are fetched together.
constexpr Nanos kTogether = 20 * kMillisecond;

struct Loops {
  Mutex mutex;  // Libraries opened at run time register too.
  std::map<std::string, const Loop*> by_key ABSL_GUARDED_BY(mutex);
};
Loops& TheLoops() {
  static Loops& loops = *new Loops;  // Registered to before main.
  return loops;
}

const Loop& FindLoop(const std::string& key) {
  Loops& loops = TheLoops();
  const MutexLock lock(loops.mutex);
  const auto found = loops.by_key.find(key);
  if (found == loops.by_key.end()) {
    throw NotFoundError("this program has no training function '" + key +
                        "': is it another build?");
  }
  return *found->second;
}

collective::GroupOptions GroupOptionsOf(const Start& start) {
  collective::GroupOptions options;
  options.timeout = std::chrono::nanoseconds(start.group_timeout);
  options.formation_timeout = std::chrono::nanoseconds(start.formation_timeout);
  options.arena_bytes = start.arena_bytes;
  return options;
}

}  // namespace

void RegisterLoop(const Loop* loop) {
  Loops& loops = TheLoops();
  const MutexLock lock(loops.mutex);
  loops.by_key.emplace(loop->key, loop);
}

Session::Session(Start start)
    : start_(std::move(start)),
      checkpoint_(start_.checkpoint.empty() ? std::nullopt
                                            : std::optional(Checkpoint(start_.checkpoint))),
      next_(start_.steps),
      committed_(start_.steps) {}

void Session::ThrowIfStopped() const {
  if (stopping_) throw LoopStopped();
}

collective::Group& Session::group() {
  const MutexLock forming(forming_);
  {
    const MutexLock lock(mutex_);
    ThrowIfStopped();
    if (group_.has_value()) return *group_;
  }
  collective::Group group =
      collective::Group::Init(start_.group, start_.world_size, start_.rank, GroupOptionsOf(start_));
  const MutexLock lock(mutex_);
  ThrowIfStopped();
  return group_.emplace(std::move(group));
}

void Session::Report(const Metrics& metrics, const SaveFunction& save) {
  CheckNames(metrics);
  if (save && start_.folder.empty()) {
    throw InvalidArgumentError(
        "Report: nowhere to save a checkpoint: give the WorkerGroup Options::folder");
  }
  internal::Report report;
  report.metrics = metrics;
  {
    const MutexLock lock(mutex_);
    ThrowIfStopped();
    report.number = next_++;
  }
  const uint64_t number = report.number;
  if (save) {
    report.incomplete = IncompleteFolder(start_.folder, number, start_.epoch);
    MakeFolder(report.incomplete);
    Checkpoint to(report.incomplete);
    save(to);
    SyncFiles(report.incomplete);
  }
  const MutexLock lock(mutex_);
  unread_.reports.push_back(std::move(report));
  urgent_ |= static_cast<bool>(save);
  changed_.NotifyAll();
  changed_.Wait(mutex_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || ((!save || committed_ > number) && unread_.reports.size() <= kMostUnread);
  });
  ThrowIfStopped();
}

bool Session::stopping() {
  const MutexLock lock(mutex_);
  return stopping_;
}

Taken Session::Take(std::chrono::nanoseconds timeout) {
  const MutexLock lock(mutex_);
  changed_.WaitFor(mutex_, timeout.count(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !unread_.reports.empty() || unread_.ended;
  });
  if (!unread_.reports.empty()) {
    changed_.WaitFor(mutex_, kTogether, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return urgent_ || unread_.ended || unread_.reports.size() > kMostUnread;
    });
  }
  urgent_ = false;
  Taken taken = unread_;
  unread_.reports.clear();
  changed_.NotifyAll();
  return taken;
}

void Session::Commit(uint64_t reports) {
  const MutexLock lock(mutex_);
  committed_ = std::max(committed_, reports);
  changed_.NotifyAll();
}

void Session::Stop() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
  if (group_.has_value()) group_->Abort("the group of workers is formed anew");
}

void Session::End(bool collective) {
  std::optional<collective::Group> group;
  const MutexLock lock(mutex_);
  std::swap(group, group_);
  unread_.ended = true;
  unread_.stopped = stopping_;
  unread_.collective = collective;
  changed_.NotifyAll();
}

Place TrainWorker::Describe() { return {Context().node, static_cast<int>(getpid())}; }

bool TrainWorker::Prepare(const Start& start) {
  auto session = std::make_shared<Session>(start);
  const MutexLock lock(mutex_);
  session_ = std::move(session);
  return true;
}

void TrainWorker::Run(bool) {
  const std::shared_ptr<Session> session = Of(std::nullopt);
  Worker worker(*session);
  try {
    FindLoop(session->start().loop).run(worker, session->start().config);
    session->End(false);
  } catch (const LoopStopped&) {
    session->End(false);
  } catch (const collective::CollectiveError&) {
    session->End(true);
    throw;
  } catch (...) {
    session->End(false);
    throw;
  }
}

Taken TrainWorker::Take(uint64_t epoch, bool) {
  const std::shared_ptr<Session> session = Of(epoch);
  if (session == nullptr) {
    throw SystemError("this worker knows no epoch " + std::to_string(epoch));
  }
  return session->Take(kPoll);
}

void TrainWorker::Commit(uint64_t epoch, uint64_t reports) {
  if (const std::shared_ptr<Session> session = Of(epoch)) session->Commit(reports);
}

void TrainWorker::Stop(uint64_t epoch) {
  if (const std::shared_ptr<Session> session = Of(epoch)) session->Stop();
}

std::shared_ptr<Session> TrainWorker::Of(std::optional<uint64_t> epoch) {
  const MutexLock lock(mutex_);
  if (session_ == nullptr || (epoch.has_value() && session_->start().epoch != *epoch))
    return nullptr;
  return session_;
}

}  // namespace internal

int Worker::rank() const { return session_.start().rank; }
int Worker::world_size() const { return session_.start().world_size; }
int Worker::local_rank() const { return session_.start().local_rank; }
int Worker::local_world_size() const { return session_.start().local_world_size; }
int Worker::node_rank() const { return session_.start().node_rank; }
uint64_t Worker::epoch() const { return session_.start().epoch; }
uint64_t Worker::steps() const { return session_.start().steps; }
const std::optional<Checkpoint>& Worker::checkpoint() const { return session_.checkpoint(); }
collective::Group& Worker::group() { return session_.group(); }
void Worker::Report(const Metrics& metrics, const SaveFunction& save) {
  session_.Report(metrics, save);
}
bool Worker::stopping() const { return session_.stopping(); }

}  // namespace sheaf::inline v1::train
