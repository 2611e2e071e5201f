// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/cluster.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kBootLimit = 10 * kSecond;
constexpr Nanos kLongestRun = 30 * kSecond;  // With faults.
// Of several nodes: so long that dead nodes are found, or with so much to do that queues grow.
constexpr Nanos kShortestSpan = 300 * kMillisecond, kLongestSpan = 20 * kSecond;
constexpr Nanos kLookEvery = kMillisecond;  // Whether a wait is over: that looks at all processes.
// A whole run takes some ten thousand: who needs more before a wait ends goes in circles, at a pace
// at which the limits of virtual time would never come.
constexpr uint64_t kEventsInCircles = 1'000'000;
constexpr Nanos kTasksLimit = 120 * kSecond;
constexpr uint32_t kLongTask = 10'000'000;  // us; so that they wait while somebody looks.
constexpr Nanos kUntilIdle = 20 * kSecond;
constexpr int kNodesPerTaskDriver = 10;
constexpr uint64_t kEventsPerTask = 1'000;  // At most, by far.
constexpr uint64_t kEventsPerNode = 100'000;

constexpr uint64_t kSeedOfStores = 0x5370696c6c;
constexpr uint64_t kSmallStoresOneIn = 4;
constexpr uint64_t kSeedOfHeads = 0x4865616473;
constexpr uint64_t kSecondHeadsOneIn = 4;
constexpr Nanos kShortestSpanOfHeads = 5 * kSecond, kLongestSpanOfHeads = 15 * kSecond;
constexpr uint64_t kSmallStore = 1 << 20;

int TaskDrivers(const RunOptions& options) {
  return std::min((options.nodes + kNodesPerTaskDriver - 1) / kNodesPerTaskDriver,
                  options.most_task_drivers);
}

// Drawn apart, so that a seed without them is the run that it was.
bool HasSmallStores(const RunOptions& options) {
  if (options.plant == Plant::kTornSpill) return true;
  return options.tasks == 0 && options.methods == nullptr && options.plant == Plant::kNone &&
         SeededRandom(options.seed ^ kSeedOfStores).OneIn(kSmallStoresOneIn);
}

bool HasSecondHeads(const RunOptions& options) {
  return options.tasks == 0 && options.methods == nullptr && options.plant == Plant::kNone &&
         SeededRandom(options.seed ^ kSeedOfHeads).OneIn(kSecondHeadsOneIn);
}

Mix MixOf(const RunOptions& options, Random& random) {
  if (options.methods != nullptr) return Mix::OfMethods(random);
  if (options.jobs || IsOfJobs(options.plant)) return Mix::OfJobs(random);
  Mix mix;
  if (options.tasks == 0) {
    mix = Mix::Draw(random);
    if (options.plant == Plant::kEndlessLease || options.plant == Plant::kStaleHolder ||
        random.OneIn(8))
      mix.FavourDetached();
    if (HasSmallStores(options)) mix.FavourLarge();
    return mix;
  }
  if (options.looks) mix.longest_run_us = kLongTask;
  mix.only_tasks = options.tasks / static_cast<uint64_t>(TaskDrivers(options));
  return mix;
}
constexpr int kSeatsPerNode = 2;
// So few that there are enough while some nodes are gone.
int SeatsOf(int nodes) {
  return nodes == 1 ? kSeatsPerNode : std::max(1, kSeatsPerNode * (nodes * 2 / 3) - 2);
}

Nanos CpuTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto nanos = [](const timeval& time) {
    return time.tv_sec * kSecond + time.tv_usec * kMicrosecond;
  };
  return nanos(usage.ru_utime) + nanos(usage.ru_stime);
}

RunPart Between(const RunPart& begin, RunPart end) {
  end.events -= begin.events;
  for (size_t kind = 0; kind < end.frames.size(); ++kind) end.frames[kind] -= begin.frames[kind];
  end.cpu -= begin.cpu;
  end.time -= begin.time;
  return end;
}

}  // namespace

Cluster::Cluster(const RunOptions& options)
    : options_(options),
      world_(options.seed, options.plant, options.trace),
      workload_(world_, MixOf(options, world_.random), SeatsOf(options.nodes)),
      programs_(workload_.programs()),
      gcs_(world_),
      between_(world_),
      waits_(world_) {
  if (options.methods != nullptr) {
    methods_ = std::make_unique<MethodFaults>(*options.methods, options.seed);
    world_.methods = methods_.get();
  }
  if (options.looks) busy_ = std::make_unique<BusyWorker>();
  world_.small_stores = HasSmallStores(options);
  for (int i = 1; i <= options.nodes; ++i) AddNode();
}

void Cluster::AddNode() {
  NodeOptions node;
  node.index = ++last_index_;
  node.totals = Resources::Cpu(1 + static_cast<double>(world_.random.Below(4)));
  node.totals.Set("slot", 3 * kUnit);
  node.totals.Set("seat", kSeatsPerNode * kUnit);
  // Detached groups of dead drivers stay until the end of the run.
  node.totals.Set("bundle", (options_.methods == nullptr ? 4 : 1000) * kUnit);
  if (world_.small_stores) node.store_bytes = kSmallStore;
  node.busy = busy_.get();
  nodes_.push_back(std::make_unique<Node>(world_, gcs_, between_, programs_, std::move(node)));
}

bool Cluster::RunUntil(Nanos limit, const std::function<bool()>& done) {
  const Nanos deadline = world_.now() + limit;
  const uint64_t last_event =
      world_.queue.events() + kEventsInCircles + options_.tasks * kEventsPerTask +
      (options_.nodes == 1 ? 0 : static_cast<uint64_t>(options_.nodes) * kEventsPerNode);
  Nanos next_look = 0;
  while (world_.oracle.ok()) {
    if (world_.now() >= next_look) {
      if (done()) return true;
      next_look = world_.now() + kLookEvery;
    }
    if (world_.now() >= deadline || !world_.queue.RunOne()) return false;
    if (world_.queue.events() == last_event)
      world_.oracle.Fail("O1", absl::StrCat("the cluster runs in circles: ", last_event,
                                            " events and no end:", Describe()));
  }
  return false;
}

bool Cluster::Boot() {
  gcs_.Start();
  for (auto& node : nodes_) node->Boot();
  return RunUntil(kBootLimit, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](auto& node) { return node->up(); });
  });
}

RunResult Cluster::Run() {
  const bool booted = Boot();
  RunResult result;
  if (!booted) {
    world_.oracle.Fail("O1", "the nodes do not come up");
  } else if (options_.tasks > 0) {
    RunTasks(&result);
  } else {
    RunRandomWork(&result);
  }
  result.events = world_.queue.events();
  result.trace_hash = world_.trace.hash();
  result.planted = world_.planted;
  result.calls = world_.oracle.calls();
  result.virtual_time = world_.now();
  result.faults = world_.fault_counts;
  result.errors = world_.oracle.errors();
  result.commands = world_.oracle.commands();
  result.command_ends = world_.oracle.command_ends();
  result.failures = world_.oracle.failures();
  world_.queue.Clear();
  return result;
}

void Cluster::RunRandomWork(RunResult* result) {
  for (auto& node : nodes_) {
    for (int i = 0; i < kDriversPerNode; ++i) node->StartDriver();
  }
  Nanos longest = kLongestRun;
  if (options_.methods != nullptr) {
    world_.faults = FaultPlan::OfMethods(world_.random);
  } else {
    world_.faults = FaultPlan::Draw(world_.random);
    world_.faults.DrawOfGcs(world_.random);
    if (world_.small_stores) world_.faults.DrawOfDisks(world_.random);
    const bool heads = HasSecondHeads(options_);
    if (options_.nodes > 1 || heads) {
      Nanos span = world_.random.OneIn(3) ? world_.Between(kShortestSpan, kSecond)
                                          : world_.Between(kSecond, kLongestSpan);
      if (TakesLong(options_.plant)) span = kLongestSpan;
      if (heads) span = std::max(span, world_.Between(kShortestSpanOfHeads, kLongestSpanOfHeads));
      world_.pace = {world_.now(), span, world_.queue.events(), options_.events};
      longest = 2 * span;
      if (options_.nodes > 1) world_.faults.DrawOfNodes(world_.random, span);
      if (heads) world_.faults.DrawOfHeads(world_.random, span);
      world_.faults.AddThoseOf(options_.plant, span);
    }
  }
  ScheduleFaults();
  const uint64_t until = world_.queue.events() + options_.events;
  const Nanos begin = world_.now();
  RunUntil(longest, [&] { return world_.queue.events() >= until; });
  result->fault_time = world_.now() - begin;
  Finish();
}

void Cluster::RunTasks(RunResult* result) {
  RunUntil(kRest, [] { return false; });  // Each node hears of all others.
  result->boot = SoFar();
  StartTaskDrivers();
  if (options_.looks) return LookAround(result);
  RunPart before = SoFar();
  if (!RunUntil(kTasksLimit, [&] { return DriversFinished(); }) && world_.oracle.ok()) {
    world_.oracle.Fail("O1", absl::StrCat("not all tasks have ended:", Describe()));
  }
  result->tasks = Between(before, SoFar());
  result->started_workers = started_workers();
  RunUntil(kUntilIdle, [] { return false; });  // Workers that nobody uses end after ten seconds.
  before = SoFar();
  RunUntil(kRest, [] { return false; });
  result->idle = Between(before, SoFar());
}

void Cluster::StartTaskDrivers() {
  for (int i = 0; i < TaskDrivers(options_); ++i) {
    nodes_[static_cast<size_t>(i * kNodesPerTaskDriver)]->StartDriver();
  }
}

bool Cluster::BeginTasks() {
  if (!Boot()) return false;
  RunUntil(kRest, [] { return false; });
  StartTaskDrivers();
  return true;
}

bool Cluster::StepTasks() {
  if (world_.now() >= next_look_at_tasks_) {
    if (!world_.oracle.ok() || DriversFinished()) return false;
    next_look_at_tasks_ = world_.now() + kLookEvery;
  }
  return world_.queue.RunOne();
}

uint64_t Cluster::started_workers() const {
  uint64_t started = 0;
  for (const auto& node : nodes_) started += node->started_workers();
  return started;
}

RunPart Cluster::SoFar() const {
  return {world_.queue.events(), world_.trace.between_nodes(), CpuTime(), world_.now()};
}

}  // namespace sheaf::sim
