// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// One node in one thread: the real StoreServer and StoreClients over a real arena, joined by
// queues, under a clock that the test moves. For tests only.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "base/executor.h"
#include "base/fake_clock.h"
#include "base/testing/scratch_directory_for_test.h"
#include "object_store/arena/arena_memory.h"
#include "object_store/server/spill.h"
#include "object_store/server/store_server.h"
#include "object_store/store_client.h"

namespace sheaf {

inline constexpr NodeNumber kTestNode = 7;
inline constexpr uint64_t kMiB = 1 << 20;

inline ObjectId IdOf(ProcessId owner, uint64_t sequence) {
  return ObjectId::Make(owner, sequence, 1);
}

// Bytes that depend on `seed` at every place.
inline std::string Pattern(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < size; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, std::min<size_t>(8, size - i));
  }
  return bytes;
}

inline std::shared_ptr<Mapping> MakeProcessSegment() {
  const auto fd = MakeSegment("test-process", kProcessSegmentBytes);
  REQUIRE(fd.ok());
  auto mapping = Mapping::Map(fd->get(), 0, kProcessSegmentBytes, Access::kReadWrite);
  REQUIRE(mapping.ok());
  return std::make_shared<Mapping>(*std::move(mapping));
}

// Remembers what the raylet would hear.
class RecordingObserver final : public StoreObserver {
 public:
  void OnObjectSealed(const StoreObjectInfo& object) override { sealed.push_back(object); }
  void OnObjectGone(const StoreObjectInfo& object, bool was_lost) override {
    gone.push_back(object.id);
    if (was_lost) lost.push_back(object.id);
  }
  void OnStoreViolation(ProcessId process, const std::string& what) override {
    violations.emplace_back(process, what);
  }
  std::vector<StoreObjectInfo> sealed;
  std::vector<ObjectId> gone;
  std::vector<ObjectId> lost;
  std::vector<std::pair<ProcessId, std::string>> violations;
};

class StoreNode final : public Transport {
 public:
  struct Client {
    std::unique_ptr<StoreClient> store;
    std::shared_ptr<Mapping> segment;
    std::function<void(FrameKind, std::string_view)> receive;  // Empty once it is dead.
    std::map<ObjectId, absl::StatusOr<ObjectLocation>> located;
    std::vector<FrameKind> received;
    bool stopped = false;  // Frames for it wait.
  };

  explicit StoreNode(uint64_t capacity_bytes, StoreOptions options = {},
                     uint64_t min_free_disk_bytes = 0) {
    if (options.node == 0) options.node = kTestNode;
    node_ = options.node;
    auto made =
        SegmentArena::Make({.capacity_bytes = capacity_bytes, .reserve_bytes = 0, .memory = [this] {
                              return memory;
                            }});
    REQUIRE(made.ok());
    arena = *std::move(made);
    auto opened = FileSpill::Open(
        {.directory = directory.path() + "/spill", .min_free_bytes = min_free_disk_bytes});
    REQUIRE(opened.ok());
    spill = *std::move(opened);
    server = std::make_unique<StoreServer>(options,
                                           StoreServer::Deps{.clock = clock,
                                                             .transport = *this,
                                                             .arena = *arena,
                                                             .spill = *spill,
                                                             .loop = loop,
                                                             .memory = memory_thread,
                                                             .disk = disk,
                                                             .observer = observer},
                                           capacity_bytes);
    Settle();
  }

  ProcessId Attach(uint32_t number) {
    const ProcessId id{node_, number};
    Client& client = clients[id];
    client.segment = MakeProcessSegment();
    server->OnProcessAttached(id, client.segment);
    auto up = std::make_unique<UpChannel>(*this, id);
    auto opened =
        StoreClient::Open(id, UniqueFd(dup(arena->fd())), client.segment, *up,
                          [&client](ObjectId object, absl::StatusOr<ObjectLocation> where) {
                            client.located.insert_or_assign(object, std::move(where));
                          });
    REQUIRE(opened.ok());
    client.store = *std::move(opened);
    client.receive = [store = client.store.get()](FrameKind kind, std::string_view body) {
      store->OnFrame(kind, body);
    };
    up_[id] = std::move(up);
    return id;
  }
  // A process of which the test makes the client, with the segment that this gives. What it sends
  // comes by Queue.
  std::shared_ptr<Mapping> AttachOther(ProcessId id,
                                       std::function<void(FrameKind, std::string_view)> receive) {
    Client& client = clients[id];
    client.segment = MakeProcessSegment();
    client.receive = std::move(receive);
    server->OnProcessAttached(id, client.segment);
    return client.segment;
  }
  StoreClient& store(ProcessId id) { return *clients.at(id).store; }

  // Delivers frames both ways and runs what is posted, until nothing moves.
  void Settle() {
    for (bool moved = true; moved;) {
      moved = memory_thread.RunOne();
      if (!disk_stopped) moved |= disk.RunOne();
      while (!to_server_.empty()) {
        const Message message = std::move(to_server_.front());
        to_server_.pop_front();
        server->OnFrame(message.peer, message.kind, message.body);
        moved = true;
      }
      server->EndTurn();
      for (auto& [id, client] : clients) {
        while (client.receive && !client.stopped && !to_client_[id].empty()) {
          const Message message = std::move(to_client_[id].front());
          to_client_[id].pop_front();
          client.received.push_back(message.kind);
          client.receive(message.kind, message.body);
          moved = true;
        }
      }
    }
  }
  void Flush() {
    for (auto& [id, client] : clients) {
      if (client.store != nullptr) client.store->Flush();
    }
    Settle();
  }
  void Advance(Nanos duration) {
    clock.Advance(duration);
    server->Tick();
    Settle();
  }

  // What the worker runtime does: tries until there is room or an error; time passes meanwhile.
  absl::StatusOr<MutableBuffer> Create(ProcessId process, const ObjectSpec& spec) {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      auto buffer = store(process).Create(spec);
      if (buffer.ok() || !absl::IsUnavailable(buffer.status())) return buffer;
      Settle();
      buffer = store(process).Create(spec);
      if (buffer.ok() || !absl::IsUnavailable(buffer.status())) return buffer;
      Advance(20 * kMillisecond);
    }
    return absl::DeadlineExceededError("neither room nor an error");
  }
  absl::StatusOr<ObjectLocation> Put(ProcessId process, ObjectId id, std::string_view bytes,
                                     ObjectSpec spec = {}) {
    spec.id = id;
    spec.size_bytes = bytes.size();
    auto buffer = Create(process, spec);
    if (!buffer.ok()) return buffer.status();
    if (!bytes.empty()) std::memcpy(buffer->data(), bytes.data(), bytes.size());
    return store(process).Seal(*std::move(buffer));
  }
  // Asks the raylet where `id` is.
  absl::StatusOr<ObjectLocation> Lookup(ProcessId process, ObjectId id) {
    clients.at(process).located.erase(id);
    store(process).Lookup(std::span<const ObjectId>(&id, 1));
    for (int attempt = 0; attempt < 1000 && !clients.at(process).located.contains(id); ++attempt) {
      Settle();
      if (!clients.at(process).located.contains(id)) Advance(20 * kMillisecond);
    }
    const auto found = clients.at(process).located.find(id);
    if (found == clients.at(process).located.end()) return absl::DeadlineExceededError("no answer");
    return found->second;
  }
  // SIGKILL: nothing of it runs any more, its mappings go with `views_too`.
  void Kill(ProcessId process, bool views_too = true) {
    clients.at(process).receive = nullptr;
    clients.at(process).store.reset();
    std::erase_if(to_server_, [&](const Message& m) { return m.peer == process; });
    to_client_.erase(process);
    server->OnProcessDied(process);
    if (views_too) server->OnViewsGone(process);
    Settle();
  }

  // Transport of the server.
  Channel& To(ProcessId peer) override {
    auto& channel = down_[peer];
    if (channel == nullptr) channel = std::make_unique<DownChannel>(*this, peer);
    return *channel;
  }
  void Forget(ProcessId peer) override { down_.erase(peer); }

  // A frame as if `from` had sent it, for the next Settle; and with one.
  void Queue(ProcessId from, FrameKind kind, std::string_view body) {
    to_server_.push_back({from, kind, std::string(body)});
  }
  void Inject(ProcessId from, FrameKind kind, std::string_view body) {
    Queue(from, kind, body);
    Settle();
  }

  ScratchDirectory directory;
  MachineMemory memory;  // limit 0: unlimited.
  FakeClock clock;
  InlineExecutor loop;
  ManualExecutor memory_thread;
  ManualExecutor disk;
  bool disk_stopped = false;
  RecordingObserver observer;
  std::unique_ptr<SegmentArena> arena;
  std::unique_ptr<FileSpill> spill;
  std::map<ProcessId, Client> clients;

 private:
  struct Message {
    ProcessId peer;
    FrameKind kind;
    std::string body;
  };
  class UpChannel final : public Channel {
   public:
    UpChannel(StoreNode& node, ProcessId self) : node_(node), self_(self) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      node_.to_server_.push_back({self_, kind, std::string(head) + std::string(tail)});
    }
    size_t queued_bytes() const override { return 0; }

   private:
    StoreNode& node_;
    const ProcessId self_;
  };
  class DownChannel final : public Channel {
   public:
    DownChannel(StoreNode& node, ProcessId peer) : node_(node), peer_(peer) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      node_.to_client_[peer_].push_back({peer_, kind, std::string(head) + std::string(tail)});
    }
    size_t queued_bytes() const override { return 0; }

   private:
    StoreNode& node_;
    const ProcessId peer_;
  };

  NodeNumber node_ = 0;
  std::deque<Message> to_server_;
  std::map<ProcessId, std::deque<Message>> to_client_;
  std::map<ProcessId, std::unique_ptr<UpChannel>> up_;
  std::map<ProcessId, std::unique_ptr<DownChannel>> down_;

 public:
  std::unique_ptr<StoreServer> server;  // Last: it uses the others.
};

}  // namespace sheaf
