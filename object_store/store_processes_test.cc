// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Real processes over real memfds: writers that are killed at any point and lose their free slot
// pages to each other, readers that are stopped and killed while they hold views, an arena far too
// small for what is put. The server runs in the process of the test, frames travel over sockets.
#include <catch2/catch.hpp>

#ifndef SHEAF_TSAN  // It sees one process only.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>

#include "base/random.h"
#include "object_store/store_node_for_test.h"

namespace sheaf {
namespace store_processes_test {

constexpr FrameKind kTellReaders{1};  // Writer -> test -> readers: ObjectName[1].
constexpr FrameKind kProgress{2};     // Reader -> test: uint64_t objects verified so far.

struct Packet {
  FrameKind kind;
  std::string body;
};

bool SendPacket(int fd, FrameKind kind, std::string_view head, std::string_view tail, int flags) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &kind, sizeof(kind));
  bytes.append(head).append(tail);
  return send(fd, bytes.data(), bytes.size(), flags | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}
// nullopt: nothing there now. The end of the stream ends a child.
std::optional<Packet> ReceivePacket(int fd, bool* closed) {
  static std::vector<char> bytes(256 * 1024);
  const ssize_t size = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) *closed = true;
  if (size < 8) return std::nullopt;
  Packet packet;
  std::memcpy(&packet.kind, bytes.data(), sizeof(packet.kind));
  packet.body.assign(bytes.data() + 8, size - 8);
  return packet;
}

// Every process can tell from an id what the object must look like.
size_t SizeOf(ObjectId id) {
  const uint64_t mix = (id.sequence() + id.maker_bits * 77) * 0x9e3779b97f4a7c15u >> 16;
  return mix % 16 == 0 ? kMiB + mix % (2 * kMiB) : mix % 20'000;
}
std::string ContentOf(ObjectId id) { return Pattern(SizeOf(id), id.sequence() ^ id.maker_bits); }

// --- In a child. ---

class ChildChannel final : public Channel {
 public:
  explicit ChildChannel(int fd) : fd_(fd) {}
  void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
    SendPacket(fd_, kind, head, tail, 0);
  }
  size_t queued_bytes() const override { return 0; }

 private:
  const int fd_;
};

class Child {
 public:
  Child(ProcessId self, int socket, int arena, int segment)
      : self_(self), socket_(socket), channel_(socket), random_(self.packed()) {
    auto mapping = Mapping::Map(segment, 0, kProcessSegmentBytes, Access::kReadWrite);
    auto opened =
        StoreClient::Open(self, UniqueFd(arena), std::make_shared<Mapping>(*std::move(mapping)),
                          channel_, [this](ObjectId id, absl::StatusOr<ObjectLocation> where) {
                            if (where.ok()) told_.push_back({id, *where});
                          });
    store_ = *std::move(opened);
  }

  [[noreturn]] void Write() {
    struct Put {
      ObjectId id;
      ObjectLocation location;
    };
    std::deque<Put> live;
    size_t most = 30;
    for (uint64_t sequence = 1;; ++sequence) {
      const ObjectId id = IdOf(self_, sequence);
      const std::string content = ContentOf(id);
      auto buffer = store_->Create({.id = id, .size_bytes = content.size(), .wait = 60 * kSecond});
      while (!buffer.ok()) {
        if (!absl::IsUnavailable(buffer.status())) Fail("create", buffer.status());
        Listen(20);
        buffer = store_->Create({.id = id, .size_bytes = content.size(), .wait = 60 * kSecond});
      }
      // In pieces, so that a kill finds it half written.
      for (size_t at = 0; at < content.size(); at += 4096) {
        std::memcpy(buffer->data() + at, content.data() + at,
                    std::min<size_t>(4096, content.size() - at));
      }
      if (random_.OneIn(10)) continue;  // Dropped unsealed.
      const ObjectLocation location = store_->Seal(*std::move(buffer));
      channel_.Send(Lane::kControl, kTellReaders, AsBytes(ObjectName{id, location}), {});
      live.push_back({id, location});
      // More pages of slots at times than at others: then some become free.
      if (random_.OneIn(40)) most = random_.OneIn(2) ? 30 : 120;
      while (live.size() > most || random_.OneIn(5)) {
        if (live.empty()) break;
        std::swap(live.front(), live[random_.Below(live.size())]);
        store_->Free(live.front().id, live.front().location);
        live.pop_front();
      }
      if (random_.OneIn(8)) store_->Flush();
      Listen(0);
    }
  }

  [[noreturn]] void Read() {
    struct Held {
      ObjectId id;
      Buffer view;
    };
    std::deque<Held> held;
    uint64_t verified = 0;
    for (;;) {
      Listen(told_.empty() ? 5 : 0);
      if (told_.size() > 50) told_.erase(told_.begin(), told_.end() - 50);
      if (!told_.empty()) {
        const ObjectName name = told_.front();
        told_.pop_front();
        auto object = store_->Get(name.id, name.location);
        if (object.ok()) {
          held.push_back({name.id, std::move(object->bytes)});
          Verify(held.back().id, held.back().view);
          if (++verified % 16 == 0) channel_.Send(Lane::kControl, kProgress, AsBytes(verified), {});
        } else if (random_.OneIn(4)) {
          store_->Lookup(std::span<const ObjectId>(&name.id, 1));
        }
      }
      // Views stay whole however long they are held and whatever becomes of the rest.
      if (!held.empty()) Verify(held.front().id, held.front().view);
      while (held.size() > 6) held.pop_front();
      if (random_.OneIn(16)) held.clear();
    }
  }

 private:
  void Verify(ObjectId id, const Buffer& view) {
    if (view.view() != ContentOf(id)) Fail("wrong bytes in " + id.ToHex(), absl::OkStatus());
  }
  void Listen(int milliseconds) {
    store_->Flush();
    pollfd waiting{socket_, POLLIN, 0};
    if (milliseconds > 0) poll(&waiting, 1, milliseconds);
    bool closed = false;
    while (const auto packet = ReceivePacket(socket_, &closed)) {
      if (packet->kind == kTellReaders) {
        told_.push_back(*FrameHead<ObjectName>(packet->body));
      } else {
        store_->OnFrame(packet->kind, packet->body);
      }
    }
    if (closed) _exit(0);
  }
  [[noreturn]] void Fail(const std::string& what, const absl::Status& status) {
    std::fprintf(stderr, "process %s: %s %s\n", self_.ToString().c_str(), what.c_str(),
                 status.ToString().c_str());
    _exit(3);
  }

  const ProcessId self_;
  const int socket_;
  ChildChannel channel_;
  SeededRandom random_;
  std::unique_ptr<StoreClient> store_;
  std::deque<ObjectName> told_;
};

// --- In the test's process. ---

// Work posted by other threads runs when the test's loop asks for it.
class LoopQueue final : public Executor {
 public:
  void Post(std::function<void()> work) override {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  void RunAll() {
    std::vector<std::function<void()>> batch;
    {
      std::lock_guard lock(mutex_);
      batch.swap(queue_);
    }
    for (auto& work : batch) work();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> queue_;
};

class ProcessNode final : public Transport {
 public:
  explicit ProcessNode(uint64_t capacity_bytes)
      : arena_(*SegmentArena::Make({.capacity_bytes = capacity_bytes, .reserve_bytes = 0})),
        spill_(*FileSpill::Open({.directory = directory_.path(), .min_free_bytes = 0})),
        memory_("test-memory"),
        disk_("test-disk"),
        server_(StoreOptions{.node = kTestNode},
                {.clock = clock_,
                 .transport = *this,
                 .arena = *arena_,
                 .spill = *spill_,
                 .loop = loop_,
                 .memory = memory_,
                 .disk = disk_,
                 .observer = observer_},
                capacity_bytes) {}
  ~ProcessNode() override {
    while (!processes_.empty()) Kill(processes_.begin()->first);
    memory_.Stop();
    disk_.Stop();
  }

  ProcessId Start(bool writer) {
    const ProcessId id{kTestNode, ++last_number_};
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    const UniqueFd segment = *MakeSegment("test-process", kProcessSegmentBytes);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (auto& [other, process] : processes_) close(process.socket.get());
      close(sockets[0]);
      Child child(id, sockets[1], dup(arena_->fd()), segment.get());
      if (writer) child.Write();
      child.Read();
    }
    close(sockets[1]);
    Process& process = processes_[id];
    process.pid = pid;
    process.writer = writer;
    process.socket.Reset(sockets[0]);
    server_.OnProcessAttached(id, std::make_shared<Mapping>(*Mapping::Map(
                                      segment.get(), 0, kProcessSegmentBytes, Access::kReadOnly)));
    return id;
  }
  void Signal(ProcessId id, int signal) { REQUIRE(kill(processes_.at(id).pid, signal) == 0); }
  void Kill(ProcessId id) {
    kill(processes_.at(id).pid, SIGKILL);
    OnProcessEnded(id);
  }

  // As the server does when slots are short.
  void RecallSlots() {
    for (const ProcessId writer : Of(/*writer=*/true))
      To(writer).Send(Lane::kControl, kStoreRecall, AsBytes(StoreRecall{}), {});
  }

  // One round of the loop.
  void Turn() {
    std::vector<pollfd> sockets;
    for (auto& [id, process] : processes_) sockets.push_back({process.socket.get(), POLLIN, 0});
    poll(sockets.data(), sockets.size(), 1);
    std::vector<ProcessId> closed;
    for (auto& [id, process] : processes_) {
      bool end = false;
      for (int i = 0; i < 64; ++i) {
        const auto packet = ReceivePacket(process.socket.get(), &end);
        if (!packet) break;
        if (packet->kind == kTellReaders) {
          for (auto& [reader, other] : processes_) {
            if (!other.writer && other.queue.size() < 100) other.queue.push_back(*packet);
          }
        } else if (packet->kind == kProgress) {
          verified_ += 16;
        } else {
          returns_ += packet->kind == kStoreSlotReturn ? 1 : 0;
          server_.OnFrame(id, packet->kind, packet->body);
        }
      }
      if (end) closed.push_back(id);
    }
    for (const ProcessId id : closed)
      OnProcessEnded(id);  // It ended by itself: only an error does that.
    loop_.RunAll();
    server_.EndTurn();
    server_.Tick();
    for (auto& [id, process] : processes_) {
      while (!process.queue.empty() && SendPacket(process.socket.get(), process.queue.front().kind,
                                                  process.queue.front().body, {}, MSG_DONTWAIT)) {
        process.queue.pop_front();
      }
    }
  }

  Channel& To(ProcessId peer) override {
    auto& channel = channels_[peer];
    if (channel == nullptr) channel = std::make_unique<QueueChannel>(*this, peer);
    return *channel;
  }
  void Forget(ProcessId) override {}

  StoreServer& server() { return server_; }
  uint64_t verified() const { return verified_; }
  uint64_t returns() const { return returns_; }  // Of slot pages.
  const RecordingObserver& observer() const { return observer_; }
  std::vector<ProcessId> Of(bool writer) const {
    std::vector<ProcessId> ids;
    for (const auto& [id, process] : processes_) {
      if (process.writer == writer) ids.push_back(id);
    }
    return ids;
  }

 private:
  struct Process {
    pid_t pid = 0;
    bool writer = false;
    UniqueFd socket;
    std::deque<Packet> queue;
  };
  class QueueChannel final : public Channel {
   public:
    QueueChannel(ProcessNode& node, ProcessId peer) : node_(node), peer_(peer) {}
    void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
      const auto process = node_.processes_.find(peer_);
      if (process == node_.processes_.end()) return;
      process->second.queue.push_back({kind, std::string(head) + std::string(tail)});
    }
    size_t queued_bytes() const override { return 0; }

   private:
    ProcessNode& node_;
    const ProcessId peer_;
  };

  void OnProcessEnded(ProcessId id) {
    Process& process = processes_.at(id);
    int status = 0;
    REQUIRE(waitpid(process.pid, &status, 0) == process.pid);
    CHECK(WIFSIGNALED(status));  // A child that found something wrong exits.
    if (WIFSIGNALED(status)) CHECK(WTERMSIG(status) == SIGKILL);
    // What it had sent before it died counts, as the raylet drains a dead process's ring.
    bool closed = false;
    while (const auto packet = ReceivePacket(process.socket.get(), &closed)) {
      if (IsStoreFrame(packet->kind)) server_.OnFrame(id, packet->kind, packet->body);
    }
    processes_.erase(id);
    server_.OnProcessDied(id);
    server_.OnViewsGone(id);
    server_.Adopt(id, [](ObjectId) { return false; });
  }

  ScratchDirectory directory_;
  MonotonicClock clock_;
  RecordingObserver observer_;
  LoopQueue loop_;
  std::unique_ptr<SegmentArena> arena_;
  std::unique_ptr<FileSpill> spill_;
  ThreadExecutor memory_;
  ThreadExecutor disk_;
  std::map<ProcessId, Process> processes_;
  std::map<ProcessId, std::unique_ptr<QueueChannel>> channels_;
  uint32_t last_number_ = 0;
  uint64_t verified_ = 0;
  uint64_t returns_ = 0;
  StoreServer server_;
};

TEST_CASE("killed writers, stopped and killed readers: no wrong byte, no leak") {
  const uint64_t seed = EntropySeed();
  INFO("seed " << seed);
  SeededRandom random(seed);
  ProcessNode node(24 * kMiB);
  for (int i = 0; i < 2; ++i) node.Start(/*writer=*/true);
  for (int i = 0; i < 3; ++i) node.Start(/*writer=*/false);
  std::set<ProcessId> stopped;
  int kills = 0;
  const Nanos end = MonotonicNow() + 4 * kSecond;
  for (Nanos next = 0; MonotonicNow() < end || node.verified() < 1000;) {
    node.Turn();
    if (MonotonicNow() > end + 30 * kSecond) break;  // The checks below tell.
    if (MonotonicNow() < next) continue;
    next = MonotonicNow() + (5 + random.Below(40)) * kMillisecond;
    node.RecallSlots();
    const bool writer = random.OneIn(2);
    const std::vector<ProcessId> candidates = node.Of(writer);
    const ProcessId chosen = candidates[random.Below(candidates.size())];
    if (writer || random.OneIn(4)) {
      stopped.erase(chosen);
      node.Kill(chosen);
      ++kills;
      node.Start(writer);
    } else if (stopped.erase(chosen) != 0) {
      node.Signal(chosen, SIGCONT);
    } else if (stopped.size() < 2) {
      stopped.insert(chosen);
      node.Signal(chosen, SIGSTOP);
    }
  }
  CHECK(kills > 20);
  CHECK(node.verified() >= 1000);
  CHECK(node.returns() > 0);
  for (const auto& [process, what] : node.observer().violations) {
    FAIL_CHECK(process.ToString() << ": " << what);
  }
  CHECK(node.observer().lost.empty());
  for (const bool writer : {true, false}) {
    for (const ProcessId id : node.Of(writer)) node.Kill(id);
  }
  const Nanos quiet = MonotonicNow();
  StoreStats stats = node.server().Stats();
  while ((stats.objects != 0 || stats.used_bytes != 0) && MonotonicNow() - quiet < kSecond) {
    node.Turn();
    stats = node.server().Stats();
  }
  CHECK(stats.objects == 0);
  CHECK(stats.used_bytes == 0);
  CHECK(stats.granted_bytes == 0);
  CHECK(stats.pinned_bytes == 0);
  CHECK(stats.waiting_requests == 0);
}

}  // namespace store_processes_test
}  // namespace sheaf

#endif
