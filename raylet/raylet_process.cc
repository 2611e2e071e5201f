// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/raylet_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "metrics/counter.h"
#include "metrics/mailbox_metrics.h"
#include "metrics/own_page.h"
#include "object_store/arena/arena_memory.h"
#include "object_store/machine_memory.h"
#include "object_store/server/spill.h"
#include "object_store/server/store_server.h"
#include "raylet/host/attach_server.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/process_launcher.h"
#include "raylet/host/program_server.h"
#include "raylet/host/program_store.h"
#include "raylet/host/worker_observer.h"
#include "raylet/host/worker_variables.h"
#include "raylet/inspect/kernel_states.h"
#include "raylet/logs/log_names.h"
#include "raylet/logs/log_reader.h"
#include "raylet/node_transport.h"
#include "raylet/objects/block_source.h"
#include "raylet/objects/store_events.h"
#include "raylet/queries/collected_events.h"
#include "raylet/raylet_loop.h"

namespace sheaf {
namespace {

constexpr Nanos kLeaveTime = 500 * kMillisecond;
// For one driver: one that does not read loses lines, not the node's memory.
constexpr size_t kMaxQueuedLogBytes = 4 << 20;

// Two raylets must not take the same one, or the GCS would answer one with the other's answer.
ProcessId RandomName() {
  SeededRandom random(EntropySeed());
  return {0, static_cast<uint32_t>(random.Next()) | 1u << 31};
}

}  // namespace

// Everything of a registered node, in the order of its making. Members below the loop are used on
// it alone.
class RayletProcess::Node final : public FrameHandler {
 public:
  Node(RayletProcessOptions& options, NodeNumber node)
      : options_(options), node_(node), numbers_(node), logs_(options.log_directory) {}
  ~Node() override {
    Stop("the node ends", 0);
    // Blocks on their way to other nodes are read there until the links end.
    if (store_ != nullptr && store_->holds() != 0) arena_.release();
  }

  absl::Status Make() {
    SHEAF_RETURN_IF_ERROR(MakeMemory());
    mailbox_ =
        std::make_unique<Mailbox>(Board(), 0, [this](ProcessId peer) { mailbox_->Forget(peer); });
    loop_ = std::make_unique<RayletLoop>(*mailbox_);
    task_events_ =
        std::make_unique<CollectedEvents>(*loop_, options_.spill_directory, options_.spans);
    log_reader_ = std::make_unique<LogReader>(*loop_, logs_);
    transport_ =
        std::make_unique<NodeTransport>(node_, *mailbox_, *options_.links, options_.to_gcs);
    MakeStore();
    if (options_.block_links != nullptr) {
      blocks_ = std::make_unique<LinkBlocks>(node_, *options_.block_links);
    } else {
      blocks_ = std::make_unique<NoBlocks>();
    }
    SHEAF_RETURN_IF_ERROR(MakeProcesses());
    RayletDeps deps{clock_,           *transport_,      *options_.links,    *launcher_,
                    *attach_,         *store_,          store_events_,      random_,
                    numbers_,         own_page_.page(), *blocks_,           *loop_,
                    *object_bytes_,   *entrypoints_,    task_events_.get(), kernel_states_.get(),
                    log_reader_.get()};
    RayletOptions raylet = options_.raylet;
    raylet.node = node_;
    raylet_ = std::make_unique<Raylet>(std::move(raylet), deps);
    options_.on_page(own_page_.page(), true);
    loop_->Start({this, [this] { raylet_->EndTurn(); }, [this] { options_.flush_links(); },
                  [this] { Tick(); }, [this] { return raylet_->NextTick(); }});
    return attach_->Listen();
  }

  void Stop(const std::string& reason, Nanos grace) {
    if (std::exchange(stopped_, true)) return;
    if (raylet_ != nullptr) {
      loop_->Run([&] {
        attach_->Close();
        raylet_->Shutdown(reason);
      });
      WaitUntilIdle(grace);
    }
    if (program_store_ != nullptr) program_store_->Stop();
    if (entrypoints_ != nullptr) entrypoints_->Stop();
    if (launcher_ != nullptr) launcher_->Stop();  // Kills and waits; posts the last deaths.
    if (raylet_ != nullptr && options_.leaves_at_stop) Leave();
    if (observer_ != nullptr) observer_->Stop();
    if (events_ != nullptr) events_->Stop();
    if (object_bytes_ != nullptr) object_bytes_->Stop();
    if (loop_ != nullptr) loop_->Stop();
    if (raylet_ != nullptr) options_.on_page(own_page_.page(), false);
  }

  void OnGcsFrame(FrameKind kind, std::string body) {
    loop_->Post([this, kind, body = std::move(body)] { raylet_->OnGcsFrame(Frame{kind, body}); });
  }
  void OnRemoteFrames(ForEachFrame frames) {
    loop_->Post([this, frames = std::move(frames)] {
      frames([this](ProcessId from, ProcessId to, Lane lane, const Frame& frame) {
        raylet_->OnRemoteFrame(from, to, lane, frame);
      });
    });
  }
  void OnNodeLink(NodeNumber node, bool up) {
    loop_->Post([this, node, up] { raylet_->OnNodeLink(node, up); });
  }
  void OnGcsLink(bool up, uint64_t term) {
    loop_->Post([this, up, term] { raylet_->OnGcsLink(up, term); });
  }
  void OnFetch(ProcessId reader, std::string request, LinksOptions::Respond respond) {
    proto::BlockRequest asked;
    if (asked.ParseFromString(request) && ProgramServer::IsFor(asked))
      return program_server_->OnFetch(std::move(asked), std::move(respond));
    loop_->Post([this, reader, request = std::move(request), respond = std::move(respond)] {
      raylet_->OnFetch(reader.node, request, respond);
    });
  }
  std::map<std::string, uint64_t> PublishMetrics() {
    std::map<std::string, uint64_t> demand;
    loop_->Run([&] {
      demand = raylet_->figures().Publish();
      metrics::PublishMailbox(mailbox_->counts(), own_page_.page());
    });
    return demand;
  }

  // FrameHandler, on the loop.
  void OnFrame(ProcessId from, const Frame& frame) override {
    if (frame.kind == FrameKind::kStateQuery && SendOutput(from, frame)) return;
    raylet_->OnFrame(from, frame);
  }
  void OnMalformed(ProcessId from) override {
    Log(LogLevel::kWarning, "process ", from.ToString(), " wrote garbage into its ring");
    launcher_->Kill(from, "it wrote garbage into its ring");
  }

 private:
  Bell* Board() { return reinterpret_cast<Bell*>(board_.data()); }

  absl::Status MakeMemory() {
    SHEAF_ASSIGN_OR_RETURN(board_fd_, MakeSegment("sheaf-bells", kBellBoardBytes));
    SHEAF_ASSIGN_OR_RETURN(board_,
                           Mapping::Map(board_fd_.get(), 0, kBellBoardBytes, Access::kReadWrite));
    capacity_ = options_.store_bytes != 0 ? options_.store_bytes
                                          : DefaultStoreCapacity(ReadMachineMemory());
    SegmentArena::Options arena;
    arena.capacity_bytes = capacity_;
    SHEAF_ASSIGN_OR_RETURN(arena_, SegmentArena::Make(std::move(arena)));
    SHEAF_ASSIGN_OR_RETURN(spill_, FileSpill::Open({.directory = options_.spill_directory}));
    return absl::OkStatus();
  }

  void MakeStore() {
    store_memory_ = std::make_unique<ThreadExecutor>("store-memory");
    store_disk_ = std::make_unique<ThreadExecutor>("store-disk");
    object_bytes_ = std::make_unique<ThreadExecutor>("object-bytes");
    StoreOptions store;
    store.node = node_;
    store.align_to_huge_pages = arena_->huge_pages();
    store_ = std::make_unique<StoreServer>(
        store,
        StoreServer::Deps{clock_, *transport_, *arena_, *spill_, *loop_, *store_memory_,
                          *store_disk_, store_events_},
        capacity_);
  }

  absl::Status MakeProcesses() {
    SHEAF_ASSIGN_OR_RETURN(events_, EventLoop::Start("events"));
    LogTailerOptions logs;
    logs.max_file_bytes = options_.worker_log_bytes;
    logs.keep = options_.log_keep;
    SHEAF_ASSIGN_OR_RETURN(observer_, WorkerObserver::Start(
                                          options_.memory_watch, logs_, logs,
                                          [this](LogBatch batch) {
                                            if (options_.log_to_driver) Forward(std::move(batch));
                                          },
                                          MakeLogEvents()));
    kernel_states_ = std::make_unique<KernelStates>(*observer_, *loop_);
    MakeEntrypoints();
    SHEAF_ASSIGN_OR_RETURN(
        launcher_, ProcessLauncher::Make(LaunchOptions(), LaunchEvents(), LaunchPrograms()));
    program_server_ = std::make_unique<ProgramServer>(
        *object_bytes_, [this](ProcessId driver) { return launcher_->ProgramOf(driver); });
    observer_->WatchMemory([this](ProcessId process, const proto::Death& death) {
      Log(LogLevel::kWarning, "killing worker ", process.ToString(), ": ", death.message());
      launcher_->KillWith(process, death);
    });
    AttachServerOptions attach;
    attach.socket_path = options_.socket_path;
    attach.node = node_;
    attach.board_fd = board_fd_.get();
    attach.arena_fd = arena_->fd();
    attach.arena_bytes = arena_->size_bytes();
    attach.node_start = clock_.Now();
    attach.spans_are_exported = options_.spans != nullptr;
    attach_ = std::make_unique<AttachServer>(
        std::move(attach), AttachEvents(), *events_, *loop_, *mailbox_, Board(), numbers_,
        [this](std::string_view token) { return launcher_->Claim(token); });
    transport_->set_attach(attach_.get());
    return absl::OkStatus();
  }

  std::unique_ptr<LogEvents> MakeLogEvents() const {
    if (!options_.log_events) return nullptr;
    return std::make_unique<LogEvents>(logs_, EventFileOptions{logs_.PathOf("events.ndjson")},
                                       JsonObject()
                                           .Add("cluster", JsonString(options_.cluster_id))
                                           .Add("node", JsonNumber(uint64_t{node_})));
  }

  LauncherOptions LaunchOptions() const {
    LauncherOptions options;
    options.socket_path = options_.socket_path;
    options.log_directory = options_.log_directory;
    options.spill_directory = options_.spill_directory;
    options.session = options_.session;
    options.open_files = options_.worker_open_files;
    options.use_templates = options_.worker_templates;
    options.environment_bytes = options_.environment_bytes;
    options.variables = OfNode(options_.variables);
    options.own_all_children = options_.own_all_children;
    options.is_spared = [this](pid_t pid) {
      return entrypoints_->Owns(pid) || (options_.is_spared && options_.is_spared(pid));
    };
    return options;
  }

  void MakeEntrypoints() {
    EntrypointOptions options = options_.entrypoints;
    options.session = options_.raylet.session_dir;
    options.variables = options_.variables;
    options.unix_ns_at_zero = options_.raylet.unix_ns_at_zero;
    EntrypointEvents events;
    events.on_running = [this](const std::string& id,
                               const proto::EntrypointReport::Running& running) {
      observer_->OnJob(JobLogName(id), true);
      loop_->Post([this, id, running] { raylet_->OnEntrypointRunning(id, running); });
    };
    events.on_ended = [this](const std::string& id, const proto::EntrypointReport::Ended& ended) {
      observer_->OnJob(JobLogName(id), false);
      loop_->Post([this, id, ended] { raylet_->OnEntrypointEnded(id, ended); });
    };
    events.kernel_oom_kills = [] { return KernelOomKills(); };
    entrypoints_ =
        std::make_unique<EntrypointProcesses>(logs_, std::move(options), std::move(events));
  }

  LauncherPrograms LaunchPrograms() {
    ProgramStoreOptions kept;
    kept.directory = options_.program_directory;
    program_store_ = std::make_unique<ProgramStore>(std::move(kept), *blocks_);
    LauncherPrograms programs;
    programs.of_driver = [this](ProcessId driver) { return attach_->TakeExecutable(driver); };
    programs.fetch = [this](ProcessId driver, std::string path, ProgramStore::Done done) {
      // A driver of this node that attached before this raylet started is gone.
      program_store_->Find(driver.node == node_ ? ProcessId() : driver, std::move(path),
                           std::move(done));
    };
    return programs;
  }

  LauncherEvents LaunchEvents() {
    LauncherEvents events;
    events.on_started = [this](const LaunchedWorker& worker) { observer_->OnStarted(worker); };
    events.on_exited = [this](ProcessId process, const proto::Death& death) {
      observer_->OnExited(process);
      loop_->Post([this, process, death] { OnExited(process, death); });
    };
    events.kernel_oom_kills = [] { return KernelOomKills(); };
    return events;
  }

  AttachServerEvents AttachEvents() {
    AttachServerEvents events;
    events.on_attached = [this](ProcessId process, const AttachInfo& info) {
      raylet_->OnAttached(process, info);
    };
    events.on_tool_frame = [this](ProcessId process, Frame frame) {
      raylet_->OnFrame(process, frame);
      raylet_->EndTurn();
    };
    events.on_exited = [this](ProcessId process, const proto::Death& death) {
      OnExited(process, death);
    };
    events.on_socket_closed = [this](ProcessId process) {
      mailbox_->Drain(process, *this);
      raylet_->OnSocketClosed(process);
    };
    events.on_segment = [this](ProcessId process, const AttachInfo& info, bool added) {
      options_.on_page(metrics::PageOf(info.segment->data()), added);
      task_events_->OnSegment(process, info, added);
      if (info.role == ProcessRole::kWorker) observer_->OnSegment(process, info.segment, added);
    };
    return events;
  }

  void OnExited(ProcessId process, const proto::Death& death) {
    mailbox_->Drain(process, *this);  // What it said before its end comes before its end.
    attach_->RingPeersOf(process);
    raylet_->OnExited(process, death);
  }

  void Forward(LogBatch batch) {
    loop_->Post([this, batch = std::move(batch)]() mutable {
      metrics::Page& figures = own_page_.page();
      metrics::Counter(figures, metrics::CounterId::kLogBytesLeftOut).Add(batch.bytes_left_out);
      metrics::Counter(figures, batch.lines.error_stream() ? metrics::CounterId::kLogLinesError
                                                           : metrics::CounterId::kLogLinesOut)
          .Add(static_cast<uint64_t>(batch.lines.lines_size()));
      if (batch.driver == ProcessId() ||
          (batch.driver.node == node_ && !mailbox_->HasRing(batch.driver)))
        return;
      Channel& driver = transport_->To(batch.driver);
      if (driver.queued_bytes() > kMaxQueuedLogBytes) return;
      batch.lines.set_name(attach_->RunningOf(ProcessId::Unpack(batch.lines.process())));
      SendMessage(driver, FrameKind::kLogLines, batch.lines);
    });
  }

  // What is about the output of workers is answered here: it comes from another thread. False: this
  // is about something else.
  bool SendOutput(ProcessId from, const Frame& frame) {
    const auto query = ParseFrame<proto::StateQuery>(frame);
    if (!query.ok() || query->what() != proto::StateQuery::OUTPUT) return false;
    observer_->TailNow([this, from, request = query->request()] {
      loop_->Post([this, from, request] {  // Behind the lines.
        if (!mailbox_->HasRing(from)) return;
        proto::StateAnswer answer;
        answer.set_request(request);
        SendMessage(transport_->To(from), FrameKind::kStateAnswer, answer);
      });
    });
    return true;
  }

  void Tick() {
    raylet_->Tick();
    if (raylet_->fenced() && !std::exchange(told_fenced_, true)) options_.on_fenced();
  }

  // Everybody has left, or `grace` is over.
  void WaitUntilIdle(Nanos grace) {
    WaitFor([this] { return raylet_->idle(); }, grace);
  }

  // Nothing runs here any more: the others need not wait until silence proves it.
  void Leave() {
    loop_->Run([this] {
      raylet_->Leave();
      options_.flush_links();
    });
    WaitFor([this] { return raylet_->has_left(); }, kLeaveTime);
  }

  template <class Condition>  // Looked at on the loop.
  void WaitFor(Condition condition, Nanos longest) {
    const Nanos deadline = Deadline(clock_.Now(), longest);
    bool holds = false;
    while (!holds && clock_.Now() < deadline) {
      loop_->Run([&] { holds = condition(); });
      if (!holds) usleep(2000);
    }
  }

  RayletProcessOptions& options_;
  const NodeNumber node_;
  MonotonicClock clock_;
  SeededRandom random_{EntropySeed()};
  ProcessNumbers numbers_;
  metrics::OwnPage own_page_;
  UniqueFd board_fd_;
  Mapping board_;
  uint64_t capacity_ = 0;
  std::unique_ptr<SegmentArena> arena_;
  std::unique_ptr<FileSpill> spill_;
  StoreEvents store_events_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<NodeTransport> transport_;
  std::unique_ptr<RayletLoop> loop_;
  std::unique_ptr<ThreadExecutor> store_memory_, store_disk_, object_bytes_;
  std::unique_ptr<CollectedEvents> task_events_;
  LogFiles logs_;
  std::unique_ptr<LogReader> log_reader_;
  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<EventLoop> events_;
  std::unique_ptr<WorkerObserver> observer_;
  std::unique_ptr<KernelStates> kernel_states_;
  std::unique_ptr<BlockSource> blocks_;
  std::unique_ptr<ProgramStore> program_store_;
  std::unique_ptr<EntrypointProcesses> entrypoints_;
  std::unique_ptr<ProcessLauncher> launcher_;
  std::unique_ptr<ProgramServer> program_server_;
  std::unique_ptr<AttachServer> attach_;
  std::unique_ptr<Raylet> raylet_;
  bool told_fenced_ = false;
  bool stopped_ = false;
};

RayletProcess::RayletProcess(RayletProcessOptions options)
    : options_(std::move(options)), nameless_(RandomName()) {}
RayletProcess::~RayletProcess() { Stop("the node ends", 0); }

absl::Status RayletProcess::Start() {
  SHEAF_RETURN_IF_ERROR(Register());
  auto made = std::make_unique<Node>(options_, node_);
  SHEAF_RETURN_IF_ERROR(made->Make());
  const MutexLock lock(mutex_);
  registered_node_ = std::move(made);
  live_ = registered_node_.get();
  for (auto& [kind, body] : early_gcs_) live_->OnGcsFrame(kind, std::move(body));
  for (ForEachFrame& frames : early_) live_->OnRemoteFrames(std::move(frames));
  early_gcs_.clear();
  early_.clear();
  return absl::OkStatus();
}

void RayletProcess::PostFromGcs(ProcessId to, FrameKind kind, std::string body) {
  const MutexLock lock(mutex_);
  if (live_ != nullptr) return live_->OnGcsFrame(kind, std::move(body));
  proto::GcsReply reply;
  if (to.node == 0 && kind == FrameKind::kGcsReply && reply.ParseFromString(body) &&
      reply.client() == nameless_.packed() && reply.sequence() == 1) {
    registration_ = std::move(reply);
    registered_or_live_.NotifyOne();
  } else if (to.node != 0 && !stopped_) {
    early_gcs_.emplace_back(kind, std::move(body));
  }
}

void RayletProcess::PostFetch(ProcessId reader, std::string request,
                              LinksOptions::Respond respond) {
  const MutexLock lock(mutex_);
  if (live_ == nullptr) return respond(absl::UnavailableError("this node is not up"));
  live_->OnFetch(reader, std::move(request), std::move(respond));
}

void RayletProcess::RefuseRegistration(absl::Status why) {
  const MutexLock lock(mutex_);
  refused_ = std::move(why);
  registered_or_live_.NotifyOne();
}

void RayletProcess::PostRemoteFrames(ForEachFrame frames) {
  const MutexLock lock(mutex_);
  if (live_ != nullptr) {
    live_->OnRemoteFrames(std::move(frames));
  } else if (!stopped_) {
    early_.push_back(std::move(frames));
  }
}

void RayletProcess::PostNodeLink(NodeNumber node, bool up) {
  const MutexLock lock(mutex_);
  if (live_ != nullptr) live_->OnNodeLink(node, up);
}

void RayletProcess::PostGcsLink(bool up, uint64_t term) {
  const MutexLock lock(mutex_);
  if (live_ != nullptr) live_->OnGcsLink(up, term);
}

void RayletProcess::Stop(const std::string& reason, Nanos grace) {
  if (registered_node_ == nullptr) return;
  registered_node_->Stop(reason, grace);
  {
    const MutexLock lock(mutex_);
    live_ = nullptr;
    stopped_ = true;
  }
  registered_node_.reset();
}

std::map<std::string, uint64_t> RayletProcess::PublishMetrics() {
  return registered_node_->PublishMetrics();
}

}  // namespace sheaf
