// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One node as it really runs: makes the clock, segments, threads, sockets and disk, and hands them
// to the logic (Raylet, StoreServer) by reference. Threads: the raylet's loop, which owns all
// state; "events" (sockets, pidfds); "launcher" (forks, waits, kills); "watch" (memory, log files);
// "logs" (log files, for those that ask); "store-memory" and "store-disk".
//
//   processes <-- rings, bells --> loop <-- posts -- events, launcher, watch, store-*
//                                   |  ^
//                            to_gcs v  | PostFromGcs
//                                   GCS, in this process or behind a connection
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "metrics/page.h"
#include "proto/gcs.pb.h"
#include "raylet/cluster/node_links.h"
#include "raylet/entrypoints/entrypoint_processes.h"
#include "raylet/host/memory_watch.h"
#include "raylet/raylet.h"
#include "rpc/links.h"
#include "telemetry/span_queue.h"

namespace sheaf {

struct RayletProcessOptions {
  RayletOptions raylet;    // `node`, `gcs_term` and `heartbeat_period` are the GCS's to say,
  std::string cluster_id;  // and so is this, in hexadecimal.
  std::string socket_path;
  std::string log_directory;
  std::string spill_directory;
  std::string program_directory;  // Made when it is needed.
  // Of submitted commands: where the Python package is. The rest is this node's.
  EntrypointOptions entrypoints;
  std::string session;       // Names this run of the node among all of this machine.
  NodeNumber replaces = 0;   // The node that had this session before and is proven dead; 0: none.
  uint64_t store_bytes = 0;  // Capacity of the arena; 0: 30 % of what is there.
  MemoryWatchOptions memory_watch;
  int64_t worker_log_bytes = 16 << 20;
  Nanos log_keep = 24 * 3600 * kSecond;
  bool log_to_driver = true;
  bool log_events = false;  // What processes print goes to events.ndjson, too.
  bool worker_templates = true;
  int64_t environment_bytes = int64_t{10} << 30;
  std::vector<std::string> variables;  // The node's environment, for drivers of other nodes.
  uint64_t worker_open_files = 0;      // Soft limit of workers; 0: this process's.
  bool own_all_children = false;       // This process has no children but the raylet's,
  std::function<bool(pid_t)> is_spared = nullptr;  // and these. Any thread.
  Nanos register_timeout = 10 * kSecond;
  telemetry::SpanQueue* spans = nullptr;  // For calls that end; outlives the process. Null: nobody.
  bool leaves_at_stop = false;  // Stop tells the GCS, which runs elsewhere, that the node is over.

  // The other nodes; outlives the process. Not null.
  NodeLinks* links = nullptr;
  // Where blocks of objects of other nodes are fetched; outlives the process. Null: nowhere.
  Links* block_links = nullptr;
  // After each turn of the loop: what was sent to other nodes may leave.
  std::function<void()> flush_links;
  // Hands a frame to the GCS. Called on the loop (and by Start, for the registration); must not
  // block.
  std::function<void(ProcessId from, FrameKind kind, std::string body)> to_gcs;
  // The page of a process begins, or ceases, to count in the node's metrics. Called on the loop,
  // and by Start and Stop.
  std::function<void(metrics::Page& page, bool added)> on_page;
  // This node has its number. Called by Start, before anything is sent in its name.
  std::function<void(NodeNumber node)> on_registered;
  // The GCS declared this node dead: the process has to end. Called once, on the loop.
  std::function<void()> on_fenced;
};

class RayletProcess {
 public:
  explicit RayletProcess(RayletProcessOptions options);
  ~RayletProcess();  // Stop(0).
  RayletProcess(const RayletProcess&) = delete;
  RayletProcess& operator=(const RayletProcess&) = delete;

  // Registers with the GCS (which must take requests by now), then lets processes attach.
  // kDeadlineExceeded: the GCS does not answer. kFailedPrecondition: it refuses this node. Others:
  // what the machine refuses.
  absl::Status Start();
  // A frame from the GCS for this raylet or one of its processes. Any thread, also before Start.
  void PostFromGcs(ProcessId to, FrameKind kind, std::string body);
  // The GCS will not talk to this node: Start ends with `why`. Any thread; no-op once it is
  // registered.
  void RefuseRegistration(absl::Status why);
  // Frames of other nodes, taken on the loop, in order. Any thread; kept while Start is at work.
  using ForEachFrame = std::function<void(
      const std::function<void(ProcessId from, ProcessId to, Lane lane, const Frame& frame)>&)>;
  void PostRemoteFrames(ForEachFrame frames);
  // The link to another node is up, or down. Any thread; before the end of Start it counts for
  // nothing.
  void PostNodeLink(NodeNumber node, bool up);
  // The same for the link to the GCS, where that is on another node; see Raylet::OnGcsLink.
  void PostGcsLink(bool up, uint64_t term);
  // The raylet `reader` asks for a block (LinksOptions::on_fetch). Any thread.
  void PostFetch(ProcessId reader, std::string request, LinksOptions::Respond respond);
  // Ends all: no new work, workers and drivers are told to end, `grace` later at most they are
  // killed with all their descendants (drivers are not: they see the end of their connection).
  // Idempotent.
  void Stop(const std::string& reason, Nanos grace);

  // Brings the figures in the raylet's page up to date; as NodeFigures::Publish. Any thread but the
  // loop; waits for the loop.
  std::map<std::string, uint64_t> PublishMetrics();
  NodeNumber node() const { return node_; }
  // This raylet, or what it called itself before it had a number. Any thread.
  bool Is(ProcessId id) const { return id == nameless_ || id == RayletOf(node_); }

 private:
  class Node;
  absl::Status Register();

  RayletProcessOptions options_;
  std::atomic<NodeNumber> node_ = 0;
  const ProcessId nameless_;  // Before it has a number, a raylet is {0, k} to the GCS.
  Mutex mutex_;
  CondVar registered_or_live_;
  // The answer, while Start waits for it.
  std::optional<proto::GcsReply> registration_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
  // Frames of the GCS and of nodes that heard of this one before it was made: an answer that is
  // lost then costs half a second. After the end they are dropped.
  std::vector<std::pair<FrameKind, std::string>> early_gcs_ ABSL_GUARDED_BY(mutex_);
  std::vector<ForEachFrame> early_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Node* live_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Takes frames.
  std::unique_ptr<Node> registered_node_;
};

}  // namespace sheaf
