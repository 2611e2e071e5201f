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
constexpr Nanos kLivenessLimit = 120 * kSecond;
constexpr Nanos kRest = 8 * kSecond;  // Two passes of the sweeper.
constexpr Nanos kUntilIdle = 20 * kSecond;
constexpr Nanos kEmptyLimit = 60 * kSecond;
constexpr Nanos kShortestCutOff = 4 * kSecond, kLongestCutOff = 12 * kSecond;
constexpr Nanos kLongestAway = 200 * kSecond;  // Of the GCS.
constexpr Nanos kLongestFull = 8 * kSecond;
constexpr Nanos kUntilFenced = 3 * kSecond;  // Of a node that is back, until it has ended.
constexpr Nanos kDrainTime = 600 * kMillisecond;
constexpr int kDriversPerNode = 2;
// Each job has workers of its own on each node, and all of them are simulated at one time.
constexpr int kNodesPerTaskDriver = 10, kMostTaskDrivers = 5;
constexpr uint64_t kEventsPerTask = 1'000;  // At most, by far.
constexpr uint64_t kEventsPerNode = 100'000;

int TaskDrivers(const RunOptions& options) {
  return std::min((options.nodes + kNodesPerTaskDriver - 1) / kNodesPerTaskDriver,
                  kMostTaskDrivers);
}

Mix MixOf(const RunOptions& options, Random& random) {
  if (options.methods != nullptr) return Mix::OfMethods(random);
  Mix mix;
  if (options.tasks == 0) {
    mix = Mix::Draw(random);
    if (options.plant == Plant::kEndlessLease || random.OneIn(8)) mix.FavourDetached();
    return mix;
  }
  mix.only_tasks = options.tasks / static_cast<uint64_t>(TaskDrivers(options));
  return mix;
}
constexpr int kSeatsPerNode = 2;
// So few that there are enough while some nodes are gone.
int SeatsOf(int nodes) {
  return nodes == 1 ? kSeatsPerNode : std::max(1, kSeatsPerNode * (nodes * 2 / 3) - 2);
}
constexpr Nanos kLongestApart = 10 * kSecond;  // Longer than the GCS needs to declare a node dead.
// And of two that do not hear each other: until both know that, the GCS has gathered what others
// hear, and the lease of the one that ends is over.
constexpr Nanos kUntilVerdict = 25 * kSecond;
constexpr size_t kNodesPerLostLink = 3;

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
      between_(world_) {
  if (options.methods != nullptr) {
    methods_ = std::make_unique<MethodFaults>(*options.methods, options.seed);
    world_.methods = methods_.get();
  }
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

RunResult Cluster::Run() {
  gcs_.Start();
  for (auto& node : nodes_) node->Boot();
  const bool booted = RunUntil(kBootLimit, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](auto& node) { return node->up(); });
  });
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
    if (options_.nodes > 1) {
      Nanos span = world_.random.OneIn(3) ? world_.Between(kShortestSpan, kSecond)
                                          : world_.Between(kSecond, kLongestSpan);
      if (TakesLong(options_.plant)) span = kLongestSpan;
      world_.pace = {world_.now(), span, world_.queue.events(), options_.events};
      longest = 2 * span;
      world_.faults.DrawOfNodes(world_.random, span);
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
  for (int i = 0; i < TaskDrivers(options_); ++i) {
    nodes_[static_cast<size_t>(i * kNodesPerTaskDriver)]->StartDriver();
  }
  RunPart before = SoFar();
  if (!RunUntil(kLivenessLimit, [&] { return DriversFinished(); }) && world_.oracle.ok()) {
    world_.oracle.Fail("O1", absl::StrCat("not all tasks have ended:", Describe()));
  }
  result->tasks = Between(before, SoFar());
  for (auto& node : nodes_) result->started_workers += node->started_workers();
  RunUntil(kUntilIdle, [] { return false; });  // Workers that nobody uses end after ten seconds.
  before = SoFar();
  RunUntil(kRest, [] { return false; });
  result->idle = Between(before, SoFar());
}

RunPart Cluster::SoFar() const {
  return {world_.queue.events(), world_.trace.between_nodes(), CpuTime(), world_.now()};
}

// --- Faults. ---

void Cluster::Every(Nanos FaultPlan::* mean, std::function<void()> strike) {
  const Nanos period = world_.faults.*mean;
  if (period == 0) return;
  world_.queue.After(world_.Between(1, 2 * period), [this, mean, strike = std::move(strike)] {
    if (world_.faults.*mean == 0) return;  // The time of faults is over.
    strike();
    Every(mean, strike);
  });
}

void Cluster::ScheduleFaults() {
  Every(&FaultPlan::worker_kill_every, [this] { KillWorker(); });
  Every(&FaultPlan::driver_kill_every, [this] { KillDriver(); });
  Every(&FaultPlan::pause_every, [this] { PauseSomething(); });
  Every(&FaultPlan::gcs_crash_every, [this] { gcs_.Crash(); });
  Every(&FaultPlan::gcs_disk_full_every, [this] {
    world_.Count(Fault::kGcsDiskFull);
    gcs_.FillDisk(world_.Between(100 * kMillisecond, kLongestFull));
  });
  Every(&FaultPlan::node_crash_every, [this] { CrashNode(); });
  Every(&FaultPlan::apart_every, [this] { PartTwoNodes(); });
  Every(&FaultPlan::away_every, [this] { PartFromGcs(); });
  Every(&FaultPlan::cut_off_every, [this] { CutOffNode(); });
  Every(&FaultPlan::slow_node_every, [this] { SlowNode(); });
  Every(&FaultPlan::drain_every, [this] { DrainNode(); });
  Every(&FaultPlan::lose_link_every, [this] { LoseLink(); });
}

Node& Cluster::AnyNode() { return *nodes_[world_.random.Below(nodes_.size())]; }

void Cluster::CrashNode() {
  Node& node = AnyNode();
  if (node.up()) ReplaceNode(node);
}

void Cluster::ReplaceNode(Node& node) {
  world_.Count(Fault::kNodeCrash);
  node.Vanish();
  AddNode();
  nodes_.back()->Boot();
  StartDriversOnceUp(*nodes_.back());
  BuryCrashed();
}

// Those that were fenced have ended themselves.
void Cluster::BuryCrashed() {
  for (size_t i = 0; i < nodes_.size();) {
    if (!nodes_[i]->crashed()) {
      ++i;
      continue;
    }
    crashed_.push_back(std::move(nodes_[i]));
    nodes_.erase(nodes_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void Cluster::StartDriversOnceUp(Node& node) {
  world_.queue.After(10 * kMillisecond, [this, &node] {
    if (node.crashed()) return;
    if (!node.up()) return StartDriversOnceUp(node);
    for (int i = 0; i < kDriversPerNode; ++i) node.StartDriver();
  });
}

void Cluster::PartTwoNodes() {
  Node &a = AnyNode(), &b = AnyNode();
  if (&a == &b) return;
  world_.Count(Fault::kNodesApart);
  between_.Separate(
      a.number(), b.number(),
      world_.now() +
          world_.Between(100 * kMillisecond, world_.random.OneIn(4) ? kLongestApart : kSecond));
}

// Few enough that most nodes stay.
void Cluster::LoseLink() {
  Node &a = AnyNode(), &b = AnyNode();
  if (&a == &b || !a.up() || !b.up() || a.crashed() || b.crashed()) return;
  if (between_.lost_links() >= nodes_.size() / kNodesPerLostLink) return;
  world_.Count(Fault::kLinkLost);
  between_.LoseLink(a.number(), b.number());
}

// Up to three seconds: no node dies of that.
void Cluster::PartFromGcs() {
  world_.Count(Fault::kNodeAwayGcs);
  gcs_.Separate(AnyNode(), world_.now() + world_.Between(100 * kMillisecond, 3 * kSecond));
}

// One at a time. Some come back before they are declared dead, most learn that they were.
void Cluster::CutOffNode() {
  Replenish();
  Node& node = AnyNode();
  if (world_.now() < cut_off_until_ || nodes_.size() < 2 || !node.up() || node.crashed()) return;
  cut_off_until_ = world_.now() + world_.Between(kShortestCutOff, kLongestCutOff);
  if (world_.random.OneIn(2)) {
    world_.Count(Fault::kNodeStopped);
    node.Stop(cut_off_until_);
  } else {
    world_.Count(Fault::kNodeCutOff);
    gcs_.Separate(node, cut_off_until_);
  }
}

// Others take the place of those that have ended.
void Cluster::Replenish() {
  BuryCrashed();
  while (nodes_.size() < static_cast<size_t>(options_.nodes)) {
    AddNode();
    nodes_.back()->Boot();
    StartDriversOnceUp(*nodes_.back());
  }
}

void Cluster::SlowNode() {
  world_.Count(Fault::kSlowNode);
  between_.Slow(AnyNode().number(), world_.Between(kMillisecond, 200 * kMillisecond),
                world_.now() + world_.Between(100 * kMillisecond, 4 * kSecond));
}

// One at a time: somebody must do the work. Some time later it vanishes, as drained nodes do.
void Cluster::DrainNode() {
  Node& node = AnyNode();
  Process* asker = AnyDriver();
  if (draining_ || nodes_.size() < 2 || !node.up() || node.crashed() || asker == nullptr) return;
  draining_ = true;
  world_.Count(Fault::kDrain);
  proto::StateQuery query;
  query.set_what(proto::StateQuery::DRAIN);
  query.set_id(absl::StrCat(node.number()));
  asker->AskState(query);
  world_.queue.After(kDrainTime, [this, &node] {
    if (world_.faults.drain_every == 0) return;
    draining_ = false;
    if (!node.crashed()) ReplaceNode(node);
  });
}

void Cluster::KillWorker() {
  Node& node = AnyNode();
  std::vector<Process*> workers = node.Living(ProcessRole::kWorker);
  if (workers.empty()) return;
  Process& victim = *workers[world_.random.Below(workers.size())];
  world_.Count(victim.executor().is_actor() ? Fault::kActorKill : Fault::kWorkerKill);
  if (world_.random.OneIn(2)) {
    victim.sends_left = static_cast<int>(
        world_.random.Below(6));  // In the middle of a turn, once it has sent so much.
  } else {
    node.Crash(victim, proto::Death::SIGNALLED, 9);
  }
}

void Cluster::KillDriver() {
  Node& node = AnyNode();
  std::vector<Process*> drivers = node.Living(ProcessRole::kDriver);
  if (drivers.empty()) return;
  Process& victim = *drivers[world_.random.Below(drivers.size())];
  world_.Count(Fault::kDriverKill);
  node.Crash(victim, proto::Death::SIGNALLED, 9);
  node.StartDriver();
}

void Cluster::PauseSomething() {
  Node& node = AnyNode();
  world_.Count(Fault::kPause);
  Nanos until = world_.now() + world_.Between(kMillisecond, 400 * kMillisecond);
  std::vector<Process*> all = node.Living(ProcessRole::kWorker);
  for (Process* driver : node.Living(ProcessRole::kDriver)) all.push_back(driver);
  const uint64_t chosen = world_.random.Below(all.size() + 1);
  if (chosen == all.size()) {
    node.paused_until = until;
  } else {
    // A process that stands still for long loses its leases, and nothing else.
    if (world_.random.OneIn(8)) until = world_.now() + world_.Between(kSecond, 10 * kSecond);
    all[chosen]->paused_until = until;
  }
}

// --- The end. ---

void Cluster::Finish() {
  if (!world_.oracle.ok()) return;
  workload_.Stop();
  world_.faults = {};
  if (methods_ != nullptr) methods_->End();
  RunUntil(kLongestAway, [&] { return gcs_.up() && world_.now() >= gcs_.well_at(); });
  // The GCS must have found who is dead, and partitions are over.
  const Nanos settled = std::max(world_.now() + (between_.lost_links() > 0 ? kUntilVerdict
                                                 : options_.nodes > 1      ? kLongestApart + kSecond
                                                                           : 0),
                                 cut_off_until_ == 0 ? 0 : cut_off_until_ + kUntilFenced);
  const bool finished = RunUntil(kLivenessLimit, [&] {
    Replenish();
    return world_.now() >= settled && gcs_.up() && DriversFinished();
  });
  BuryCrashed();
  if (!finished) {
    world_.oracle.Fail("O1", absl::StrCat("not all calls have ended ", kLivenessLimit / kSecond,
                                          " s after the last fault:", Describe()));
    return;
  }
  if (Process* driver = AnyDriver()) workload_.EndDetached(*driver);
  RunUntil(kRest, [] { return false; });
  // A worker that is let go just now has died a moment ago, and the GCS is being told.
  RunUntil(kSecond, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](auto& node) {
      const Raylet::Stats stats = node->raylet().GetStats();
      return stats.remains == 0 && stats.unanswered_gcs_commands == 0;
    });
  });
  CheckAtRest();
  if (!world_.oracle.ok()) return;
  for (auto& node : nodes_) {
    for (Process* driver : node->Living(ProcessRole::kDriver)) driver->Leave();
  }
  RunUntil(kEmptyLimit, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](auto& node) {
      const Raylet::Stats stats = node->raylet().GetStats();
      return stats.processes == 0 && stats.remains == 0 && node->starting() == 0;
    });
  });
  RunUntil(2 * kSecond, [] { return false; });
  CheckEmpty();
}

// All nodes are up, and the programs of all living drivers have ended.
bool Cluster::DriversFinished() {
  if (at_work_node_ < nodes_.size()) {
    const Process* driver = nodes_[at_work_node_]->Find(at_work_);
    if (driver != nullptr && driver->alive && !driver->finished()) return false;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i]->up()) return false;
    for (Process* driver : nodes_[i]->Living(ProcessRole::kDriver)) {
      if (driver->finished()) continue;
      at_work_ = driver->self;
      at_work_node_ = i;
      return false;
    }
  }
  return true;
}

Process* Cluster::AnyDriver() {
  for (auto& node : nodes_) {
    const std::vector<Process*> drivers = node->Living(ProcessRole::kDriver);
    if (!drivers.empty()) return drivers.front();
  }
  return nullptr;
}

void Cluster::CheckAtRest() {
  between_.CheckAtRest();
  const auto happened = [&](Fault fault) {
    return world_.fault_counts[static_cast<size_t>(fault)];
  };
  // Who is away from the GCS again and again is taken for dead.
  if (happened(Fault::kNodeAwayGcs) + happened(Fault::kNodeCutOff) +
              happened(Fault::kNodeStopped) ==
          0 &&
      happened(Fault::kNodeFenced) > happened(Fault::kLinkLost)) {
    world_.oracle.Fail("O1", absl::StrCat(happened(Fault::kNodeFenced), " nodes have ended for ",
                                          happened(Fault::kLinkLost), " links that were lost"));
  }
  for (auto& node : nodes_) {
    const Raylet::Stats stats = node->raylet().GetStats();
    const StoreStats store = node->store().Stats();
    std::string left;
    auto expect_none = [&](uint64_t count, const char* what) {
      if (count != 0) absl::StrAppend(&left, " ", count, " ", what, ";");
    };
    expect_none(stats.leases, "leases");
    expect_none(stats.scheduler_queue, "demands");
    expect_none(stats.groups + stats.pending_groups, "placement groups");
    expect_none(stats.held_references, "borrowed references");
    expect_none(stats.adopted_objects, "adopted objects");
    expect_none(stats.orphans, "orphans");
    expect_none(stats.remains, "remains of processes");
    expect_none(stats.workers.leased + stats.workers.blocked + stats.workers.actor, "busy workers");
    expect_none(stats.unanswered_gcs_commands, "commands that the GCS did not answer");
    expect_none(store.objects, "objects in the store");
    expect_none(store.waiting_requests, "requests for memory");
    expect_none(stats.swept,
                absl::StrCat("repairs by the sweeper, the last in ", stats.last_swept).c_str());
    for (ProcessRole role : {ProcessRole::kDriver, ProcessRole::kWorker}) {
      for (Process* process : node->Living(role)) {
        expect_none(process->owner().tasks.size(),
                    absl::StrCat("calls in ", process->self.ToString()).c_str());
        expect_none(process->owner().references.size(),
                    absl::StrCat("objects in ", process->self.ToString()).c_str());
        expect_none(process->owner().transits.size(),
                    absl::StrCat("transits in ", process->self.ToString()).c_str());
        expect_none(process->executor().queued(),
                    absl::StrCat("queued calls in ", process->self.ToString()).c_str());
      }
    }
    const ResourceLedger& ledger = node->raylet().ledger();
    expect_none(ledger.bundles().size(), "bundles");
    if (!(ledger.available() == ledger.total()))
      absl::StrAppend(&left, " ", ledger.available().ToString(), " free of ",
                      ledger.total().ToString(), ";");
    if (!left.empty())
      world_.oracle.Fail(
          "O4", absl::StrCat("at rest node ", node->number(), " still has", left, Describe()));
  }
}

void Cluster::CheckEmpty() {
  for (auto& node : nodes_) {
    const Raylet::Stats stats = node->raylet().GetStats();
    const StoreStats store = node->store().Stats();
    std::string left;
    auto expect_none = [&](uint64_t count, const char* what) {
      if (count != 0) absl::StrAppend(&left, " ", count, " ", what, ";");
    };
    expect_none(stats.processes, "attached processes");
    expect_none(stats.remains, "remains of processes");
    expect_none(node->starting(), "workers on their way");
    expect_none(node->Living(ProcessRole::kWorker).size(), "living workers of ended jobs");
    expect_none(stats.rings, "rings");
    expect_none(store.used_bytes, "bytes in the store");
    expect_none(store.pinned_bytes, "pinned bytes");
    expect_none(store.violations, "violations of the store's rules");
    expect_none(stats.swept,
                absl::StrCat("repairs by the sweeper, the last in ", stats.last_swept).c_str());
    if (!left.empty())
      world_.oracle.Fail("O4", absl::StrCat("after the last job node ", node->number(),
                                            " still has", left, Describe()));
  }
  if (!gcs_.up()) return;
  const GcsStats gcs = gcs_.service().Stats();
  // Rows for listings are soft: a frame that was repeated late may bring one back.
  const uint64_t late = world_.fault_counts[static_cast<size_t>(Fault::kGcsFrameDuplicated)] +
                        world_.fault_counts[static_cast<size_t>(Fault::kGcsFrameDelayed)];
  const uint64_t actors =
      late != 0 ? 0 : gcs.actors_alive + gcs.actors_pending + gcs.actors_restarting;
  if (gcs.jobs != 0 || actors != 0 || gcs.nodes != nodes_.size()) {
    world_.oracle.Fail(
        "O4", absl::StrCat("after the last job the GCS has ", gcs.jobs, " running jobs, ",
                           gcs.actors_alive, " living, ", gcs.actors_pending, " pending and ",
                           gcs.actors_restarting, " restarting actors, ", gcs.nodes, " nodes"));
  }
}

std::string Cluster::Describe() {
  std::string words;
  for (auto& node : nodes_) {
    const Raylet::Stats stats = node->raylet().GetStats();
    std::string processes;
    for (ProcessRole role : {ProcessRole::kDriver, ProcessRole::kWorker}) {
      for (Process* process : node->Living(role)) {
        if (!process->is_at_rest()) absl::StrAppend(&processes, "\n  ", process->Describe());
      }
    }
    if (processes.empty() && stats.leases + stats.scheduler_queue + stats.remains == 0 &&
        stats.unanswered_gcs_commands == 0 && node->store().Stats().objects == 0)
      continue;
    absl::StrAppend(
        &words, "\n  node ", node->number(), ": ", stats.leases, " leases, ", stats.scheduler_queue,
        " wanted, ", stats.remains, " remains, ", stats.unanswered_gcs_commands,
        " commands unanswered; workers: ", stats.workers.starting, " starting ", stats.workers.idle,
        " idle ", stats.workers.leased, " leased ", stats.workers.blocked, " blocked ",
        stats.workers.actor, " actors ", stats.workers.dying, " dying");
    node->store().ForEach([&](const StoreObjectInfo& object) {
      absl::StrAppend(&words, "\n    stored ", object.id.ToHex());
    });
    words += processes;
  }
  return words;
}

}  // namespace sheaf::sim
