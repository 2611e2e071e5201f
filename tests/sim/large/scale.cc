// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/large/scale.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/sim/cluster.h"

namespace sheaf::sim {
namespace {

constexpr uint64_t kTasksPerNode = 100;
// Events are counted, not timed, so that the verdict is the same on each machine. What a task or an
// idle node costs may grow by this much of what the cluster grows by: each change of a node's free
// resources goes to all others, in an event of its own.
constexpr double kMostGrowth = 0.05;

struct Cost {
  double events_per_task = 0;
  double idle_events_per_node = 0;  // And second.
};

// The same nodes as so many clusters of ten, which know nothing of each other and share nothing but
// the memory and the caches of this process: what the simulator costs.
constexpr int kNodesApart = 10;

// All simulated nodes hold their files in this process: some twenty each.
void RaiseFileLimit() {
  constexpr rlim_t kWanted = 1 << 20;
  rlimit limit{kWanted, kWanted};
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;  // A right of root.
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

constexpr size_t kKindsShown = 6;

double Micros(Nanos time) { return static_cast<double>(time) / kMicrosecond; }

// "3.1 SpillbackDemand, 1.2 RemoteJob": of what there was most, for each of `of`.
std::string MostFrequent(const FrameCounts& frames, double of) {
  std::vector<std::pair<uint64_t, size_t>> most;
  for (size_t kind = 0; kind < frames.size(); ++kind) {
    if (frames[kind] > 0) most.emplace_back(frames[kind], kind);
  }
  std::sort(most.rbegin(), most.rend());
  if (most.size() > kKindsShown) most.resize(kKindsShown);
  return absl::StrJoin(most, ", ", [of](std::string* out, const auto& entry) {
    absl::StrAppendFormat(out, "%.2f %s", static_cast<double>(entry.first) / of,
                          FrameName(static_cast<FrameKind>(entry.second)));
  });
}

double Sum(const FrameCounts& frames) {
  return static_cast<double>(std::accumulate(frames.begin(), frames.end(), uint64_t{0}));
}

bool Measure(uint64_t seed, int nodes, int drivers, Cost* cost) {
  RunOptions options;
  options.seed = seed;
  options.nodes = nodes;
  options.tasks = kTasksPerNode * static_cast<uint64_t>(nodes);
  options.most_task_drivers = drivers;
  const RunResult result = Cluster(options).Run();
  for (const std::string& failure : result.failures) std::printf("  %s\n", failure.c_str());
  const double tasks = static_cast<double>(result.calls);
  const double node_seconds = nodes * static_cast<double>(result.idle.time) / kSecond;
  if (!result.failures.empty() || result.calls != options.tasks || node_seconds == 0) {
    std::printf("%zu of %lu tasks were made\n", result.calls, options.tasks);
    return false;
  }
  cost->events_per_task = static_cast<double>(result.tasks.events) / tasks;
  cost->idle_events_per_node = static_cast<double>(result.idle.events) / node_seconds;
  std::printf("%6d %8.0f %8.0f %8.2f %8.1f %8.1f %8.1f %8.2f | %8.1f %8.1f %8.1f\n", nodes, tasks,
              static_cast<double>(result.boot.events) / nodes,
              static_cast<double>(result.tasks.time) / kSecond, cost->events_per_task,
              Sum(result.tasks.frames) / tasks, Micros(result.tasks.cpu) / tasks,
              static_cast<double>(result.started_workers) / nodes, cost->idle_events_per_node,
              Sum(result.idle.frames) / node_seconds, Micros(result.idle.cpu) / node_seconds);
  if (nodes > 1) {
    std::printf("         frames of a task: %s\n         of an idle node: %s\n",
                MostFrequent(result.tasks.frames, tasks).c_str(),
                MostFrequent(result.idle.frames, node_seconds).c_str());
  }
  std::fflush(stdout);
  return true;
}

Nanos CpuTime() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

bool MeasureApart(uint64_t seed, int nodes, double* micros_per_task) {
  std::vector<std::unique_ptr<Cluster>> clusters;
  size_t wanted = 0;
  for (int i = 0; i < nodes / kNodesApart; ++i) {
    RunOptions options;
    options.seed = seed + static_cast<uint64_t>(i);
    options.nodes = kNodesApart;
    options.tasks = kTasksPerNode * kNodesApart;
    wanted += options.tasks;
    clusters.push_back(std::make_unique<Cluster>(options));
    if (!clusters.back()->BeginTasks()) return false;
  }
  uint64_t events = 0;
  for (const auto& cluster : clusters) events -= cluster->events();
  const Nanos begin = CpuTime();
  std::vector<Cluster*> running;
  for (const auto& cluster : clusters) running.push_back(cluster.get());
  while (!running.empty()) std::erase_if(running, [](Cluster* each) { return !each->StepTasks(); });
  *micros_per_task = Micros(CpuTime() - begin) / static_cast<double>(wanted);
  size_t tasks = 0;
  uint64_t workers = 0;
  for (const auto& cluster : clusters) {
    tasks += cluster->calls();
    events += cluster->events();
    workers += cluster->started_workers();
  }
  std::printf(
      "%d clusters of %d nodes, in turn: a task %.1f events, %.1f us; %.2f workers a node\n",
      nodes / kNodesApart, kNodesApart, static_cast<double>(events) / tasks, *micros_per_task,
      static_cast<double>(workers) / nodes);
  std::fflush(stdout);
  return tasks == wanted;
}

}  // namespace

int RunAtScale(uint64_t seed, int nodes, int drivers) {
  RaiseFileLimit();
  std::printf("%6s %8s %8s %8s %26s %8s | %26s\n", "", "", "a node's", "tasks", "a task", "workers",
              "an idle node, a second");
  std::printf("%6s %8s %8s %8s %8s %8s %8s %8s | %8s %8s %8s\n", "nodes", "tasks", "start ev.",
              "took s", "events", "frames", "cpu us", "a node", "events", "frames", "cpu us");
  Cost first, last;
  if (!Measure(seed, std::max(nodes / 100, 1), drivers, &first)) return 1;
  if (nodes >= 20 && !Measure(seed, nodes / 10, drivers, &last)) return 1;
  if (!Measure(seed, nodes, drivers, &last)) return 1;
  double apart = 0;
  if (nodes >= kNodesApart && !MeasureApart(seed, nodes, &apart)) return 1;
  const double by_task = last.events_per_task / first.events_per_task;
  const double by_node = last.idle_events_per_node / first.idle_events_per_node;
  const int by_nodes = nodes / std::max(nodes / 100, 1);
  const double most = std::max(1.5, kMostGrowth * by_nodes);
  std::printf(
      "growth of a task's events %.2f, of an idle node's %.2f, over %d times the nodes; at most "
      "%.1f\n",
      by_task, by_node, by_nodes, most);
  return by_task <= most && by_node <= most ? 0 : 1;
}

int RunLookedAt(uint64_t seed, int nodes) {
  constexpr Nanos kMostTime = 300 * kMillisecond;
  // Each has workers on all nodes, which are all simulated at one time.
  constexpr int kDriversLookedAt = 5;
  constexpr uint64_t kBytesOfNode = 1'500, kBytesOfLane = 2'500, kTasksOfNode = 1'000;
  RaiseFileLimit();
  RunOptions options;
  options.seed = seed;
  options.nodes = nodes;
  options.tasks = kTasksOfNode * static_cast<uint64_t>(nodes);
  options.looks = true;
  options.most_task_drivers = kDriversLookedAt;
  const RunResult result = Cluster(options).Run();
  for (const std::string& failure : result.failures) std::printf("  %s\n", failure.c_str());
  std::printf("%d nodes, %zu tasks\n%-24s %10s %12s %8s %6s\n", nodes, result.calls, "", "s",
              "bytes", "rows", "late");
  const auto count = static_cast<uint64_t>(nodes);
  bool well = result.failures.empty() && !result.looks.empty() && result.calls == options.tasks;
  for (const Look& look : result.looks) {
    std::printf("%-24s %10.3f %12lu %8lu %6lu\n", look.what.c_str(),
                static_cast<double>(look.took) / kSecond, look.bytes, look.rows, look.late_nodes);
    well = well && look.took > 0 && look.took <= kMostTime &&
           look.bytes <= kBytesOfNode * count + kBytesOfLane * look.lanes &&
           look.rows >= (look.is_of_nodes ? count : 1) && look.late_nodes == 0;
  }
  std::printf("%s\n", well ? "each within 0.3 s, 1.5 kB a node and 2.5 kB a lane"
                           : "NOT each within 0.3 s, 1.5 kB a node and 2.5 kB a lane");
  return well ? 0 : 1;
}

}  // namespace sheaf::sim
