// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The core of one process, kSelf, on a node with a real store and a raylet and peers that the test
// plays by hand. For tests only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "object_store/store_node_for_test.h"
#include "worker/core/process_core.h"
#include "worker/executor/fake_execution_host.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {

class CoreNode final : public FrameHost, public FakeExecutionHost, public Transport {
 public:
  explicit CoreNode(uint64_t store_bytes = 16 * kMiB)
      : store(store_bytes, {.node = kSelf.node}), to_store_(*this) {
    const auto segment = store.AttachOther(kSelf, [this](FrameKind kind, std::string_view body) {
      core->dispatch.OnFrame(kRaylet, {kind, body});
    });
    auto opened = ProcessCore::Open({.self = kSelf,
                                     .clock = store.clock,
                                     .rings = *this,
                                     .ring_self = [this](Lane) { ++own_frames; },
                                     .segment = segment,
                                     .frames = *this,
                                     .executions = *this,
                                     .limits = {}},
                                    UniqueFd(dup(store.arena->fd())));
    REQUIRE(opened.ok());
    core = *std::move(opened);
  }

  // The other process of the node, with a client of its own.
  ProcessId Other() {
    if (!store.clients.contains(kWorker)) store.Attach(kWorker.process);
    return kWorker;
  }
  template <class Message>
  void FromRaylet(FrameKind kind, const Message& message) {
    core->dispatch.OnFrame(kRaylet, {kind, message.SerializeAsString()});
  }
  template <class Message>
  Message Taken(FrameKind kind) {  // The oldest frame of `kind` that was not taken yet.
    Message message;
    REQUIRE(message.ParseFromString(sent.Take(kind).body));
    return message;
  }
  // A call comes from kWorker, whose arguments are `stored`.
  void Push(const std::vector<StoreArgument>& stored, const proto::TaskTemplate& spec = {}) {
    std::string arguments;
    WireWriter out(arguments);
    for (const StoreArgument& argument : stored) {
      out.Struct(ArgumentHead{ArgumentKind::kStore, sizeof argument});
      out.Struct(argument);
    }
    PushTaskHead head{};
    head.task_sequence_bits = head.push = ++pushes_;
    head.flags = kTemplateInline;
    head.argument_bytes = static_cast<uint32_t>(arguments.size());
    core->executor.OnPush(kWorker,
                          std::string(AsBytes(head)) + arguments + spec.SerializeAsString());
  }
  // The same, and starts if it may.
  std::shared_ptr<CallExecution> Call(const std::vector<StoreArgument>& stored,
                                      const proto::TaskTemplate& spec = {}) {
    Push(stored, spec);
    return core->executor.Take(core->executor.default_group());
  }
  // An object of kWorker in the store; and one of another node, until the raylet brings a copy.
  StoreArgument Stored(uint64_t sequence, std::string_view bytes) {
    const ObjectId id = IdOf(kWorker, sequence);
    const auto location = store.Put(Other(), id, bytes);
    REQUIRE(location.ok());
    store.Flush();
    return {id, *location, bytes.size()};
  }
  static StoreArgument Elsewhere(uint64_t sequence, uint64_t size) {
    return {IdOf(kWorker, sequence), {kSelf.node + 1, 0, 1, 0}, size};
  }
  void Bring(ObjectId id, std::string_view bytes) {
    const auto copy = store.Put(Other(), id, bytes);
    REQUIRE(copy.ok());
    const LocatedObject located{id, *copy, LookupOutcome::kFound, 0};
    core->dispatch.OnFrame(kRaylet, {kStoreLocated, AsBytes(located)});
  }

  // Transport: the rings. What the store understands goes to it.
  Channel& To(ProcessId peer) override {
    return peer == kRaylet ? static_cast<Channel&>(to_store_) : sent.To(peer);
  }
  void Forget(ProcessId) override {}
  // FrameHost
  void OnGroupsChanged() override {}
  void OnRunningCancelled(TaskId) override {}
  void OnNewRing(const proto::NewRing&) override {}
  void DrainRings(ProcessId) override {}
  void OnHostFrame(const Frame&) override {}
  // ExecutionHost
  void Ended(CallExecution* call) override { core->executor.NoteEnded(call); }

  StoreNode store;
  RecordingTransport sent;  // All other frames.
  int own_frames = 0;       // Of the core for itself.
  std::unique_ptr<ProcessCore> core;

 private:
  class ToStore final : public Channel {
   public:
    explicit ToStore(CoreNode& node) : node_(node) {}
    void Send(Lane lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      if (IsStoreFrame(kind) && kind != kStoreFetch && kind != kStorePart && kind != kStoreHold) {
        node_.store.Queue(kSelf, kind, std::string(head) + std::string(tail));
      } else {
        node_.sent.To(kRaylet).Send(lane, kind, head, tail);
      }
    }
    size_t queued_bytes() const override { return 0; }

   private:
    CoreNode& node_;
  };

  ToStore to_store_;
  uint64_t pushes_ = 0;
};

}  // namespace sheaf
