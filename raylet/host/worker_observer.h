// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What looks after running workers from outside, on a thread of its own: the memory watch and the
// log tailer.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "raylet/host/event_loop.h"
#include "raylet/host/log_tailer.h"
#include "raylet/host/memory_watch.h"
#include "raylet/host/process_launcher.h"
#include "raylet/logs/log_events.h"
#include "shm/segment.h"

namespace sheaf {

class WorkerObserver final : public MemoryReader {
 public:
  // `on_lines` is called on the observer's thread. `events` may be null. References outlive the
  // observer.
  // kResourceExhausted: no descriptors.
  static absl::StatusOr<std::unique_ptr<WorkerObserver>> Start(
      MemoryWatchOptions memory, LogFiles& files, LogTailerOptions logs,
      std::function<void(LogBatch)> on_lines, std::unique_ptr<LogEvents> events);
  ~WorkerObserver() override { Stop(); }
  void Stop();

  // Any thread. `kill` as MemoryWatch has it; called before the first worker starts.
  void WatchMemory(std::function<void(ProcessId, const proto::Death&)> kill);
  void OnStarted(const LaunchedWorker& worker);
  void OnExited(ProcessId process);
  // Of workers: its segment says which job and which actor it belongs to; `added` false: read it a last time.
  void OnSegment(ProcessId process, const std::shared_ptr<Mapping>& segment, bool added);
  // The file of that name is the output of a submitted command that begins, or has ended.
  void OnJob(const std::string& name, bool begins);
  // Hands out all lines that are there, and then calls `done`, on the observer's thread.
  void TailNow(std::function<void()> done);
  // Runs `work`, which reads files of the kernel, on the observer's thread; any thread may call.
  void Post(std::function<void()> work) { loop_->Post(std::move(work)); }

  // MemoryReader, on the observer's thread.
  MemoryUse ReadUse() override;
  std::vector<WorkerMemory> ReadWorkers() override;

 private:
  WorkerObserver(MemoryWatchOptions memory, LogFiles& files, LogTailerOptions logs,
                 std::function<void(LogBatch)> on_lines, std::unique_ptr<LogEvents> events,
                 std::unique_ptr<EventLoop> loop);
  void BeginToTail();
  void Tail();
  void AddEvents(const LaunchedWorker& worker);
  void RemoveOldLogs();
  void LookAtMemory();

  const MemoryWatchOptions memory_options_;
  const std::function<void(LogBatch)> on_lines_;
  MonotonicClock clock_;
  // The thread's own.
  LogTailer tailer_;
  const std::unique_ptr<LogEvents> events_;
  std::unique_ptr<MemoryWatch> memory_;
  absl::btree_map<ProcessId, LaunchedWorker> workers_;
  bool tailing_ = false;
  bool looking_ = false;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace sheaf
