// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One thread of a node that reads the task events of its processes before they are overwritten, and
// their profiles, and what the machine does (HostFigures), and answers what is asked of these. It looks
// four times a second while there is news of tasks, else once, and not at all while no process is
// attached; at the machine every two seconds. Thread-safe; nobody waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/container/btree_map.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "proto/raylet.pb.h"
#include "shm/segment.h"
#include "telemetry/host_figures.h"
#include "telemetry/node_digests.h"
#include "telemetry/profile_history.h"
#include "telemetry/series_ring.h"
#include "telemetry/span_queue.h"
#include "telemetry/task_history.h"

namespace sheaf::telemetry {

class TaskCollector {
 public:
  static constexpr size_t kHistoryBytes = 32 * 1024 * 1024;

  // `host`: nullptr: nothing is told of the machine. `spans`, which outlives this, is given each call
  // that ended; nullptr: nobody is.
  explicit TaskCollector(std::unique_ptr<HostFigures> host = nullptr, SpanQueue* spans = nullptr,
                         size_t history_bytes = kHistoryBytes);
  // What has been asked is answered first.
  ~TaskCollector();
  TaskCollector(const TaskCollector&) = delete;
  TaskCollector& operator=(const TaskCollector&) = delete;

  // A process with that segment has attached.
  void Add(ProcessId process, int32_t os_pid, std::shared_ptr<Mapping> segment);
  // It is gone; its segment is read a last time.
  void Remove(ProcessId process);
  // Calls `done`, on the thread of this, with what nodes remember: TASKS with `ended`, FUNCTIONS,
  // PROFILE, SERIES, or DIGEST.
  void Ask(proto::StateQuery query, uint32_t limit, std::function<void(proto::StateAnswer)> done);
  // The last figures of the machine; unknown before the first look.
  HostSample LastHost();
  // Ended calls that were written over before they were read, so far.
  uint64_t EventsLost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  using Step = std::function<void()>;
  void Push(Step step);
  bool Read();
  Nanos ToWall();
  void Run();
  void LookAtHost(Nanos now);
  void AddSeries(const proto::StateQuery& query, proto::StateAnswer& answer) const;

  // Of the thread alone.
  TaskHistory history_;
  ProfileHistory profile_;
  NodeDigests digests_;
  Nanos to_wall_ = 0;  // Wall time less monotonic time, as answers have it.
  absl::btree_map<ProcessId, std::shared_ptr<Mapping>> segments_;
  absl::btree_map<ProcessId, int32_t> pids_;
  const std::unique_ptr<HostFigures> host_;
  SeriesRing series_;

  std::atomic<uint64_t> lost_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Step> steps_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  HostSample last_host_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // Last: it uses all the others.
};

}  // namespace sheaf::telemetry
