// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/memory_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sheaf {
namespace {

constexpr Nanos kUsualPeriod = 250 * kMillisecond;
constexpr Nanos kShortPeriod = 50 * kMillisecond;
constexpr double kNear = 0.9;  // Of the limit: from here on it looks more often.

std::string Size(int64_t bytes) {
  constexpr double kGibibyte = 1024.0 * 1024 * 1024;
  return bytes >= int64_t{1} << 30
             ? absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / kGibibyte)
             : absl::StrFormat("%d MiB", bytes >> 20);
}

// The largest of those for whom `counts` holds; of those within a tenth of it the newest. Null:
// none.
template <class F>
const WorkerMemory* Pick(std::span<const WorkerMemory> workers, F counts) {
  int64_t largest = 0;
  for (const WorkerMemory& worker : workers) {
    if (counts(worker)) largest = std::max(largest, worker.anonymous_bytes);
  }
  const WorkerMemory* picked = nullptr;
  for (const WorkerMemory& worker : workers) {
    if (!counts(worker) || worker.anonymous_bytes < largest - largest / 10) continue;
    if (picked == nullptr || worker.started_at > picked->started_at) picked = &worker;
  }
  return picked;
}

double UsedPart(const MemoryUse& use) {
  return 1.0 - static_cast<double>(use.available_bytes) / static_cast<double>(use.limit_bytes);
}

}  // namespace

std::optional<MemoryVerdict> JudgeMemory(const MemoryWatchOptions& options, const MemoryUse& use,
                                         std::span<const WorkerMemory> workers) {
  if (options.limit <= 0 || use.limit_bytes <= 0 || UsedPart(use) <= options.limit)
    return std::nullopt;
  const auto matters = [&](const WorkerMemory& worker) {
    return worker.anonymous_bytes >= options.least_victim_bytes;
  };
  const WorkerMemory* victim = Pick(
      workers, [&](const WorkerMemory& worker) { return matters(worker) && worker.retriable; });
  if (victim == nullptr) victim = Pick(workers, matters);
  if (victim == nullptr) return std::nullopt;

  int64_t others = 0;
  for (const WorkerMemory& worker : workers) {
    if (worker.process != victim->process) others += worker.anonymous_bytes;
  }
  return MemoryVerdict{
      victim->process,
      absl::StrCat("out of memory: ", Size(use.limit_bytes - use.available_bytes), " of ",
                   Size(use.limit_bytes), " were in use (the limit is ",
                   absl::StrFormat("%.0f", options.limit * 100), " %), and this worker",
                   victim->running.empty() ? "" : absl::StrCat(", running ", victim->running, ","),
                   " had ", Size(victim->anonymous_bytes), " of its own; the node's other ",
                   workers.size() - 1, " workers had ", Size(others),
                   " together. Ask for memory in the task's options, or give the node more")};
}

// Of a worker that the kernel or this watch has killed the memory is used for a while longer than
// anybody can say whose it is.
bool MemoryWatch::IsConfirmed(std::span<const WorkerMemory> workers) {
  bool none_ended = !seen_short_.empty();
  std::vector<ProcessId> now;
  for (const WorkerMemory& worker : workers) {
    none_ended = none_ended && worker.anonymous_bytes > 0;
    now.push_back(worker.process);
  }
  for (const ProcessId before : seen_short_) {
    none_ended = none_ended && std::find(now.begin(), now.end(), before) != now.end();
  }
  seen_short_ = std::move(now);
  return none_ended;
}

Nanos MemoryWatch::Look() {
  const Nanos now = clock_.Now();
  if (options_.limit <= 0) return kForever;
  const MemoryUse use = reader_.ReadUse();
  if (use.limit_bytes <= 0) return Deadline(now, kUsualPeriod);
  if (std::exchange(kernel_kills_, use.kernel_kills) != use.kernel_kills)
    not_before_ = now + options_.pause;
  if (UsedPart(use) <= options_.limit) seen_short_.clear();
  if (UsedPart(use) <= options_.limit * kNear) return now + kUsualPeriod;
  if (UsedPart(use) > options_.limit && now >= not_before_) {
    const std::vector<WorkerMemory> workers = reader_.ReadWorkers();
    if (!IsConfirmed(workers)) return now + kShortPeriod;
    if (const auto verdict = JudgeMemory(options_, use, workers)) {
      proto::Death death;
      death.set_cause(proto::Death::OUT_OF_MEMORY);
      death.set_message(verdict->evidence);
      kill_(verdict->victim, death);
      not_before_ = now + options_.pause;
    }
  }
  return now + kShortPeriod;
}

}  // namespace sheaf
