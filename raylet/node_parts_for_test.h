// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the parts of a raylet act on, without the raylet: for the tests of one part. For tests only.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fake_clock.h"
#include "base/random.h"
#include "base/testing/recording_transport_for_test.h"
#include "raylet/cluster/fake_node_links.h"
#include "raylet/cluster/gcs_link.h"
#include "raylet/death_register.h"
#include "raylet/node_tables.h"
#include "raylet/raylet_options.h"
#include "raylet/scheduling/lease_queue.h"
#include "raylet/scheduling/resource_ledger.h"
#include "raylet/workers/fake_launcher.h"
#include "raylet/workers/fake_switchboard.h"
#include "raylet/workers/worker_pool.h"
#include "scheduling/cluster_view.h"

namespace sheaf {

struct NodeParts {
  static constexpr NodeNumber kNode = 1;

  NodeParts() {
    options.node = kNode;
    options.totals = Resources::Cpu(2);
  }
  static ClusterView ViewOfOne() {
    ClusterView view;
    view.local = kNode;
    view.here().total = view.here().available = Resources::Cpu(2);
    return view;
  }

  ProcessId Attach(ProcessRole role) {
    const ProcessId process = numbers.Take();
    processes[process].info.role = role;
    processes[process].info.os_pid = 1000 + static_cast<int32_t>(process.process);
    return process;
  }
  // Workers that the pool has started attach and become ready.
  std::vector<ProcessId> WorkersReady() {
    std::vector<ProcessId> workers;
    for (const WorkerSpec& spec : launcher.TakeStarted()) {
      processes[spec.process].info.role = ProcessRole::kWorker;
      processes[spec.process].job = spec.job;
      pool.OnReady(spec.process);
      workers.push_back(spec.process);
    }
    return workers;
  }
  void AddNode(NodeNumber node, const std::string& total) {
    view.nodes[node].total = view.nodes[node].reported = view.nodes[node].available =
        ParseResources(total).value();
  }
  template <class Message>
  Frame Of(FrameKind kind, const Message& message) {  // Valid until the next one.
    body_ = message.SerializeAsString();
    return {kind, body_};
  }
  template <class Message>
  std::vector<Message> Received(ProcessId process, FrameKind kind) {
    return transport.Take<Message>(process, kind);
  }
  // What the GCS was asked since the last time.
  std::vector<proto::GcsRequest> Asked() {
    return transport.Take<proto::GcsRequest>(kGcs, FrameKind::kGcsRequest);
  }
  void Answer(const proto::GcsRequest& request, proto::GcsReply reply = {}) {
    reply.set_sequence(request.sequence());
    gcs.OnReply(reply);
  }

  FakeClock clock;
  RecordingTransport transport;
  FakeNodeLinks links;
  FakeLauncher launcher;
  FakeSwitchboard switchboard;
  ProcessNumbers numbers{kNode};
  SeededRandom random{1};
  metrics::Page page{};
  RayletOptions options;
  AttachedProcesses processes;
  ClusterView view = ViewOfOne();
  DeathRegister deaths{processes, view};
  GcsLink gcs{kNode, clock, transport};
  ResourceLedger ledger{Resources::Cpu(2), {}};
  LeaseQueue queue{{}, ledger, view, random};
  WorkerPool pool{{.cpus = 2}, clock, launcher, numbers};
  WorkersOfLeases worker_of;

 private:
  std::string body_;
};

}  // namespace sheaf
