// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/gcs_host.h"

namespace sheaf::sim {
namespace {

constexpr Nanos kTickPeriod = 100 * kMillisecond;
constexpr Nanos kResendRegistration = 500 * kMillisecond;
constexpr Nanos kPlantedStepBack = 20 * kSecond;
constexpr Nanos kPlantedStepAt = 3 * kSecond;
constexpr Nanos kSlowestDisk = 30 * kMillisecond;
constexpr int kPlantedFailures = 12;  // Four in a row, and some for spares in between.
constexpr MachineMemory kMachine{.limit_bytes = int64_t{16} << 30,
                                 .available_bytes = int64_t{8} << 30};

}  // namespace

Nanos Node::RayletClock::Now() const {
  const Nanos now = world_.queue.now();
  if (world_.plant != Plant::kBackwardClock || now < kPlantedStepAt) return now;
  ++world_.planted;
  return std::max<Nanos>(now - kPlantedStepBack, kMillisecond);
}

// The raylet's side of the rings. A frame to a process that is not attached goes nowhere.
class Node::RayletTransport final : public Transport {
 public:
  RayletTransport(World& world, GcsHost& gcs, Network& network, NodeLinks& links, NodeNumber node,
                  Endpoint& endpoint)
      : node_(node),
        gcs_(gcs, RayletOf(node)),
        remote_(node, links),
        rings(world, network, RayletOf(node), endpoint,
              [this](ProcessId peer) { rings.Forget(peer); }) {}
  Channel& To(ProcessId peer) override {
    if (peer == kGcs) return gcs_;
    return peer.node == node_ ? rings.To(peer) : remote_.To(peer);
  }
  void Forget(ProcessId peer) override {
    if (peer.node == node_) {
      rings.Forget(peer);
    } else {
      remote_.Forget(peer);
    }
  }

 private:
  class ToGcs final : public Channel {
   public:
    ToGcs(GcsHost& gcs, ProcessId self) : gcs_(gcs), self_(self) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      std::string body(head);
      body.append(tail);
      gcs_.SendToGcs(self_, kind, std::move(body));
    }
    size_t queued_bytes() const override { return 0; }

   private:
    GcsHost& gcs_;
    const ProcessId self_;
  };
  const NodeNumber node_;
  ToGcs gcs_;
  RemoteChannels remote_;

 public:
  LocalTransport rings;
};

Node::Node(World& world, GcsHost& gcs, InterNode& between, const Programs& programs,
           NodeOptions options)
    : world_(world),
      gcs_(gcs),
      between_(between),
      programs_(programs),
      options_(std::move(options)),
      nonce_(absl::StrCat("node ", 1'000'000 + options_.index, "....")),
      network_(world),
      clock_(world),
      loop_(world.queue, world.random, 20 * kMicrosecond),
      memory_(world.queue, world.random, kMillisecond),
      disk_(world.queue, world.random, world.small_stores ? kSlowestDisk : kMillisecond),
      spill_(world),
      losses_(world, store_events_),
      raylet_random_(world.random.Next()),
      page_(std::make_unique<metrics::Page>()) {
  gcs_.Connect(*this);
}

Node::~Node() {
  processes_.clear();
  raylet_.reset();
  store_.reset();
}

void Node::Boot() { Register(); }

void Node::Vanish() {
  if (crashed_) return;
  crashed_ = true;
  alive = false;
  world_.trace.Note(world_.now(), RayletOf(number_), "vanishes");
  for (auto& [id, process] : processes_) {
    if (!process->alive) continue;
    process->Die();
    world_.oracle.ProcessDied(id);
  }
  world_.oracle.NodeDied(number_);
  between_.Crashed(number_);
}

void Node::Stop(Nanos until) {
  paused_until = until;
  for (auto& [id, process] : processes_) process->paused_until = until;
}

void Node::End() {
  world_.Count(Fault::kNodeFenced);
  Vanish();
}

void Node::OnGcsLink(bool heard, uint64_t term) {
  if (!up() || heard == gcs_link_) return;
  gcs_link_ = heard;
  OnLoop(0, [this, heard, term] {
    hears_gcs_ = heard;
    raylet_->OnGcsLink(heard, term);
  });
}

void Node::OnNodeLink(NodeNumber about, bool heard) {
  if (up()) OnLoop(0, [this, about, heard] { raylet_->OnNodeLink(about, heard); });
}

void Node::ReportUnheard(NodeNumber about) {
  if (!hears_gcs_) return;  // It says so when the GCS is back.
  if (world_.Planted(Plant::kNeitherEnds)) return;
  if (world_.Planted(Plant::kBothEnd)) return End();
  proto::GcsRequest request;
  request.set_client(RayletOf(number_).packed());
  request.mutable_unregister_node()->set_node(about);
  gcs_.SendToGcs(RayletOf(number_), FrameKind::kGcsRequest, request.SerializeAsString());
}

void Node::Register() {
  if (up() || crashed_) return;
  proto::GcsRequest request;
  const ProcessId nameless{0, static_cast<uint32_t>(options_.index)};
  request.set_client(nameless.packed());
  request.set_sequence(registration_);
  proto::RegisterNode& body = *request.mutable_register_node();
  body.set_nonce(nonce_.substr(0, 16));
  body.set_version("simulated");
  body.set_host_name("simulated");
  options_.totals.ToMap(*body.mutable_total()->mutable_amounts());
  (*body.mutable_labels())["half"] = absl::StrCat(options_.index % 2);
  gcs_.SendToGcs(nameless, FrameKind::kGcsRequest, request.SerializeAsString());
  world_.queue.After(kResendRegistration, [this] { Register(); });
}

void Node::OnGcsFrame(ProcessId to, FrameKind kind, const std::string& body) {
  if (up()) {
    if (to.node != number_) return;
    if (paused_until > world_.now()) {
      OnLoop(0, [this, kind, body] { raylet_->OnGcsFrame({kind, body}); });
      return;
    }
    raylet_->OnGcsFrame({kind, body});
    EndTurn();
    return;
  }
  proto::GcsReply reply;
  if (kind != FrameKind::kGcsReply || !reply.ParseFromString(body)) return;
  if (reply.error() != 0 && reply.sequence() == registration_) ++registration_;
  // It was registered, did not hear of that in time, and is started anew.
  if (static_cast<ErrorKind>(reply.error()) == ErrorKind::kNodeDied) nonce_[15]++;
  if (!reply.has_node_registered()) return;
  const proto::NodeRegistered& registered = reply.node_registered();
  MakeRaylet(registered.node(), registered.term(), registered.heartbeat_period_ns());
}

void Node::MakeRaylet(NodeNumber number, uint64_t term, Nanos heartbeat_period) {
  number_ = number;
  auto made =
      SegmentArena::Make({.capacity_bytes = options_.store_bytes, .reserve_bytes = 0, .memory = [] {
                            return kMachine;
                          }});
  SHEAF_CHECK(made.ok(), "no memory for the arena of the simulated node");
  arena_ = *std::move(made);
  network_.Attach(RayletOf(number), this);
  links_ = std::make_unique<SimLinks>(between_, number);
  blocks_ = std::make_unique<SimBlocks>(between_, number);
  transport_ = std::make_unique<RayletTransport>(world_, gcs_, network_, *links_, number, *this);
  numbers_ = std::make_unique<ProcessNumbers>(number);
  StoreOptions store;
  store.node = number;
  store_ = std::make_unique<StoreServer>(
      store,
      StoreServer::Deps{clock_, *transport_, *arena_, spill_, loop_, memory_, disk_, losses_},
      options_.store_bytes);
  RayletOptions raylet;
  raylet.node = number;
  raylet.totals = options_.totals;
  raylet.labels["half"] = absl::StrCat(options_.index % 2);
  raylet.host_name = "simulated";
  raylet.version = "simulated";
  raylet.gcs_term = term;
  raylet.heartbeat_period = heartbeat_period;
  if (options_.busy != nullptr) {
    events_ = std::make_unique<BusyEvents>(
        world_, number, *options_.busy,
        [this](Nanos delay, std::function<void()> work) { OnLoop(delay, std::move(work)); });
  }
  raylet_ = std::make_unique<Raylet>(
      raylet,
      RayletDeps{clock_, *transport_, *links_, *this, *this, *store_, store_events_, raylet_random_,
                 *numbers_, *page_, *blocks_, loop_, memory_, *this, events_.get()});
  between_.Attach(number, this);
  ScheduleTick();
}

// --- The loop. ---

void Node::OnLoop(Nanos delay, std::function<void()> work) {
  world_.queue.After(delay, [this, work = std::move(work)] {
    if (crashed_) return;
    if (paused_until > world_.now()) {
      OnLoop(paused_until - world_.now(), work);
      return;
    }
    work();
    EndTurn();
  });
}

void Node::OnFrame(ProcessId from, const Frame& frame) {
  if (frame.kind == FrameKind::kWorkerReady) {
    Process& worker = *Find(from);
    worker.said_ready = true;
    world_.oracle.WorkerReady(number_, worker.job_driver);
  }
  raylet_->OnFrame(from, frame);
}

void Node::OnRoom(ProcessId reader) { transport_->rings.Flush(reader); }

void Node::EndTurn() {
  transport_->rings.BuryForgotten();
  if (!std::exchange(turn_scheduled_, true)) {
    world_.queue.After(world_.Between(0, 10 * kMicrosecond), [this] {
      turn_scheduled_ = false;
      if (crashed_) return;
      raylet_->EndTurn();
      transport_->rings.BuryForgotten();
    });
  }
  const Nanos next = raylet_->NextTick();
  if (next != kForever && next < tick_at_) ScheduleTick();
}

void Node::ScheduleTick() {
  const Nanos next = raylet_->NextTick();
  tick_at_ = world_.now() + kTickPeriod;
  if (next != kForever) tick_at_ = std::clamp(next, world_.now() + kMillisecond / 4, tick_at_);
  world_.queue.At(tick_at_, [this, number = ++tick_number_] {
    if (number != tick_number_ || crashed_) return;
    if (raylet_->fenced()) return End();  // Declared dead: its processes end with it.
    if (paused_until > world_.now()) {
      tick_at_ = paused_until;
    } else {
      raylet_->Tick();
      transport_->rings.BuryForgotten();
    }
    ScheduleTick();
  });
}

// --- Processes. ---

Process* Node::Find(ProcessId process) {
  auto found = processes_.find(process);
  return found == processes_.end() ? nullptr : found->second.get();
}

std::vector<Process*> Node::Living(ProcessRole role) {
  std::vector<Process*> living;
  for (auto& [id, process] : processes_) {
    if (process->alive && process->role == role) living.push_back(process.get());
  }
  return living;
}

Process& Node::Attach(ProcessId id, ProcessRole role, ProcessId job_driver) {
  auto fd = MakeSegment("simulated-process", kProcessSegmentBytes);
  SHEAF_CHECK(fd.ok(), "no memory for the segment of a simulated process");
  auto mapping = Mapping::Map(fd->get(), 0, kProcessSegmentBytes, Access::kReadWrite);
  SHEAF_CHECK(mapping.ok(), "no memory for the segment of a simulated process");
  auto segment = std::make_shared<Mapping>(*std::move(mapping));
  network_.Join(RayletOf(number_), id);
  transport_->rings.AddRing(id);
  attached_[id] = {role, segment, {}, false};
  auto& process = processes_[id];
  process = std::make_unique<Process>(world_, network_, *this, id, role, segment, programs_);
  process->job_driver = job_driver;
  world_.oracle.Joins(id, job_driver);
  AttachInfo info;
  info.role = role;
  info.os_pid = 1000 + static_cast<int32_t>(id.process);
  info.segment = segment;
  world_.trace.Note(world_.now(), id, "attaches");
  raylet_->OnAttached(id, info);
  EndTurn();
  world_.queue.After(world_.Between(10 * kMicrosecond, kMillisecond),
                     [process = process.get()] { process->Begin(); });
  return *process;
}

ProcessId Node::StartDriver() {
  const ProcessId id = numbers_->Take();
  Attach(id, ProcessRole::kDriver, id);
  return id;
}

void Node::AddJob(JobNumber job, ProcessId driver, const proto::JobStart&) { jobs_[job] = driver; }
void Node::RemoveJob(JobNumber job) { jobs_.erase(job); }

ProcessId Node::DriverOf(JobNumber job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? ProcessId() : found->second;
}

absl::Status Node::Start(const WorkerSpec& spec) {
  if (!jobs_.contains(spec.job)) return absl::NotFoundError("no such job");
  starting_[spec.process] = spec.job;
  ++started_workers_;
  const Nanos took = world_.random.OneIn(10) ? world_.Between(kMillisecond, 200 * kMillisecond)
                                             : world_.Between(kMillisecond, 5 * kMillisecond);
  // Never many in a row: after a few the raylet gives up on such workers, as it should.
  int& failed = failed_starts_[{spec.job, spec.environment}];
  const uint64_t one_in = world_.faults.start_failure_one_in;
  const bool fails = one_in != 0 && failed < 2 && world_.random.OneIn(one_in);
  failed = fails ? failed + 1 : 0;
  if (false_failures_ == 0 && world_.Planted(Plant::kFalseFailures, 10))
    false_failures_ = kPlantedFailures;
  const bool seems_to_fail = false_failures_ > 0 && false_failures_-- > 0;
  OnLoop(took, [this, process = spec.process, fails, seems_to_fail] {
    if (!starting_.contains(process)) return;  // Killed on its way.
    const ProcessId driver = DriverOf(starting_.at(process));
    starting_.erase(process);
    if (!fails && !seems_to_fail) {
      Attach(process, ProcessRole::kWorker, driver);
      return;
    }
    if (fails) {
      world_.Count(Fault::kStartFailure);
      world_.oracle.WorkerStartFailed(number_, driver);
    }
    proto::Death death;
    death.set_cause(proto::Death::START_FAILED);
    raylet_->OnExited(process, death);
  });
  return absl::OkStatus();
}

void Node::Kill(ProcessId id, const std::string& reason) {
  OnLoop(world_.Between(20 * kMicrosecond, 3 * kMillisecond), [this, id, reason] {
    if (starting_.erase(id) != 0) {
      proto::Death death;
      death.set_cause(proto::Death::KILLED);
      raylet_->OnExited(id, death);
      return;
    }
    Process* process = Find(id);
    if (process == nullptr || !process->alive) return;
    if (world_.Planted(Plant::kZombie, 2)) {
      proto::Death death;
      death.set_cause(proto::Death::KILLED);
      network_.Drain(id, RayletOf(number_));
      raylet_->OnExited(id, death);
      return;
    }
    Crash(*process, proto::Death::KILLED, 0);
  });
}

void Node::Crash(Process& process, proto::Death::Cause cause, int code) {
  if (!process.alive) return;
  world_.trace.Note(world_.now(), process.self, "dies",
                    process.role == ProcessRole::kDriver ? "(driver)" : "(worker)");
  process.Die();
  world_.oracle.ProcessDied(process.self);
  proto::Death death;
  death.set_cause(cause);
  death.set_code(code);
  ReportDeath(process.self, std::move(death));
}

void Node::Leave(Process& process) { Crash(process, proto::Death::EXITED, 0); }

// The end of the process and that of its socket show separately, in any order.
void Node::ReportDeath(ProcessId id, proto::Death death) {
  if (!world_.Planted(Plant::kSilentDeath, 4)) {
    OnLoop(world_.Between(10 * kMicrosecond, 5 * kMillisecond),
           [this, id, death = std::move(death)] {
             network_.Drain(id, RayletOf(number_));
             const Process& process = *Find(id);
             if (process.role == ProcessRole::kWorker && !process.said_ready)
               world_.oracle.WorkerStartFailed(number_, process.job_driver);
             raylet_->OnExited(id, death);
           });
  } else {
    return;  // Nor does its socket tell.
  }
  Nanos socket = world_.Between(10 * kMicrosecond, 5 * kMillisecond);
  if (world_.faults.late_socket_one_in != 0 &&
      world_.random.OneIn(world_.faults.late_socket_one_in)) {
    world_.Count(Fault::kLateSocket);
    socket = world_.Between(kMillisecond, 3 * kSecond);
  }
  OnLoop(socket, [this, id] {
    auto found = attached_.find(id);
    if (found == attached_.end() || std::exchange(found->second.socket_closed, true)) return;
    network_.Drain(id, RayletOf(number_));
    raylet_->OnSocketClosed(id);
  });
}

// --- Switchboard. ---

absl::Status Node::Connect(ProcessId a, ProcessId b) {
  auto one = attached_.find(a);
  auto other = attached_.find(b);
  for (const auto& end : {one, other}) {
    if (end == attached_.end() || end->second.socket_closed)
      return absl::NotFoundError("not attached");
  }
  auto& peers = one->second.peers;
  if (a == b || std::find(peers.begin(), peers.end(), b) != peers.end()) return absl::OkStatus();
  peers.push_back(b);
  other->second.peers.push_back(a);
  network_.Join(a, b);
  for (const auto& [to, peer] : {std::pair(a, b), std::pair(b, a)}) {
    proto::NewRing ring;
    ring.set_peer(peer.packed());
    SendMessage(transport_->To(to), FrameKind::kNewRing, ring);
  }
  return absl::OkStatus();
}

void Node::Remove(ProcessId process) {
  auto found = attached_.find(process);
  if (found == attached_.end()) return;
  for (const ProcessId peer : found->second.peers) {
    if (auto other = attached_.find(peer); other != attached_.end())
      std::erase(other->second.peers, process);
  }
  attached_.erase(found);
}

std::pair<LeaseNumber, uint64_t> Node::Started(ProcessId process, ProcessId caller) {
  auto found = attached_.find(process);
  if (found == attached_.end()) return {0, 0};
  const auto* page = reinterpret_cast<const ProcessPage*>(found->second.segment->data());
  if (world_.Planted(Plant::kForgottenStart)) return {page->started_lease.load(), 0};
  return {page->started_lease.load(), page->StartedOf(caller)};
}

std::vector<ProcessId> Node::PeersOf(ProcessId process) {
  auto found = attached_.find(process);
  return found == attached_.end() ? std::vector<ProcessId>() : found->second.peers;
}

}  // namespace sheaf::sim
