// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/node.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/executor.h"
#include "base/failpoint.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/memory/heap.h"
#include "base/mutex.h"
#include "base/session_directory.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "base/version.h"
#include "cli/dashboard/child.h"
#include "cli/dashboard/targets_file.h"
#include "cli/gcs_child.h"
#include "cli/gcs_control.h"
#include "cli/node_connections.h"
#include "cli/node_metrics.h"
#include "cli/node_plan.h"
#include "cli/otlp/span_exporter.h"
#include "cli/run.h"
#include "cli/service/daemon_process.h"
#include "cli/service/health.h"
#include "cli/service/joining.h"
#include "cli/service/pulse.h"
#include "cli/service/service_notifier.h"
#include "gcs/gcs_process.h"
#include "metrics/http_endpoint.h"
#include "metrics/own_page.h"
#include "raylet/host/machine.h"
#include "raylet/host/process_watch.h"
#include "raylet/raylet_process.h"
#include "rpc/gcs_term.h"
#include "shm/attach.h"
#include "shm/segment.h"

namespace sheaf::cli {
namespace {

constexpr Nanos kGrace = 2 * kSecond;   // Workers and drivers have so long to end by themselves.
constexpr Nanos kLookPeriod = kSecond;  // At what may go while the node runs.
constexpr int kKeptSessions = 10;       // Of nodes that ended, with their logs.
constexpr char kParentIsOver[] = "the program that started it is over";

// The node's parts, in the order of their making; they go in the opposite one.
class Node {
 public:
  Node(int signals, int parent_pipe)
      : embedded_(parent_pipe >= 0),
        signals_(signals),
        parent_pipe_(parent_pipe),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Node() { Stop("the node ends", 0); }

  absl::Status Start(const NodeFlags& flags) {
    SHEAF_ASSIGN_OR_RETURN(const Settings settings, LoadSettings());
    SHEAF_RETURN_IF_ERROR(ArmFailpoints(settings.failpoints, 0));
    SHEAF_ASSIGN_OR_RETURN(NodePlan plan, PlanNode(flags, settings));
    const uint64_t open_files = RaiseOpenFileLimit();
    join_ = flags.join;
    const Nanos join_timeout = static_cast<Nanos>(flags.join_timeout * kSecond);
    if (!join_.empty()) {
      joining_ = std::make_unique<Joining>(join_, join_timeout, signals_, parent_pipe_);
    }
    SHEAF_RETURN_IF_ERROR(MakeSession(plan.settings, flags.resume));
    SHEAF_RETURN_IF_ERROR(StartMetrics(std::move(plan.metrics)));
    if (flags.health_port >= 0) {
      SHEAF_ASSIGN_OR_RETURN(health_,
                             ServeHealth(flags.host.empty() ? "127.0.0.1" : flags.host,
                                         static_cast<uint16_t>(flags.health_port), pulse_));
    }
    unheard_limit_ = static_cast<Nanos>(flags.unheard_limit * kSecond);
    gcs_lost_timeout_ = static_cast<Nanos>(flags.gcs_lost_timeout * kSecond);
    if (!embedded_ || !join_.empty()) SHEAF_RETURN_IF_ERROR(Connect(flags, plan.settings));
    SHEAF_RETURN_IF_ERROR(StartDashboard(flags, plan.settings));
    spans_ = SpanExporter::OfEnvironment();
    MakeRaylet(std::move(plan.raylet), open_files);
    if (join_.empty()) {
      pulse_.HostsGcs();
      SHEAF_RETURN_IF_ERROR(embedded_ ? StartEmbeddedGcs() : StartGcsChild(flags, plan));
    }
    SHEAF_RETURN_IF_ERROR(StartRaylet());
    metrics_.SetRefresh([this] {
      if (connections_ != nullptr) connections_->PublishMetrics(own_page_.page());
      if (dashboard_ != nullptr) dashboard_->PublishMetrics();
      if (spans_ != nullptr) spans_->PublishMetrics(own_page_.page());
      return raylet_->PublishMetrics();
    });
    if (flags.ray_metric_names) {
      const std::string own = connections_ == nullptr ? "" : connections_->address();
      metrics_.ServeRayNames({ready_line().address, own, join_.empty()}, session_->path());
    }
    session_->WriteNode(raylet_->node());
    if (dashboard_ != nullptr) dashboard_->Serve();
    if (IsHead()) {
      targets_.Open(flags.targets_file.empty() ? session_->path() + "/prometheus_sd.json"
                                               : flags.targets_file,
                    raylet_->node());
      targets_.Write();
    }
    session_->PublishLatest();
    Log(LogLevel::kInfo, "node ", raylet_->node(), " is ready");
    return absl::OkStatus();
  }

  void Stop(const std::string& reason, Nanos grace) {
    metrics_.SetRefresh(nullptr);
    if (dashboard_ != nullptr) {
      dashboard_->Stop();
      metrics_.OnPage(dashboard_->page(), false);
      unlink(DashboardFile().c_str());
    }
    if (raylet_ != nullptr) raylet_->Stop(reason, grace);
    gcs_control_.reset();
    if (gcs_ != nullptr) gcs_->Stop();
    if (gcs_child_ != nullptr) gcs_child_->Stop();
    if (connections_ != nullptr) connections_->Stop();
  }

  ReadyLine ready_line() const {
    std::string head = join_;
    if (head.empty() && connections_ != nullptr) head = connections_->address();
    return {session_->path(), endpoint_->url(), head, raylet_->node(),
            dashboard_ == nullptr ? "" : dashboard_->url()};
  }
  // To be called each kLookPeriod: ends a node that cannot go on, and tells the GCS of nodes that
  // this one does not hear.
  void Look() {
    if (const absl::Status there = session_->CheckThere(); !there.ok()) {
      return RequestStop(std::string(there.message()));
    }
    targets_.Write();
    const Nanos silent = pulse_.GcsSilence();
    if (gcs_lost_timeout_ > 0 && silent >= gcs_lost_timeout_) {
      return RequestStop(absl::StrCat("the GCS", join_.empty() ? "" : " at " + join_,
                                      " was not heard for ", silent / kSecond,
                                      " s (--gcs-lost-timeout)"));
    }
    if (connections_ == nullptr) return;
    connections_->ReportUnheard(unheard_limit_,
                                [this](ProcessId from, FrameKind kind, std::string body) {
                                  if (join_.empty()) {
                                    return ToGcsHere(from, kind, std::move(body));
                                  }
                                  connections_->ToGcs(from, kind, body);
                                  connections_->Flush();
                                });
  }
  absl::Status health() const { return pulse_.Node(); }
  int stop_fd() const { return stop_.get(); }
  std::string stop_reason() {
    const MutexLock lock(mutex_);
    return stop_reason_;
  }

 private:
  // Of a cluster that other nodes can join.
  bool IsHead() const { return !embedded_ && join_.empty(); }

  absl::Status MakeSession(const Settings& settings, std::string resume) {
    const bool head = IsHead();
    const bool latest = resume == kLatestSession;
    if (latest) {
      SHEAF_ASSIGN_OR_RETURN(resume, SessionDirectory::FindLatest(settings.base_directory, head));
    }
    const std::string& place = resume.empty() ? settings.base_directory : resume;
    if (head && !settings.state_in_memory && KindOfFileSystem(place) == FileSystemKind::kMemory) {
      return absl::FailedPreconditionError(absl::StrCat(
          place,
          " lies in memory (tmpfs), where a reboot or a logout would empty the state of the "
          "cluster; name a directory on a disk with --dir or SHEAF_DIR, or say that it may be lost "
          "with SHEAF_STATE_IN_MEMORY=1"));
    }
    if (!resume.empty()) {  // Locked first, or it might be removed with the others that ended.
      SHEAF_ASSIGN_OR_RETURN(session_, SessionDirectory::Resume(resume));
    } else {
      SHEAF_ASSIGN_OR_RETURN(
          session_, SessionDirectory::Make(settings.base_directory, time(nullptr), !embedded_));
    }
    LogOptions log;
    log.level = settings.log_level;
    log.file = session_->log_directory() + "/node.log";
    log.process = absl::StrCat("node ", getpid());
    if (settings.log_json) log.json_dataset = "sheaf.raylet";
    SHEAF_RETURN_IF_ERROR(StartLog(log));
    if (latest && resume.empty()) {
      Log(LogLevel::kInfo, "--resume=latest: none has ended in ", settings.base_directory,
          ", so this is a new one");
    }
    SessionDirectory::RemoveDead(settings.base_directory, kKeptSessions);
    for (const std::string& name : settings.unknown) {
      Log(LogLevel::kWarning, name, " is set and means nothing to this version");
    }
    return absl::OkStatus();
  }

  absl::Status StartMetrics(metrics::EndpointOptions options) {
    metrics_.SetUserDirectory(session_->path() + "/metrics");
    SHEAF_ASSIGN_OR_RETURN(
        endpoint_,
        metrics::HttpEndpoint::Start(options, metrics_, own_page_.page(), HealthRoutes(pulse_)));
    metrics_.OnPage(own_page_.page(), true);
    return absl::OkStatus();
  }

  absl::Status Connect(const NodeFlags& flags, const Settings& settings) {
    ConnectionEvents events;
    events.on_frames = [this](std::shared_ptr<LinkBatch> batch) {
      raylet_->PostRemoteFrames([batch = std::move(batch)](const auto& handle) {
        batch->ForEach([&handle](const LinkFrame& frame) {
          handle(frame.from, frame.to, frame.lane, Frame{frame.kind, frame.body});
        });
      });
    };
    events.on_refused = [this](const absl::Status& why) {
      raylet_->RefuseRegistration(joining_->Refused(why));
    };
    events.on_unreachable = [this](std::string why) { joining_->OnUnreachable(std::move(why)); };
    events.on_deposed = [this](absl::Status why) {
      gcs_child_->Silence();
      RequestStop(std::string(why.message()));
    };
    events.on_fetch = [this](ProcessId reader, std::string request, LinksOptions::Respond respond) {
      raylet_->PostFetch(reader, std::move(request), std::move(respond));
    };
    events.on_node_link = [this](NodeNumber node, bool up) { raylet_->PostNodeLink(node, up); };
    events.on_gcs_link = [this](bool up, uint64_t term) { raylet_->PostGcsLink(up, term); };
    events.to_gcs = [this](ProcessId from, FrameKind kind, std::string body) {
      ToGcsHere(from, kind, std::move(body));
    };
    events.from_gcs = [this](ProcessId to, FrameKind kind, std::string body) {
      pulse_.GcsSpoke();
      raylet_->PostFromGcs(to, kind, std::move(body));
    };
    // It may listen where it reaches the head from.
    std::string own_host;
    if (joining_ != nullptr && !embedded_) {
      SHEAF_ASSIGN_OR_RETURN(own_host, joining_->AwaitWay());
    }
    // An embedded node is reached over the connections that it makes.
    SHEAF_ASSIGN_OR_RETURN(connections_, NodeConnections::Start(flags, settings, !embedded_,
                                                                own_host, std::move(events)));
    return absl::OkStatus();
  }

  void MakeRaylet(RayletProcessOptions options, uint64_t open_files) {
    options.leaves_at_stop = !join_.empty();
    options.raylet.metrics_url = endpoint_->url();
    options.raylet.session_dir = session_->path();
    if (spans_ != nullptr) options.spans = &spans_->queue();
    if (IsHead()) options.raylet.on_node_info = [this](const auto& info) { targets_.Note(info); };
    options.socket_path = session_->socket_path();
    options.log_directory = session_->log_directory();
    options.spill_directory = session_->spill_directory();
    options.program_directory = session_->program_directory();
    options.session = session_->path();
    options.entrypoints = OptionsOfEntrypoints(session_->path());
    options.worker_open_files = open_files;
    options.own_all_children = true;
    options.replaces = session_->ReadNode();
    options.links = &no_other_nodes_;
    options.flush_links = [this] {
      pulse_.LoopTurned();
      if (connections_ != nullptr) connections_->Flush();
    };
    options.on_registered = [](NodeNumber) {};
    options.is_spared = [this](pid_t pid) {
      return (gcs_child_ != nullptr && gcs_child_->Is(pid)) ||
             (dashboard_ != nullptr && dashboard_->Is(pid));
    };
    options.to_gcs = [this](ProcessId from, FrameKind kind, std::string body) {
      ToGcsHere(from, kind, std::move(body));
    };
    options.raylet.takes_work = !embedded_ || join_.empty();
    if (connections_ != nullptr) {
      options.raylet.address = connections_->address();
      options.links = connections_.get();
      options.block_links = &connections_->links();
      options.on_registered = [this](NodeNumber node) { connections_->AddSelf(RayletOf(node)); };
    }
    if (joining_ != nullptr) {
      options.register_timeout = joining_->left();
      options.to_gcs = [this](ProcessId from, FrameKind kind, std::string body) {
        connections_->ToGcs(from, kind, body);
      };
    }
    options.on_page = [this](metrics::Page& page, bool added) { metrics_.OnPage(page, added); };
    options.on_fenced = [this] { RequestStop("the GCS declared this node dead"); };
    raylet_ = std::make_unique<RayletProcess>(std::move(options));
  }

  std::string DashboardFile() const { return session_->path() + "/dashboard"; }

  absl::Status StartDashboard(const NodeFlags& flags, const Settings& settings) {
    SHEAF_ASSIGN_OR_RETURN(dashboard_,
                           DashboardChild::OfNode(flags, settings, session_->path(), IsHead()));
    if (dashboard_ == nullptr) return absl::OkStatus();
    metrics_.OnPage(dashboard_->page(), true);
    std::ofstream(DashboardFile()) << dashboard_->url() << "\n";  // For drivers of this node.
    return absl::OkStatus();
  }

  absl::Status StartRaylet() {
    if (joining_ == nullptr) return raylet_->Start();
    return joining_->Run([this] { return raylet_->Start(); },
                         [this](absl::Status why) { raylet_->RefuseRegistration(std::move(why)); });
  }

  // The GCS of a program's own node ends with it, and nothing of it is worth a disk or a process.
  absl::Status StartEmbeddedGcs() {
    GcsProcessOptions options;
    options.metrics = &own_page_.page();
    options.send = [this](ProcessId to, FrameKind kind, std::string body) {
      FromGcsHere(to, kind, std::move(body));
    };
    SHEAF_ASSIGN_OR_RETURN(gcs_, GcsProcess::Start(std::move(options)));
    return absl::OkStatus();
  }

  absl::Status StartGcsChild(const NodeFlags& flags, const NodePlan& plan) {
    SHEAF_ASSIGN_OR_RETURN(gcs_metrics_fd_, MakeSegment("sheaf-gcs-metrics", kMetricsBytes));
    SHEAF_ASSIGN_OR_RETURN(
        gcs_page_, Mapping::Map(gcs_metrics_fd_.get(), 0, kMetricsBytes, Access::kReadWrite));
    metrics_.OnPage(*reinterpret_cast<metrics::Page*>(gcs_page_.data()), true);
    GcsChildOptions options;
    options.database = session_->database();
    options.address = connections_->address();
    options.log_directory = session_->log_directory();
    options.keep_jobs = flags.keep_jobs;
    options.log_json = plan.settings.log_json;
    options.metrics_fd = gcs_metrics_fd_.get();
    options.send = [this](ProcessId to, FrameKind kind, std::string body) {
      FromGcsHere(to, kind, std::move(body));
    };
    // They are told that a term has begun before this node's raylet hears who they are.
    options.on_member = [this](NodeNumber node, const std::string& address) {
      connections_->SetAddress(node, address);
    };
    options.on_serving = [this](const std::string& cluster_id, uint64_t term) {
      connections_->HostGcs(GcsTerm::Of(cluster_id, term));  // From here on others may ask.
    };
    options.on_lost = [this](const std::string& why) { RequestStop(why); };
    gcs_child_ = std::make_unique<GcsChild>(std::move(options));
    SHEAF_RETURN_IF_ERROR(gcs_child_->Start());
    SHEAF_ASSIGN_OR_RETURN(
        gcs_control_,
        GcsControl::Start(absl::StrCat(session_->path(), "/", kGcsSocketName),
                          [this](const std::string& path, std::function<void(absl::Status)> done) {
                            gcs_child_->Backup(path, std::move(done));
                          }));
    return absl::OkStatus();
  }

  void ToGcsHere(ProcessId from, FrameKind kind, std::string body) {
    if (gcs_child_ != nullptr) return gcs_child_->Post(from, kind, body);
    if (gcs_ != nullptr) gcs_->Post(from, kind, std::move(body));
  }
  void FromGcsHere(ProcessId to, FrameKind kind, std::string body) {
    if (raylet_->Is(to)) {
      pulse_.GcsSpoke();
      raylet_->PostFromGcs(to, kind, std::move(body));
    } else if (connections_ != nullptr) {
      connections_->FromGcs(to, kind, body);
    }
  }

  void RequestStop(const std::string& reason) {
    {
      const MutexLock lock(mutex_);
      stop_reason_ = reason;
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
  }

  const bool embedded_;
  const int signals_;
  const int parent_pipe_;
  const UniqueFd stop_;
  Mutex mutex_;
  std::string stop_reason_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SessionDirectory> session_;
  metrics::OwnPage own_page_;  // Of links, and of a GCS in this process.
  UniqueFd gcs_metrics_fd_;
  Mapping gcs_page_;  // Of a GCS in another one.
  NodeMetrics metrics_{std::string(kSheafVersion)};
  const MonotonicClock clock_;
  Pulse pulse_{clock_};
  std::unique_ptr<metrics::HttpEndpoint> endpoint_;
  std::unique_ptr<http::Server> health_;  // Null: no port was named for it.
  Nanos unheard_limit_ = 0;
  Nanos gcs_lost_timeout_ = 0;        // 0: none.
  std::string join_;                  // Where the GCS is; empty: here.
  std::unique_ptr<Joining> joining_;  // Null: the GCS is here.
  NoOtherNodes no_other_nodes_;
  TargetsFile targets_;                           // Of a head.
  std::unique_ptr<NodeConnections> connections_;  // Null: a cluster of one.
  std::unique_ptr<SpanExporter> spans_;           // Null: none are exported.
  std::unique_ptr<RayletProcess> raylet_;
  std::unique_ptr<DashboardChild> dashboard_;
  std::unique_ptr<GcsProcess> gcs_;  // Of a program's own node.
  std::unique_ptr<GcsChild> gcs_child_;
  std::unique_ptr<GcsControl> gcs_control_;
};

struct End {
  std::string reason;
  bool failed = false;  // The node could not go on: nobody asked it to end.
};

// Waits for a reason to end.
End AwaitEnd(Node& node, ServiceNotifier& service, int signals, int parent_pipe, int parent_pidfd) {
  while (true) {
    std::array<pollfd, 4> waiting = {{{signals, POLLIN, 0},
                                      {node.stop_fd(), POLLIN, 0},
                                      {parent_pipe, POLLIN, 0},
                                      {parent_pidfd, POLLIN, 0}}};
    if (poll(waiting.data(), waiting.size(), static_cast<int>(kLookPeriod / kMillisecond)) <= 0) {
      node.Look();
      service.Look(node.health(), MonotonicNow());
      continue;
    }
    if (waiting[0].revents != 0) {
      if (const int signal = TakeSignal(signals); signal != 0)
        return {absl::StrCat("signal ", signal, " (", strsignal(signal), ")")};
    }
    if (waiting[1].revents != 0) return {node.stop_reason(), true};
    char byte;
    if (waiting[2].revents != 0 && read(parent_pipe, &byte, 1) <= 0) return {kParentIsOver};
    if (waiting[3].revents != 0) return {"the program that started it has ended"};
  }
}

}  // namespace

int RunNode(const NodeOptions& options) {
  KeepFreedMemory(16 << 20);  // Messages have up to 4 MiB.
  OpenStandardStreams();
  const UniqueFd signals = BlockSignals();
  UniqueFd ready(options.ready_fd);
  const UniqueFd parent(options.parent_fd);
  const bool embedded = parent.valid();
  const ServiceManager manager = TakeServiceManager();
  // A program's own node does not speak for the program, which may be a service.
  ServiceNotifier service(embedded ? ServiceManager{} : manager);
  for (const UniqueFd* fd : {&std::as_const(ready), &parent}) {
    if (fd->valid() && fcntl(fd->get(), F_SETFD, FD_CLOEXEC) != 0) {
      return Complain(
          absl::InvalidArgumentError(absl::StrCat("descriptor ", fd->get(), " is not open")));
    }
  }
  // Children of the parent may hold its end of the pipe for longer than it lives.
  const UniqueFd parent_process = embedded ? OpenPidfd(getppid()) : UniqueFd();
  End end;
  {
    Node node(signals.get(), parent.get());
    if (absl::Status started = node.Start(options.flags); !started.ok()) {
      if (!absl::IsCancelled(started)) return Complain(started);
      const int signal = TakeSignal(signals.get());
      if (signal != 0 && !embedded) Complain(started);
      // A service that is stopped while it starts has not failed; who presses Ctrl-C has no node.
      return signal == 0 || signal == SIGTERM ? kDone : kFailed;
    }
    const std::string line = node.ready_line().Text();
    const int out = ready.valid() ? ready.get() : STDOUT_FILENO;
    if (write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      Log(LogLevel::kWarning, "nobody reads that the node is ready");
    }
    ready.Reset();
    service.Ready(node.ready_line().ForPeople());
    end = AwaitEnd(node, service, signals.get(), parent.get(), parent_process.get());
    service.Stopping();
    Log(end.failed ? LogLevel::kError : LogLevel::kInfo, "ending: ", end.reason);
    // The log may lie in what is gone.
    if (end.failed) std::fprintf(stderr, "sheaf: the node ends: %s\n", end.reason.c_str());
    node.Stop(absl::StrCat("the node ends: ", end.reason), kGrace);
  }
  FlushLog();
  return end.failed ? kFailed : kDone;
}

}  // namespace sheaf::cli
