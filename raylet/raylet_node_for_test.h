// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One raylet with its store, and processes that the test plays by hand. For tests only.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fake_clock.h"
#include "base/random.h"
#include "base/testing/recording_transport_for_test.h"
#include "object_store/arena/arena_memory.h"
#include "object_store/server/store_server.h"
#include "object_store/store_client.h"
#include "raylet/cluster/fake_node_links.h"
#include "raylet/logs/fake_node_logs.h"
#include "raylet/objects/fake_block_source.h"
#include "raylet/queries/fake_task_events.h"
#include "raylet/raylet.h"
#include "raylet/workers/fake_entrypoint_launcher.h"
#include "raylet/workers/fake_launcher.h"
#include "raylet/workers/fake_process_states.h"
#include "raylet/workers/fake_switchboard.h"

namespace sheaf {

// A disk that is always full.
class NoSpill final : public SpillStorage {
 public:
  absl::StatusOr<std::vector<SpillRecord>> Write(
      uint64_t, std::span<const std::span<const std::byte>>) override {
    return absl::ResourceExhaustedError("no disk in this test");
  }
  absl::Status Read(const SpillRecord&, uint64_t, std::span<std::byte>) override {
    return absl::DataLossError("");
  }
  void Remove(uint64_t) override {}
};

class RayletNode {
 public:
  static constexpr NodeNumber kNode = 1;
  static constexpr uint64_t kCapacityBytes = 8 << 20;

  explicit RayletNode(Resources totals = Resources::Cpu(2), Nanos heartbeat_period = kSecond) {
    auto made =
        SegmentArena::Make({.capacity_bytes = kCapacityBytes, .reserve_bytes = 0, .memory = [this] {
                              return memory_;
                            }});
    REQUIRE(made.ok());
    arena_ = *std::move(made);
    store = std::make_unique<StoreServer>(StoreOptions{.node = kNode},
                                          StoreServer::Deps{.clock = clock,
                                                            .transport = transport,
                                                            .arena = *arena_,
                                                            .spill = spill_,
                                                            .loop = executor_,
                                                            .memory = executor_,
                                                            .disk = executor_,
                                                            .observer = store_events_},
                                          kCapacityBytes);
    RayletOptions options;
    options.node = kNode;
    options.totals = totals;
    options.heartbeat_period = heartbeat_period;
    options.host_name = "host";
    options.metrics_url = "http://127.0.0.1:1/metrics";
    raylet = std::make_unique<Raylet>(options, RayletDeps{.clock = clock,
                                                          .transport = transport,
                                                          .links = links,
                                                          .launcher = launcher,
                                                          .switchboard = switchboard,
                                                          .store = *store,
                                                          .store_events = store_events_,
                                                          .random = random_,
                                                          .numbers = numbers,
                                                          .metrics = page_,
                                                          .blocks = blocks,
                                                          .loop = executor_,
                                                          .copier = executor_,
                                                          .entrypoints = entrypoints,
                                                          .task_events = &events,
                                                          .process_states = &states,
                                                          .logs = &logs});
  }

  // --- Processes. ---
  ProcessId Attach(ProcessRole role, ProcessId process = {}) {
    if (process.process == 0) process = numbers.Take();
    AttachInfo info;
    info.role = role;
    info.os_pid = 1000 + static_cast<int32_t>(process.process);
    if (role != ProcessRole::kTool) info.segment = MakeProcessSegment();
    segments_[process] = info.segment;
    raylet->OnAttached(process, info);
    return process;
  }
  // A driver whose job the GCS has registered.
  ProcessId Driver() {
    const ProcessId driver = Attach(ProcessRole::kDriver);
    Send(driver, FrameKind::kJobStart, proto::JobStart());
    AnswerGcs();
    return driver;
  }
  // All workers that were started attach and become ready.
  void WorkersReady() {
    for (std::vector<WorkerSpec> specs = launcher.TakeStarted(); !specs.empty();
         specs = launcher.TakeStarted()) {
      for (const WorkerSpec& spec : specs) {
        Attach(ProcessRole::kWorker, spec.process);
        Send(spec.process, FrameKind::kWorkerReady, proto::WorkerReady());
      }
    }
  }
  void Exit(ProcessId process, proto::Death::Cause cause = proto::Death::SIGNALLED, int code = 9) {
    clients_.erase(process);
    proto::Death death;
    death.set_cause(cause);
    death.set_code(code);
    raylet->OnExited(process, death);
    raylet->OnSocketClosed(process);
  }
  // The launcher has done what it was told.
  void ExitKilled() {
    for (const auto& [process, reason] : std::exchange(launcher.killed, {})) {
      Exit(process, proto::Death::KILLED, 0);
    }
  }

  metrics::Page& page() { return page_; }

  // --- Frames. ---
  template <class Message>
  void Send(ProcessId from, FrameKind kind, const Message& message) {
    const std::string body = message.SerializeAsString();
    raylet->OnFrame(from, {kind, body});
  }
  // What `process` got of one kind since it was last asked for that kind.
  template <class Message>
  std::vector<Message> Received(ProcessId process, FrameKind kind) {
    Pump(process);
    std::vector<Message> messages;
    std::vector<SentFrame> others;
    for (SentFrame& frame : inbox_[process]) {
      if (frame.kind == kind) {
        messages.push_back(frame.As<Message>());
      } else {
        others.push_back(std::move(frame));
      }
    }
    inbox_[process] = std::move(others);
    return messages;
  }
  void Advance(Nanos duration, Nanos step = 100 * kMillisecond) {
    for (; duration > 0; duration -= step) {
      clock.Advance(std::min(step, duration));
      raylet->Tick();
      raylet->EndTurn();
    }
  }

  // --- The GCS: agrees to everything. ---
  void AnswerGcs() {
    for (const proto::GcsRequest& request :
         transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest)) {
      gcs_requests.push_back(request);
      if (request.sequence() == 0) continue;
      proto::GcsReply reply;
      reply.set_client(request.client());
      reply.set_sequence(request.sequence());
      if (request.has_subscribe()) {  // This node is alone.
        reply.mutable_snapshot()->set_subscription(request.subscribe().subscription());
      }
      if (request.has_register_job()) {
        reply.mutable_job_registered()->set_job(++last_job_);
        reply.mutable_job_registered()->set_name_space("space");
      }
      if (request.has_register_group()) {
        reply.mutable_group()->set_group_id(request.register_group().group_id());
        reply.mutable_group()->set_name(request.register_group().name());
        reply.mutable_group()->set_placement_number(1);
      }
      const std::string body = reply.SerializeAsString();
      raylet->OnGcsFrame({FrameKind::kGcsReply, body});
    }
  }
  void GcsSays(const proto::GcsEvent& event) {
    const std::string body = event.SerializeAsString();
    raylet->OnGcsFrame({FrameKind::kGcsEvent, body});
  }
  // The requests so far that hold `body`.
  std::vector<proto::GcsRequest> Asked(proto::GcsRequest::BodyCase body) {
    AnswerGcs();
    std::vector<proto::GcsRequest> found;
    for (const proto::GcsRequest& request : gcs_requests) {
      if (request.body_case() == body) found.push_back(request);
    }
    return found;
  }

  // --- Other nodes. ---
  void NodeBecomes(NodeNumber number, proto::NodeInfo::State state, const Resources& total = {}) {
    proto::GcsEvent event;
    event.set_client(RayletOf(kNode).packed());
    proto::Delta& delta = *event.mutable_delta();
    delta.set_subscription(1);
    delta.set_number(++last_delta_);
    proto::NodeInfo& info = *delta.mutable_change()->mutable_node();
    info.set_node(number);
    info.set_state(state);
    total.ToMap(*info.mutable_total()->mutable_amounts());
    *info.mutable_available() = info.total();
    GcsSays(event);
  }
  void NodesHaveFree(const std::string& loads) {
    proto::GcsEvent event;
    event.set_client(RayletOf(kNode).packed());
    event.mutable_delta()->set_subscription(1);
    event.mutable_delta()->set_number(++last_delta_);
    event.mutable_delta()->set_loads(loads);
    GcsSays(event);
  }
  void AddNode(NodeNumber number, const std::string& total) {
    AnswerGcs();
    NodeBecomes(number, proto::NodeInfo::ALIVE, ParseResources(total).value());
  }
  template <class Message>
  void FromNode(NodeNumber number, FrameKind kind, const Message& message) {
    const std::string body = message.SerializeAsString();
    raylet->OnRemoteFrame(RayletOf(number), RayletOf(kNode), Lane::kControl, {kind, body});
  }

  // --- Leases. ---
  void Demand(ProcessId owner, uint64_t key, uint32_t wanted, double cpus = 1, bool actor = false) {
    proto::LeaseDemand demand;
    demand.set_key(key);
    demand.set_wanted(wanted);
    demand.set_backlog(wanted);
    Resources::Cpu(cpus).ToMap(*demand.mutable_spec()->mutable_resources()->mutable_amounts());
    demand.mutable_spec()->set_name("f");
    if (actor) {
      demand.mutable_spec()->set_actor(true);
      demand.mutable_spec()->set_actor_id(ActorId::Make(owner, key).Binary());
    }
    Send(owner, FrameKind::kLeaseDemand, demand);
  }
  // Demands one lease and brings up the worker for it.
  proto::LeaseGrant Lease(ProcessId owner, uint64_t key = 1, double cpus = 1, bool actor = false) {
    Demand(owner, key, 1, cpus, actor);
    WorkersReady();
    const auto grants = Received<proto::LeaseGrant>(owner, FrameKind::kLeaseGrant);
    REQUIRE(grants.size() == 1);
    return grants[0];
  }
  void Return(ProcessId owner, uint64_t lease, bool discard = false) {
    proto::LeaseReturn message;
    message.set_lease(lease);
    message.set_discard_worker(discard);
    Send(owner, FrameKind::kLeaseReturn, message);
  }
  void Drained(ProcessId from, ProcessId dead) {
    proto::PeerDrained message;
    message.set_process(dead.packed());
    Send(from, FrameKind::kPeerDrained, message);
  }

  // --- Objects. ---
  void Put(ProcessId process, ObjectId id, const std::string& bytes,
           const std::vector<ObjectId>& nested = {}) {
    StoreClient& client = Client(process);
    ObjectSpec spec;
    spec.id = id;
    spec.size_bytes = bytes.size();
    spec.nested = nested;
    absl::StatusOr<MutableBuffer> buffer = client.Create(spec);
    for (int i = 0; i < 10 && !buffer.ok(); ++i) {
      raylet->EndTurn();
      Pump(process);
      buffer = client.Create(spec);
    }
    REQUIRE(buffer.ok());
    std::memcpy(buffer->data(), bytes.data(), bytes.size());
    client.Seal(*std::move(buffer));
    client.Flush();
    raylet->EndTurn();
  }
  void Refs(ProcessId process, uint64_t sequence, const std::vector<ObjectId>& held,
            const std::vector<ObjectId>& dropped = {}) {
    proto::RefsReport report;
    report.set_sequence(sequence);
    for (const ObjectId id : held) AppendId(report.mutable_held_ids(), id);
    for (const ObjectId id : dropped) AppendId(report.mutable_dropped_ids(), id);
    Send(process, FrameKind::kRefsReport, report);
  }
  std::vector<bool> Adopted(ProcessId process, const std::vector<ObjectId>& ids) {
    proto::AdoptedQuery query;
    query.set_request(7);
    for (const ObjectId id : ids) AppendId(query.mutable_ids(), id);
    Send(process, FrameKind::kAdoptedQuery, query);
    const auto answers = Received<proto::AdoptedAnswer>(process, FrameKind::kAdoptedAnswer);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].request() == 7);
    return {answers[0].adopted().begin(), answers[0].adopted().end()};
  }

  FakeClock clock;
  RecordingTransport transport;
  FakeNodeLinks links;
  FakeBlockSource blocks;
  FakeTaskEvents events;
  FakeProcessStates states;
  FakeNodeLogs logs;
  FakeEntrypointLauncher entrypoints;
  FakeLauncher launcher;
  FakeSwitchboard switchboard;
  ProcessNumbers numbers{kNode};
  std::vector<proto::GcsRequest> gcs_requests;

 private:
  struct UpChannel final : Channel {
    UpChannel(RayletNode& n, ProcessId p) : node(n), self(p) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      const std::string body = std::string(head) + std::string(tail);
      node.raylet->OnFrame(self, {kind, body});
    }
    size_t queued_bytes() const override { return 0; }
    RayletNode& node;
    const ProcessId self;
  };
  struct ClientEnd {
    std::unique_ptr<UpChannel> up;
    std::unique_ptr<StoreClient> store;
  };

  static std::shared_ptr<Mapping> MakeProcessSegment() {
    const auto fd = MakeSegment("test-process", kProcessSegmentBytes);
    REQUIRE(fd.ok());
    auto mapping = Mapping::Map(fd->get(), 0, kProcessSegmentBytes, Access::kReadWrite);
    REQUIRE(mapping.ok());
    return std::make_shared<Mapping>(*std::move(mapping));
  }
  StoreClient& Client(ProcessId process) {
    ClientEnd& end = clients_[process];
    if (end.store == nullptr) {
      end.up = std::make_unique<UpChannel>(*this, process);
      auto opened = StoreClient::Open(process, UniqueFd(dup(arena_->fd())), segments_.at(process),
                                      *end.up, [](ObjectId, absl::StatusOr<ObjectLocation>) {});
      REQUIRE(opened.ok());
      end.store = *std::move(opened);
    }
    return *end.store;
  }
  void Pump(ProcessId process) {
    for (SentFrame& frame : transport.Take(process)) {
      const auto client = clients_.find(process);
      if (IsStoreFrame(frame.kind)) {
        if (client != clients_.end()) client->second.store->OnFrame(frame.kind, frame.body);
      } else {
        inbox_[process].push_back(std::move(frame));
      }
    }
  }

  MachineMemory memory_;
  std::unique_ptr<SegmentArena> arena_;
  NoSpill spill_;
  InlineExecutor executor_;
  StoreEvents store_events_;
  SeededRandom random_{1};
  metrics::Page page_{};
  JobNumber last_job_ = 0;
  uint64_t last_delta_ = 0;
  std::map<ProcessId, std::shared_ptr<Mapping>> segments_;
  std::map<ProcessId, std::vector<SentFrame>> inbox_;

 public:
  std::unique_ptr<StoreServer> store;
  std::unique_ptr<Raylet> raylet;

 private:
  std::map<ProcessId, ClientEnd> clients_;  // Last: their destructors send frames.
};

}  // namespace sheaf
