// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One node: the real Raylet and StoreServer over a real arena, with a launcher, a switchboard and
// deaths that are simulated.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "object_store/arena/arena_memory.h"
#include "object_store/server/store_server.h"
#include "raylet/raylet.h"
#include "raylet/workers/entrypoint_launcher.h"
#include "tests/sim/inter_node.h"
#include "tests/sim/large/busy_events.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"
#include "tests/sim/spill_disk.h"

namespace sheaf::sim {

class GcsHost;

struct NodeOptions {
  uint64_t index = 1;  // Among the nodes of the cluster, from 1.
  Resources totals;
  uint64_t store_bytes = 16 << 20;
  const BusyWorker* busy = nullptr;  // Not nullptr: it remembers the calls of this one.
};

class Node final : public Endpoint,
                   public WorkerLauncher,
                   public Switchboard,
                   public EntrypointLauncher {
 public:
  Node(World& world, GcsHost& gcs, InterNode& between, const Programs& programs,
       NodeOptions options);
  ~Node() override;

  // Asks the GCS for a number until it has one, then runs the raylet.
  void Boot();
  bool up() const { return raylet_ != nullptr; }
  ProcessId StartDriver();
  // Ends `process` now: the raylet hears of it a little later.
  void Crash(Process& process, proto::Death::Cause cause, int code);
  void Leave(Process& process);  // After its goodbye.
  // Its link to the GCS is up or down.
  void OnGcsLink(bool up, uint64_t term);
  bool hears_gcs() const { return hears_gcs_; }
  // Its link to `about` is up or down.
  void OnNodeLink(NodeNumber about, bool heard);
  // Tells the GCS that this node does not hear `about` any more.
  void ReportUnheard(NodeNumber about);
  // Nothing can be spilled until then.
  void FillDisk(Nanos until) { spill_.Fill(until); }
  // Raylet and processes stand still.
  void Stop(Nanos until);
  // The raylet and all its processes vanish; nobody is told.
  void Vanish();
  bool crashed() const { return crashed_; }

  void OnGcsFrame(ProcessId to, FrameKind kind, const std::string& body);

  // Endpoint: the raylet.
  void OnFrame(ProcessId from, const Frame& frame) override;
  void EndTurn() override;
  void OnRoom(ProcessId reader) override;

  Raylet& raylet() { return *raylet_; }
  StoreServer& store() { return *store_; }
  metrics::Page& metrics() { return *page_; }
  int arena_fd() const { return arena_->fd(); }
  NodeNumber number() const { return number_; }
  uint64_t index() const { return options_.index; }
  std::map<ProcessId, std::unique_ptr<Process>>& processes() { return processes_; }
  Process* Find(ProcessId process);
  // Living ones of a role.
  std::vector<Process*> Living(ProcessRole role);
  size_t starting() const { return starting_.size(); }
  uint64_t started_workers() const { return started_workers_; }

 private:
  class RayletTransport;
  class RayletClock final : public Clock {
   public:
    explicit RayletClock(World& world) : world_(world) {}
    Nanos Now() const override;

   private:
    World& world_;
  };

  // EntrypointLauncher: commands that end by themselves after a while, or when they shall.
  void StartEntrypoint(const proto::Entrypoint& entrypoint,
                       const std::vector<uint32_t>& gpu_ids) override;
  void StopEntrypoint(const std::string& submission_id) override;
  void EndCommand(const std::string& submission_id, Nanos delay, proto::Death death);
  // WorkerLauncher
  void AddJob(JobNumber job, ProcessId driver, const proto::JobStart& start) override;
  void AddRemoteJob(JobNumber job, ProcessId driver, const proto::JobStart& start,
                    const proto::Program&) override {
    AddJob(job, driver, start);
  }
  void RemoveJob(JobNumber job) override;
  void EndStrays(JobNumber) override {}  // Simulated workers leave none.
  absl::Status Start(const WorkerSpec& spec) override;
  void Kill(ProcessId process, const std::string& reason) override;
  // Switchboard
  absl::Status Connect(ProcessId a, ProcessId b) override;
  void Remove(ProcessId process) override;
  std::pair<LeaseNumber, uint64_t> Started(ProcessId process, ProcessId caller) override;
  std::vector<ProcessId> PeersOf(ProcessId process) override;

  void End();
  void Register();
  void MakeRaylet(NodeNumber number, uint64_t term, Nanos heartbeat_period);
  Process& Attach(ProcessId id, ProcessRole role, ProcessId job_driver);
  void ReportDeath(ProcessId process, proto::Death death);
  ProcessId DriverOf(JobNumber job) const;
  // Runs `work` in the raylet, when it is not paused.
  void OnLoop(Nanos delay, std::function<void()> work);
  void ScheduleTick();

  World& world_;
  GcsHost& gcs_;
  InterNode& between_;
  const Programs& programs_;
  const NodeOptions options_;
  std::string nonce_;
  Network network_;
  RayletClock clock_;
  EventExecutor loop_, memory_, disk_;
  std::unique_ptr<SegmentArena> arena_;
  SpillDisk spill_;
  StoreEvents store_events_;
  LossObserver losses_;
  SeededRandom raylet_random_;
  std::unique_ptr<metrics::Page> page_;
  std::unique_ptr<SimLinks> links_;
  std::unique_ptr<SimBlocks> blocks_;
  std::unique_ptr<RayletTransport> transport_;
  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<ProcessNumbers> numbers_;
  std::set<std::string> commands_;  // That run here, by the names of their submissions.
  std::unique_ptr<BusyEvents> events_;
  std::unique_ptr<Raylet> raylet_;
  NodeNumber number_ = 0;
  bool turn_scheduled_ = false;
  uint64_t tick_number_ = 0;
  Nanos tick_at_ = 0;
  std::map<std::pair<JobNumber, std::string>, int> failed_starts_;  // In a row.
  int false_failures_ = 0;  // To come, by the plant of that name.
  uint64_t started_workers_ = 0;
  bool crashed_ = false;
  bool gcs_link_ = true;       // It is up,
  bool hears_gcs_ = true;      // and the raylet knows.
  uint64_t registration_ = 1;  // A sequence: one that was refused keeps its answer.

  struct Attached {
    ProcessRole role;
    std::shared_ptr<Mapping> segment;
    std::vector<ProcessId> peers;
    bool socket_closed = false;
  };
  std::map<ProcessId, Attached> attached_;
  std::map<ProcessId, JobNumber> starting_;  // Workers on their way.
  std::map<JobNumber, ProcessId> jobs_;
  std::map<ProcessId, std::unique_ptr<Process>> processes_;
};

}  // namespace sheaf::sim
