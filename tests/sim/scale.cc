// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/scale.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/sim/cluster.h"

namespace sheaf::sim {
namespace {

constexpr uint64_t kTasksPerNode = 100;
// Events are counted, not timed, so that the verdict is the same on each machine. What a task or an
// idle node costs may grow by this much of what the cluster grows by: each change of a node's free
// resources goes to all others, in an event of its own.
constexpr double kMostGrowth = 0.1;

struct Cost {
  double events_per_task = 0;
  double idle_events_per_node = 0;  // And second.
};

// All simulated nodes hold their files in this process: some twenty each.
void RaiseFileLimit() {
  constexpr rlim_t kWanted = 1 << 20;
  rlimit limit{kWanted, kWanted};
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;  // A right of root.
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool Measure(uint64_t seed, int nodes, Cost* cost) {
  RunOptions options;
  options.seed = seed;
  options.nodes = nodes;
  options.tasks = kTasksPerNode * static_cast<uint64_t>(nodes);
  const RunResult result = Cluster(options).Run();
  for (const std::string& failure : result.failures) std::printf("  %s\n", failure.c_str());
  const double tasks = static_cast<double>(result.calls);
  const double node_seconds = nodes * static_cast<double>(result.idle_time) / kSecond;
  if (!result.failures.empty() || result.calls != options.tasks || node_seconds == 0) {
    std::printf("%zu of %lu tasks were made\n", result.calls, options.tasks);
    return false;
  }
  cost->events_per_task = static_cast<double>(result.task_events) / tasks;
  cost->idle_events_per_node = static_cast<double>(result.idle_events) / node_seconds;
  std::printf("%8d %9.0f %14.1f %12.1f %18.1f %18.1f\n", nodes, tasks, cost->events_per_task,
              static_cast<double>(result.task_wall) / kMicrosecond / tasks,
              cost->idle_events_per_node,
              static_cast<double>(result.idle_wall) / kMicrosecond / node_seconds);
  std::fflush(stdout);
  return true;
}

}  // namespace

int RunAtScale(uint64_t seed, int nodes) {
  RaiseFileLimit();
  std::printf("%8s %9s %14s %12s %18s %18s\n", "nodes", "tasks", "events a task", "us a task",
              "idle events/node/s", "idle us/node/s");
  Cost first, last;
  if (!Measure(seed, std::max(nodes / 100, 1), &first)) return 1;
  if (nodes >= 20 && !Measure(seed, nodes / 10, &last)) return 1;
  if (!Measure(seed, nodes, &last)) return 1;
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

}  // namespace sheaf::sim
