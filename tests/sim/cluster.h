// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One run: a GCS, some nodes, drivers with their work, and faults; then a time without faults in
// which everything must finish, and a look at what is left.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/gcs_host.h"
#include "tests/sim/node.h"
#include "tests/sim/programs.h"
#include "tests/sim/wait_limits.h"
#include "tests/sim/world.h"

namespace sheaf::sim {

inline constexpr int kDriversPerNode = 2;
inline constexpr Nanos kRest = 8 * kSecond;  // Two passes of the sweeper.
// Of two nodes: longer than the GCS needs to declare a node dead.
inline constexpr Nanos kLongestApart = 10 * kSecond;

struct RunOptions {
  uint64_t seed = 1;
  uint64_t events = 20'000;  // Faults and new work end after about so many, once all nodes are up.
  int nodes = 1;
  uint64_t tasks = 0;              // No faults; so many tasks in all, and nothing else.
  int most_task_drivers = 5;       // That make them; at most one for ten nodes.
  MethodTable* methods = nullptr;  // Every method is used, and has faults of its own.
  bool looks = false;              // With `tasks`: while they wait, somebody looks.
  bool jobs = false;               // Drivers submit commands, and do nothing else.
  Plant plant = Plant::kNone;
  bool trace = false;
};

// What a part of a run took.
struct RunPart {
  uint64_t events = 0;
  FrameCounts frames{};
  Nanos cpu = 0;   // Of this process.
  Nanos time = 0;  // Virtual.
};

// What it took to be told something of all nodes.
struct Look {
  std::string what;
  Nanos took = 0;      // Virtual; 0: there was no answer.
  uint64_t bytes = 0;  // Between nodes.
  uint64_t rows = 0, late_nodes = 0;
  bool is_of_nodes = false;  // A row of each is wanted.
  uint64_t lanes = 0;        // So many at most.
};

struct RunResult {
  uint64_t events = 0;
  uint64_t trace_hash = 0;
  uint64_t planted = 0;
  size_t calls = 0;
  size_t commands = 0;                                      // That were started,
  std::map<proto::Submission::State, size_t> command_ends;  // and what users saw them end as.
  Nanos virtual_time = 0;
  Nanos fault_time = 0;  // Of it, that in which there are faults and new work.
  FaultCounts faults{};
  std::map<ErrorKind, size_t> errors;
  std::vector<std::string> failures;  // Empty: all is well.
  // With RunOptions::tasks: what it took until all nodes knew each other, the tasks, and then the
  // cluster at rest.
  RunPart boot, tasks, idle;
  std::vector<Look> looks;
  uint64_t started_workers = 0;
};

class Cluster {
 public:
  explicit Cluster(const RunOptions& options);
  ~Cluster() { world_.queue.Clear(); }  // Events hold what they are about.
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  RunResult Run();
  // The tasks of RunOptions::tasks in steps of one event, so that several clusters run at one time.
  // False: something went wrong, or (StepTasks) all have ended.
  bool BeginTasks();
  bool StepTasks();
  // So far.
  size_t calls() const { return world_.oracle.calls(); }
  uint64_t events() const { return world_.queue.events(); }
  uint64_t started_workers() const;

 private:
  bool Boot();
  void StartTaskDrivers();
  // Runs events until `done`, at most for `limit` of virtual time; false: it was not.
  bool RunUntil(Nanos limit, const std::function<bool()>& done);
  void RunRandomWork(RunResult* result);
  void RunTasks(RunResult* result);
  void LookAround(RunResult* result);
  proto::StateAnswer AskState(const std::string& what, const proto::StateQuery& query,
                              RunResult* result);
  RunPart SoFar() const;
  bool DriversFinished();
  Nanos LastPause() const;  // When the last process that stands still goes on.
  void LookAtWaits(Nanos quiet);
  void ScheduleFaults();
  void Every(Nanos FaultPlan::* mean, std::function<void()> strike);
  void KillWorker();
  void KillDriver();
  void PauseSomething();
  void MoveHead();
  void CrashNode();
  void ReplaceNode(Node& node);
  void AddNode();
  void EndCrashed();
  void StartDriversOnceUp(Node& node);
  void PartTwoNodes();
  void LoseLink();
  void PartFromGcs();
  void FillDisk();
  void CutOffNode();
  void Replenish();
  void SlowNode();
  void DrainNode();
  Node& AnyNode();
  Process* AnyDriver();
  void Finish();
  void CheckAtRest();
  uint64_t LivingCommands();
  void CheckEmpty();
  std::string Describe();

  const RunOptions options_;
  World world_;
  std::unique_ptr<MethodFaults> methods_;
  Workload workload_;
  const Programs programs_;
  GcsHost gcs_;
  InterNode between_;
  std::unique_ptr<BusyWorker> busy_;
  std::vector<std::unique_ptr<Node>> nodes_;  // Those that have not crashed.
  std::vector<std::unique_ptr<Node>> crashed_;
  uint64_t last_index_ = 0;
  WaitLimits waits_;
  Nanos next_look_at_waits_ = 0;
  Nanos next_look_at_tasks_ = 0;
  Nanos cut_off_until_ = 0;  // Some node is.
  bool draining_ = false;    // Some node takes no new work.
  // Who was last found at work. Asked first: a list of the living after each event takes long.
  ProcessId at_work_;
  size_t at_work_node_ = 0;
};

}  // namespace sheaf::sim
