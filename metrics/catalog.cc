// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "metrics/catalog.h"

#include <array>
#include <string_view>

namespace sheaf::metrics {
namespace {

constexpr double kNanosToSeconds = 1e-9;
constexpr double kFixedPoint = 1e-4;  // Resource amounts count ten-thousandths.

constexpr auto kTasksHelp =
    "Tasks, by what happened to them, counted by the process that submitted them.";
constexpr auto kCallsHelp = "Actor method calls, by what happened to them, counted by the caller.";
constexpr auto kPushesHelp =
    "Tasks and calls sent to a worker: sent, or returned before they started because the worker is "
    "busy or its lease "
    "has ended.";
constexpr auto kExecutedHelp = "Tasks and actor calls that user code ran for, attempts included.";
constexpr auto kPutsHelp =
    "Values put or returned: kept private to their owner, or written to the node's store.";
constexpr auto kGetsHelp = "Values read: private ones, or from the node's store.";
constexpr auto kFramesHelp = "Frames sent to processes of this node, by lane.";
constexpr auto kNodeFramesHelp = "Frames between processes of this node and of others.";
constexpr auto kLinkBytesHelp = "Bytes of frames and objects between this node and others.";
constexpr auto kLeasesHelp = "Worker leases, by what happened to them.";
constexpr auto kDeathsHelp = "Workers that ended, by cause.";
constexpr auto kLogHelp = "Lines of workers that were handed to their drivers, by stream.";
constexpr auto kGcsOpsHelp = "Operations of the global control store, by table.";
constexpr auto kWorkersHelp = "Worker processes of this node, by state.";
constexpr auto kCpuHelp = "CPUs of this node: in all, and free to lease.";
constexpr auto kGpuHelp = "GPUs of this node: in all, and free to lease.";
constexpr auto kInfeasibleHelp =
    "What waits and no node of the cluster could ever take as it is, by kind: lease requests at "
    "this node's scheduler, "
    "placement groups that this node places, detached actors and submissions that the control "
    "store places.";
constexpr auto kActorsHelp = "Actors that this node's control store knows, by state.";

constexpr auto kHttpHelp =
    "HTTP requests that this node answered, of metrics and of its dashboard, by status: 101 is a "
    "WebSocket's.";
constexpr auto kJobsHelp = "Jobs, by what happened to them since the control store started.";
constexpr auto kSubmissionsHelp =
    "Submitted commands, by what happened to them since the control store started.";
constexpr auto kLivingSubmissionsHelp = "Submitted commands that have not ended, by state.";
constexpr auto kCertificateHelp =
    "When the first of the certificates that this node shows to other nodes, or its dashboard, "
    "expires, in seconds since 1970; 0: it shows none.";

constexpr auto kStallHelp =
    "Part of the last ten seconds in which some process of the machine waited for it (PSI).";
constexpr auto kHostMemoryHelp = "Memory of the machine, or of the control group that limits it.";
constexpr auto kHostDiskHelp = "The file system of the session.";
constexpr auto kHostDiskRateHelp = "What all disks of the machine read and write.";
constexpr auto kHostNetworkHelp = "What all interfaces of the machine but loopback carry.";
constexpr auto kHostGpuMemoryHelp = "Memory of all GPUs of the machine.";

constexpr char kNodesHelp[] =
    "Nodes of the cluster, as the global control store knows them (suspect: silent for a second; "
    "of dead ones those remembered).";

constexpr std::array<Description, kCounterCount> kCounters = {{
    {"sheaf_tasks_total", "state", "submitted", "tasks", kTasksHelp},
    {"sheaf_tasks_total", "state", "finished", "tasks", kTasksHelp},
    {"sheaf_tasks_total", "state", "failed", "tasks", kTasksHelp},
    {"sheaf_tasks_total", "state", "retried", "tasks", kTasksHelp},
    {"sheaf_tasks_total", "state", "cancelled", "tasks", kTasksHelp},
    {"sheaf_actor_calls_total", "state", "submitted", "calls", kCallsHelp},
    {"sheaf_actor_calls_total", "state", "finished", "calls", kCallsHelp},
    {"sheaf_actor_calls_total", "state", "failed", "calls", kCallsHelp},
    {"sheaf_actor_calls_total", "state", "retried", "calls", kCallsHelp},
    {"sheaf_actor_calls_total", "state", "cancelled", "calls", kCallsHelp},
    {"sheaf_pushes_total", "result", "sent", "pushes", kPushesHelp},
    {"sheaf_pushes_total", "result", "returned", "pushes", kPushesHelp},
    {"sheaf_executed_total", "kind", "task", "executions", kExecutedHelp},
    {"sheaf_executed_total", "kind", "actor_call", "executions", kExecutedHelp},
    {"sheaf_object_puts_total", "place", "private", "objects", kPutsHelp},
    {"sheaf_object_puts_total", "place", "store", "objects", kPutsHelp},
    {"sheaf_object_put_bytes_total", "", "", "bytes",
     "Bytes of the values that sheaf_object_puts_total counts."},
    {"sheaf_object_gets_total", "place", "private", "objects", kGetsHelp},
    {"sheaf_object_gets_total", "place", "store", "objects", kGetsHelp},
    {"sheaf_reconstructions_total", "", "", "objects",
     "Lost objects that their owner had computed again."},
    {"sheaf_ring_frames_total", "lane", "work", "frames", kFramesHelp},
    {"sheaf_ring_frames_total", "lane", "control", "frames", kFramesHelp},
    {"sheaf_ring_bytes_total", "", "", "bytes", "Bytes of frames sent to processes of this node."},
    {"sheaf_ring_queued_frames_total", "", "", "frames",
     "Frames that found their ring full and waited in the sender."},
    {"sheaf_bad_frames_total", "", "", "frames", "Frames dropped because they were malformed."},
    {"sheaf_doorbell_sleeps_total", "", "", "sleeps", "Times a process slept until a frame came."},
    {"sheaf_doorbell_wakes_total", "", "", "wakes",
     "Times a sender had to wake the receiver through the kernel."},
    {"sheaf_leases_total", "event", "granted", "leases", kLeasesHelp},
    {"sheaf_leases_total", "event", "returned", "leases", kLeasesHelp},
    {"sheaf_leases_total", "event", "revoked", "leases", kLeasesHelp},
    {"sheaf_leases_total", "event", "refused", "leases", kLeasesHelp},
    {"sheaf_demands_handed_on_total", "", "", "demands",
     "Demands for leases that were handed to another node."},
    {"sheaf_node_frames_total", "direction", "out", "frames", kNodeFramesHelp},
    {"sheaf_node_frames_total", "direction", "in", "frames", kNodeFramesHelp},
    {"sheaf_link_bytes_total", "direction", "out", "bytes", kLinkBytesHelp},
    {"sheaf_link_bytes_total", "direction", "in", "bytes", kLinkBytesHelp},
    {"sheaf_link_resent_messages_total", "", "", "messages",
     "Messages to other nodes sent again after a connection was lost."},
    {"sheaf_link_reconnects_total", "", "", "connections",
     "Connections to other nodes made anew after one was lost."},
    {"sheaf_link_refused_handshakes_total", "", "", "handshakes",
     "Connections refused for a wrong token, certificate, cluster or version."},
    {"sheaf_object_pulls_total", "", "", "objects", "Objects asked for from other nodes."},
    {"sheaf_object_pull_failures_total", "", "", "objects",
     "Objects that no other node could give."},
    {"sheaf_object_pulled_bytes_total", "", "", "bytes", "Bytes of objects got from other nodes."},
    {"sheaf_object_served_bytes_total", "", "", "bytes", "Bytes of objects given to other nodes."},
    {"sheaf_workers_started_total", "", "", "workers", "Worker processes started."},
    {"sheaf_worker_deaths_total", "cause", "exited", "workers", kDeathsHelp},
    {"sheaf_worker_deaths_total", "cause", "signalled", "workers", kDeathsHelp},
    {"sheaf_worker_deaths_total", "cause", "out_of_memory", "workers", kDeathsHelp},
    {"sheaf_worker_deaths_total", "cause", "killed", "workers", kDeathsHelp},
    {"sheaf_worker_deaths_total", "cause", "left", "workers", kDeathsHelp},
    {"sheaf_worker_deaths_total", "cause", "start_failed", "workers", kDeathsHelp},
    {"sheaf_worker_deaths_total", "cause", "other", "workers", kDeathsHelp},
    {"sheaf_actor_restarts_total", "", "", "restarts",
     "Times an actor was started again after its process had died."},
    {"sheaf_log_lines_total", "stream", "out", "lines", kLogHelp},
    {"sheaf_log_lines_total", "stream", "error", "lines", kLogHelp},
    {"sheaf_log_left_out_bytes_total", "", "", "bytes",
     "Output of workers that came too fast to hand on; it is in their log files."},
    {"sheaf_spills_total", "", "", "objects",
     "Objects written to disk because the store was full."},
    {"sheaf_spilled_bytes_total", "", "", "bytes",
     "Bytes written to disk because the store was full."},
    {"sheaf_restores_total", "", "", "objects", "Objects read back from disk."},
    {"sheaf_restored_bytes_total", "", "", "bytes", "Bytes read back from disk."},
    {"sheaf_spill_failures_total", "", "", "failures",
     "Writes or reads of spilled objects that failed, bad checksums and a full disk included."},
    {"sheaf_objects_freed_total", "", "", "objects",
     "Objects of the store whose last reference went."},
    {"sheaf_objects_adopted_total", "", "", "objects",
     "Objects kept by the raylet after their owner died, because others still held them."},
    {"sheaf_store_full_total", "", "", "failures",
     "Requests for store memory that ended in StoreFull."},
    {"sheaf_events_lost_total", "", "", "calls",
     "Ended calls that are counted but not in listings and timelines: their process wrote over "
     "them before they were read."},
    {"sheaf_spans_exported_total", "", "", "spans",
     "Spans of calls that a receiver of OpenTelemetry has taken from this node."},
    {"sheaf_spans_dropped_total", "", "", "spans",
     "Spans of calls that were to be exported and are lost: the receiver was down, slower than the "
     "calls, or did not want them."},
    {"sheaf_http_requests_total", "status", "1xx", "requests", kHttpHelp},
    {"sheaf_http_requests_total", "status", "2xx", "requests", kHttpHelp},
    {"sheaf_http_requests_total", "status", "3xx", "requests", kHttpHelp},
    {"sheaf_http_requests_total", "status", "4xx", "requests", kHttpHelp},
    {"sheaf_http_requests_total", "status", "5xx", "requests", kHttpHelp},
    {"sheaf_http_connections_turned_away_total", "", "", "connections",
     "HTTP connections that there was no room for."},
    {"sheaf_gcs_operations_total", "table", "node", "operations", kGcsOpsHelp},
    {"sheaf_gcs_operations_total", "table", "job", "operations", kGcsOpsHelp},
    {"sheaf_gcs_operations_total", "table", "actor", "operations", kGcsOpsHelp},
    {"sheaf_gcs_operations_total", "table", "group", "operations", kGcsOpsHelp},
    {"sheaf_gcs_operations_total", "table", "key_value", "operations", kGcsOpsHelp},
    {"sheaf_gcs_operations_total", "table", "subscription", "operations", kGcsOpsHelp},
    {"sheaf_gcs_errors_total", "", "", "operations",
     "Operations of the global control store that were refused or failed."},
    {"sheaf_gcs_commits_total", "", "", "commits",
     "Group commits of the global control store to disk."},
    {"sheaf_node_deaths_total", "", "", "nodes",
     "Nodes that were declared dead; those that left are not among them."},
    {"sheaf_jobs_total", "state", "started", "jobs", kJobsHelp},
    {"sheaf_jobs_total", "state", "finished", "jobs", kJobsHelp},
    {"sheaf_jobs_total", "state", "failed", "jobs", kJobsHelp},
    {"sheaf_submissions_total", "state", "submitted", "commands", kSubmissionsHelp},
    {"sheaf_submissions_total", "state", "succeeded", "commands", kSubmissionsHelp},
    {"sheaf_submissions_total", "state", "failed", "commands", kSubmissionsHelp},
    {"sheaf_submissions_total", "state", "stopped", "commands", kSubmissionsHelp},
}};

constexpr std::array<Description, kGaugeCount> kGauges = {{
    {"sheaf_queued_tasks", "", "", "tasks",
     "Tasks that wait at their owners for arguments or for a worker."},
    {"sheaf_owned_objects", "", "", "objects", "Objects that live processes of this node own."},
    {"sheaf_private_bytes", "", "", "bytes", "Bytes of values kept private to their owners."},
    {"sheaf_scheduler_queue_length", "", "", "requests",
     "Lease requests that wait at this node's scheduler."},
    {"sheaf_scheduler_infeasible", "kind", "lease", "requests", kInfeasibleHelp},
    {"sheaf_scheduler_infeasible", "kind", "group", "requests", kInfeasibleHelp},
    {"sheaf_scheduler_infeasible", "kind", "actor", "requests", kInfeasibleHelp},
    {"sheaf_scheduler_infeasible", "kind", "submission", "requests", kInfeasibleHelp},
    {"sheaf_scheduler_starved", "", "", "requests",
     "Of these, those that this node has room for now: more than a moment of it is a fault."},
    {"sheaf_placement_groups_pending", "", "", "groups",
     "Placement groups that this node places and has found no room for."},
    {"sheaf_leases_held", "", "", "leases", "Worker leases held now."},
    {"sheaf_workers", "state", "starting", "workers", kWorkersHelp},
    {"sheaf_workers", "state", "idle", "workers", kWorkersHelp},
    {"sheaf_workers", "state", "leased", "workers", kWorkersHelp},
    {"sheaf_workers", "state", "blocked", "workers", kWorkersHelp},
    {"sheaf_workers", "state", "actor", "workers", kWorkersHelp},
    {"sheaf_processes", "", "", "processes", "Drivers and workers attached to this node."},
    {"sheaf_drivers", "", "", "processes", "Drivers attached to this node."},
    {"sheaf_rings", "", "", "rings", "Ring pairs between processes of this node."},
    {"sheaf_cpus", "kind", "total", "CPUs", kCpuHelp, kFixedPoint},
    {"sheaf_cpus", "kind", "available", "CPUs", kCpuHelp, kFixedPoint},
    {"sheaf_gpus", "kind", "total", "GPUs", kGpuHelp, kFixedPoint},
    {"sheaf_gpus", "kind", "available", "GPUs", kGpuHelp, kFixedPoint},
    {"sheaf_store_capacity_bytes", "", "", "bytes", "Size of the object store of this node."},
    {"sheaf_store_used_bytes", "", "", "bytes", "Bytes of the store that hold objects."},
    {"sheaf_store_pinned_bytes", "", "", "bytes", "Bytes of the store that readers hold in place."},
    {"sheaf_store_spilled_bytes", "", "", "bytes", "Bytes of objects that are on disk now."},
    {"sheaf_store_populated_bytes", "", "", "bytes",
     "Bytes of the store that the kernel has given memory for."},
    {"sheaf_store_objects", "", "", "objects", "Objects in the store, spilled ones included."},
    {"sheaf_object_pulls_queued", "", "", "objects",
     "Objects of other nodes that wait for room before they are fetched."},
    {"sheaf_http_connections", "", "", "connections", "HTTP connections that are open."},
    {"sheaf_actors", "state", "alive", "actors", kActorsHelp},
    {"sheaf_actors", "state", "pending", "actors", kActorsHelp},
    {"sheaf_actors", "state", "restarting", "actors", kActorsHelp},
    {"sheaf_actors", "state", "dead", "actors", kActorsHelp},
    {"sheaf_jobs_running", "", "", "jobs", "Jobs whose driver is alive."},
    {"sheaf_submissions", "state", "pending", "commands", kLivingSubmissionsHelp},
    {"sheaf_submissions", "state", "starting", "commands", kLivingSubmissionsHelp},
    {"sheaf_submissions", "state", "running", "commands", kLivingSubmissionsHelp},
    {"sheaf_placement_groups", "", "", "groups",
     "Placement groups that the global control store knows: those with a name, and detached ones."},
    {"sheaf_gcs_read_only", "", "", "",
     "1 while the disk of the global control store is full: commands that change it fail."},
    {"sheaf_gcs_recovering", "", "", "",
     "1 while the global control store, started anew, waits for the reports of nodes."},
    {"sheaf_gcs_operations_in_progress", "", "", "operations",
     "Commands that the global control store has not answered yet."},
    {"sheaf_gcs_key_value_bytes", "", "", "bytes",
     "Keys and values in the global control store, functions and packages of jobs among them; at 1 "
     "GiB it takes no more."},
    {"sheaf_nodes", "state", "alive", "nodes", kNodesHelp},
    {"sheaf_nodes", "state", "suspect", "nodes", kNodesHelp},
    {"sheaf_nodes", "state", "draining", "nodes", kNodesHelp},
    {"sheaf_nodes", "state", "dead", "nodes", kNodesHelp},
    {"sheaf_link_queued_bytes", "", "", "bytes",
     "Bytes for other nodes that are not acknowledged yet, over all links of this node."},
    {"sheaf_certificate_expires_seconds", "use", "links", "seconds", kCertificateHelp},
    {"sheaf_certificate_expires_seconds", "use", "dashboard", "seconds", kCertificateHelp},
    {"sheaf_host_cpu_ratio", "", "", "ratio",
     "Part of the time in which the processors of the machine worked.", kFixedPoint},
    {"sheaf_host_cpu_steal_ratio", "", "", "ratio",
     "Part of the time of the processors that a hypervisor gave to others.", kFixedPoint},
    {"sheaf_host_cpu_io_wait_ratio", "", "", "ratio",
     "Part of the time in which processors waited for a disk.", kFixedPoint},
    {"sheaf_host_load", "", "", "processes", "Processes that run or wait, over the last minute.",
     kFixedPoint},
    {"sheaf_host_stall_ratio", "resource", "cpu", "ratio", kStallHelp, kFixedPoint},
    {"sheaf_host_stall_ratio", "resource", "memory", "ratio", kStallHelp, kFixedPoint},
    {"sheaf_host_stall_ratio", "resource", "io", "ratio", kStallHelp, kFixedPoint},
    {"sheaf_host_memory_bytes", "state", "used", "bytes", kHostMemoryHelp},
    {"sheaf_host_memory_bytes", "state", "total", "bytes", kHostMemoryHelp},
    {"sheaf_host_disk_bytes", "state", "used", "bytes", kHostDiskHelp},
    {"sheaf_host_disk_bytes", "state", "total", "bytes", kHostDiskHelp},
    {"sheaf_host_disk_bytes_per_second", "direction", "read", "bytes a second", kHostDiskRateHelp},
    {"sheaf_host_disk_bytes_per_second", "direction", "written", "bytes a second",
     kHostDiskRateHelp},
    {"sheaf_host_network_bytes_per_second", "direction", "received", "bytes a second",
     kHostNetworkHelp},
    {"sheaf_host_network_bytes_per_second", "direction", "sent", "bytes a second",
     kHostNetworkHelp},
    {"sheaf_node_processes", "", "", "processes", "Drivers and workers of this node that live."},
    {"sheaf_node_processes_cpus", "", "", "processors",
     "Processors that drivers and workers of this node use.", kFixedPoint},
    {"sheaf_node_processes_memory_bytes", "", "", "bytes",
     "Resident memory of drivers and workers of this node, in sum."},
    {"sheaf_host_gpu_ratio", "", "", "ratio",
     "Part of the time in which the GPUs of the machine worked, mean over all.", kFixedPoint},
    {"sheaf_host_gpu_memory_bytes", "state", "used", "bytes", kHostGpuMemoryHelp},
    {"sheaf_host_gpu_memory_bytes", "state", "total", "bytes", kHostGpuMemoryHelp},
    {"sheaf_uptime_seconds", "", "", "seconds", "Time since this node started.", kNanosToSeconds},
    {"sheaf_build_info", "", "", "", "1, with the version of Sheaf as a label."},
}};

constexpr std::array<Description, kHistogramCount> kHistograms = {{
    {"sheaf_task_latency_seconds", "", "", "seconds",
     "From the submission of a task to its result at the owner, queueing included; of one task in "
     "64.",
     kNanosToSeconds},
    {"sheaf_actor_call_latency_seconds", "", "", "seconds",
     "From an actor call to its result at the caller, queueing included; of one call in 64.",
     kNanosToSeconds},
    {"sheaf_task_run_seconds", "", "", "seconds", "Time that user code of a task or call ran.",
     kNanosToSeconds},
    {"sheaf_lease_wait_seconds", "", "", "seconds", "From a lease request to its grant.",
     kNanosToSeconds},
    {"sheaf_worker_start_seconds", "", "", "seconds",
     "From the start of a worker process until it is ready.", kNanosToSeconds},
    {"sheaf_gcs_commit_seconds", "", "", "seconds", "Time of one group commit to disk.",
     kNanosToSeconds},
    {"sheaf_object_size_bytes", "", "", "bytes", "Sizes of the values put."},
    {"sheaf_http_request_seconds", "", "", "seconds",
     "From the header of an HTTP request to its answer, or to the beginning of one that goes on.",
     kNanosToSeconds},
}};

constexpr std::array<Description, 1> kShaped = {{
    {"sheaf_demand", "shape", "resources, as '1 CPU, 0.5 GPU'; behind the first 32 'others'",
     "requests",
     "Lease requests that wait at this node's scheduler, by what each asks for; those of placement "
     "groups are left out."},
}};

void AppendRows(std::string& out, const char* type, std::span<const Description> rows) {
  for (size_t i = 0; i < rows.size();) {
    const Description& first = rows[i];
    std::string labels;
    for (; i < rows.size() && std::string_view(rows[i].name) == first.name; ++i) {
      if (rows[i].label[0] == '\0') continue;
      labels += labels.empty() ? std::string("`") + rows[i].label + "`: " : std::string(", ");
      labels += rows[i].label_value;
    }
    out += std::string("| `") + first.name + "` | " + type + " | " + first.unit + " | " + labels +
           " | " + first.help + " |\n";
  }
}

}  // namespace

std::span<const Description> Counters() { return kCounters; }
std::span<const Description> Gauges() { return kGauges; }
std::span<const Description> Histograms() { return kHistograms; }
std::span<const Description> Shaped() { return kShaped; }

std::string CatalogAsMarkdown() {
  std::string out =
      "# Metrics\n"
      "\n"
      "Each node serves these at `http://127.0.0.1:PORT/metrics` (`sheaf status` names the port) "
      "in the\n"
      "Prometheus text format. Counters include processes that have exited. This page is written "
      "from\n"
      "metrics/catalog.cc: `metrics_test` fails when they differ, and `metrics_catalog > "
      "docs/metrics.md` writes it anew.\n"
      "\n"
      "| name | type | unit | labels | meaning |\n"
      "|---|---|---|---|---|\n";
  AppendRows(out, "counter", kCounters);
  AppendRows(out, "gauge", kGauges);
  AppendRows(out, "gauge", kShaped);
  AppendRows(out, "histogram", kHistograms);
  out +=
      "\nHistograms have 27 bounds, each twice the one before: 1.024 us to 69 s for times, 1 KiB "
      "to 64 GiB for sizes.\n";
  return out;
}

}  // namespace sheaf::metrics
