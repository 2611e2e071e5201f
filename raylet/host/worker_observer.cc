// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/worker_observer.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "object_store/machine_memory.h"
#include "raylet/host/proc_files.h"
#include "raylet/logs/log_names.h"
#include "telemetry/event_reader.h"

namespace sheaf {
namespace {

constexpr Nanos kTailPeriod = 100 * kMillisecond;
constexpr Nanos kOldLogsPeriod = 600 * kSecond;

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerObserver>> WorkerObserver::Start(
    MemoryWatchOptions memory, LogFiles& files, LogTailerOptions logs,
    std::function<void(LogBatch)> on_lines, std::unique_ptr<LogEvents> events) {
  SHEAF_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Start("watch"));
  if (events != nullptr) {
    logs.is_unread = [reader = events.get()](const std::string& name) {
      return reader->IsBehind(name);
    };
  }
  return std::unique_ptr<WorkerObserver>(new WorkerObserver(
      memory, files, logs, std::move(on_lines), std::move(events), std::move(loop)));
}

WorkerObserver::WorkerObserver(MemoryWatchOptions memory, LogFiles& files, LogTailerOptions logs,
                               std::function<void(LogBatch)> on_lines,
                               std::unique_ptr<LogEvents> events, std::unique_ptr<EventLoop> loop)
    : memory_options_(memory),
      on_lines_(std::move(on_lines)),
      tailer_(files, logs),
      events_(std::move(events)),
      loop_(std::move(loop)) {
  loop_->Post([this] { loop_->After(kOldLogsPeriod, [this] { RemoveOldLogs(); }); });
}

void WorkerObserver::Stop() {
  loop_->Stop();
  if (events_ != nullptr) events_->Stop();
}

void WorkerObserver::WatchMemory(std::function<void(ProcessId, const proto::Death&)> kill) {
  loop_->Post([this, kill = std::move(kill)] {
    memory_ = std::make_unique<MemoryWatch>(memory_options_, clock_, *this, kill);
  });
}

void WorkerObserver::OnStarted(const LaunchedWorker& worker) {
  loop_->Post([this, worker] {
    tailer_.Add(worker);
    if (events_ != nullptr) AddEvents(worker);
    workers_.emplace(worker.process, worker);
    // Nothing is looked at on an idle node.
    BeginToTail();
    if (!std::exchange(looking_, true)) LookAtMemory();
  });
}

void WorkerObserver::OnExited(ProcessId process) {
  loop_->Post([this, process] {
    tailer_.End(process);
    const auto worker = workers_.find(process);
    if (events_ != nullptr && worker != workers_.end()) {
      events_->End(NameOf(worker->second.stdout_path));
      events_->End(NameOf(worker->second.stderr_path));
    }
    workers_.erase(process);
    for (LogBatch& batch : tailer_.Poll()) on_lines_(std::move(batch));
  });
}

void WorkerObserver::OnJob(const std::string& name, bool begins) {
  loop_->Post([this, name, begins] {
    if (!begins) {
      tailer_.EndJob(name);
      if (events_ != nullptr) events_->End(name);
      return;
    }
    tailer_.AddJob(name);
    const std::string id = SubmissionOfLog(name).value_or("");
    if (events_ != nullptr) events_->Add({name, "sheaf.job", "info", 0, {{"submission", id}}, ""});
    BeginToTail();
  });
}

void WorkerObserver::OnSegment(ProcessId process, const std::shared_ptr<Mapping>& segment,
                               bool added) {
  if (events_ == nullptr) return;
  const auto read = [segment] {
    const telemetry::EventReader reader(telemetry::EventPageOf(std::as_const(*segment).data()));
    EventFields fields;
    if (reader.job() != 0)
      fields.emplace_back("job", absl::StrCat(absl::Hex(reader.job(), absl::kZeroPad8)));
    if (!reader.actor().is_nil()) fields.emplace_back("actor", reader.actor().ToHex());
    return fields;
  };
  std::function<EventFields()> known = read;
  if (!added) known = [fields = read()] { return fields; };
  // Behind the words that it has started.
  loop_->Post(
      [this, process, known = std::move(known)] { events_->Know(process.ToString(), known); });
}

// What is written as errors counts as such, as elsewhere where nothing else is known of a line.
void WorkerObserver::AddEvents(const LaunchedWorker& worker) {
  for (const bool errors : {false, true}) {
    events_->Add({NameOf(errors ? worker.stderr_path : worker.stdout_path),
                  "sheaf.worker",
                  errors ? "error" : "info",
                  worker.os_pid,
                  {{"driver", worker.driver.ToString()},
                   {"worker", worker.process.ToString()},
                   {"stream", errors ? "err" : "out"}},
                  worker.process.ToString()});
  }
}

void WorkerObserver::BeginToTail() {
  if (!std::exchange(tailing_, true)) loop_->After(kTailPeriod, [this] { Tail(); });
}

void WorkerObserver::TailNow(std::function<void()> done) {
  loop_->Post([this, done = std::move(done)] {
    for (LogBatch& batch : tailer_.Poll()) on_lines_(std::move(batch));
    done();
  });
}

void WorkerObserver::Tail() {
  if (events_ != nullptr) events_->Look();
  for (LogBatch& batch : tailer_.Poll()) on_lines_(std::move(batch));
  tailing_ = !tailer_.empty();
  if (tailing_) loop_->After(kTailPeriod, [this] { Tail(); });
}

void WorkerObserver::RemoveOldLogs() {
  tailer_.RemoveOld(time(nullptr));
  loop_->After(kOldLogsPeriod, [this] { RemoveOldLogs(); });
}

void WorkerObserver::LookAtMemory() {
  looking_ = memory_ != nullptr && !workers_.empty();
  if (!looking_) return;
  const Nanos next = memory_->Look();
  if (next == kForever) return;  // Switched off: `looking_` stays, nobody looks again.
  loop_->After(std::max<Nanos>(next - clock_.Now(), 0), [this] { LookAtMemory(); });
}

MemoryUse WorkerObserver::ReadUse() {
  const MachineMemory memory = ReadMachineMemory();
  return {memory.limit_bytes, memory.available_bytes, KernelOomKills()};
}

std::vector<WorkerMemory> WorkerObserver::ReadWorkers() {
  std::vector<WorkerMemory> result;
  for (const auto& [process, worker] : workers_) {
    int64_t bytes = AnonymousBytes(worker.os_pid);
    for (const pid_t child : DescendantsOf(worker.os_pid)) bytes += AnonymousBytes(child);
    result.push_back({process, bytes, worker.started_at, true, ""});
  }
  return result;
}

}  // namespace sheaf
