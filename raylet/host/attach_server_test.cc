// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/attach_server.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>

#include "base/executor.h"
#include "base/testing/scratch_directory_for_test.h"
#include "base/testing/wait_until_for_test.h"
#include "base/version.h"
#include "metrics/page.h"
#include "shm/attach_client.h"

namespace sheaf {
namespace attach_server_test {

constexpr size_t kArenaBytes = 1 << 20;

// A raylet that only lets processes in: its loop, its mailbox, and what the server told it.
class Node final : public FrameHandler {
 public:
  explicit Node(Nanos hello_timeout = 5 * kSecond) {
    board_fd = *MakeSegment("board", kBellBoardBytes);
    board = *Mapping::Map(board_fd.get(), 0, kBellBoardBytes, Access::kReadWrite);
    arena_fd = *MakeSegment("arena", kArenaBytes);
    auto* bells = reinterpret_cast<Bell*>(board.data());
    mailbox = std::make_unique<Mailbox>(bells, 0, nullptr);
    event_loop = *EventLoop::Start("events");
    AttachServerOptions options;
    options.socket_path = path();
    options.node = 7;
    options.board_fd = board_fd.get();
    options.arena_fd = arena_fd.get();
    options.arena_bytes = kArenaBytes;
    options.hello_timeout = hello_timeout;
    options.max_strangers = 4;
    AttachServerEvents events;
    events.on_attached = [this](ProcessId process, const AttachInfo& info) {
      Note([&] { attached[process] = info; });
    };
    events.on_exited = [this](ProcessId process, const proto::Death& death) {
      Note([&] { exited[process] = death; });
    };
    events.on_socket_closed = [this](ProcessId process) { Note([&] { closed.insert(process); }); };
    events.on_segment = [this](ProcessId, const AttachInfo&, bool added) {
      Note([&] { segments += added ? 1 : -1; });
    };
    events.on_tool_frame = [this](ProcessId process, Frame frame) {
      server->ToolChannel(process)->Send(Lane::kControl, FrameKind::kStateAnswer,
                                         std::string(1'000'000, frame.body[0]));
    };
    server =
        std::make_unique<AttachServer>(options, events, *event_loop, loop, *mailbox, bells, numbers,
                                       [](std::string_view token) -> absl::StatusOr<WorkerClaim> {
                                         if (token == "good") return WorkerClaim{{7, 1000}, 3};
                                         return absl::NotFoundError("unknown");
                                       });
    REQUIRE(server->Listen().ok());
  }
  ~Node() {
    event_loop->Stop();
    loop.Stop();
    server.reset();
  }
  std::string path() const { return directory / "raylet.sock"; }

  template <class F>
  void Note(F f) {
    const std::lock_guard lock(mutex);
    f();
    changed.notify_all();
  }
  template <class F>
  bool Await(F condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(5), condition);
  }
  // Runs `f` on the loop and waits.
  template <class F>
  void OnLoop(F f) {
    std::promise<void> done;
    loop.Post([&] {
      f();
      done.set_value();
    });
    done.get_future().wait();
  }
  void OnFrame(ProcessId from, const Frame& frame) override {
    frames.emplace_back(from, std::string(frame.body));
  }
  void OnMalformed(ProcessId) override {}

  absl::StatusOr<Attached> Driver() {
    AttachRequest request;
    request.socket_path = path();
    request.words = "a driver";
    return Attach(request);
  }
  absl::StatusOr<Attached> Worker(const std::string& token) {
    AttachRequest request;
    request.socket_path = path();
    request.role = AttachRole::kWorker;
    request.token = token;
    return Attach(request);
  }
  // What the raylet says to a process that sends `hello`.
  AttachResult Answer(const AttachHello& hello) {
    const absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(path(), kSecond);
    REQUIRE(socket->Send(AsBytes(hello), {}, kSecond).ok());
    const absl::StatusOr<SocketMessage> answer = socket->Receive(5 * kSecond);
    REQUIRE(answer.ok());
    REQUIRE(answer->bytes.size() == sizeof(AttachWelcome));
    return static_cast<AttachResult>(FrameHead<AttachWelcome>(answer->bytes)->result);
  }

  ScratchDirectory directory;
  UniqueFd board_fd, arena_fd;
  Mapping board;
  ProcessNumbers numbers{7};
  std::unique_ptr<Mailbox> mailbox;
  std::unique_ptr<EventLoop> event_loop;
  ThreadExecutor loop{"loop"};
  std::unique_ptr<AttachServer> server;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<ProcessId, AttachInfo> attached;
  std::map<ProcessId, proto::Death> exited;
  absl::btree_set<ProcessId> closed;
  int segments = 0;
  std::vector<std::pair<ProcessId, std::string>> frames;
};

// The process's end of an attachment: its mailbox and the frames that came.
struct Peer final : FrameHandler {
  explicit Peer(Attached got)
      : attached(std::move(got)), mailbox(attached.board(), attached.welcome.bell, nullptr) {
    REQUIRE(
        mailbox.AddRing({7, 0}, attached.raylet_rings.get(), false, attached.welcome.raylet_bell)
            .ok());
  }
  void OnFrame(ProcessId from, const Frame& frame) override {
    frames.push_back({from, frame.kind, std::string(frame.body)});
  }
  void OnMalformed(ProcessId) override { FAIL("malformed"); }
  struct Got {
    ProcessId from;
    FrameKind kind;
    std::string body;
  };
  Attached attached;
  Mailbox mailbox;
  std::vector<Got> frames;
};

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

AttachHello GoodHello() {
  AttachHello hello{};
  hello.magic = kAttachMagic;
  hello.layout_hash = kShmLayoutHash;
  hello.role = static_cast<uint32_t>(AttachRole::kTool);
  StoreText(hello.version, kSheafVersion);
  return hello;
}

SCENARIO("a socket that somebody removes is there again") {
  Node node;
  std::filesystem::remove(node.path());
  absl::StatusOr<Attached> attached = absl::UnavailableError("not tried");
  const Nanos deadline = MonotonicNow() + 5 * kSecond;
  while (!attached.ok() && MonotonicNow() < deadline) {
    attached = node.Driver();
    std::this_thread::yield();
  }
  CHECK(attached.ok());
  CHECK(node.Driver().ok());
}

SCENARIO("a driver attaches, speaks over its rings, and leaves") {
  Node node;
  absl::StatusOr<Attached> attached = node.Driver();
  REQUIRE(attached.ok());
  CHECK(attached->process == ProcessId{7, 1});
  CHECK(attached->welcome.arena_bytes == kArenaBytes);
  CHECK(CheckSegment(attached->arena.get(), kArenaBytes).ok());
  REQUIRE(node.Await([&] { return node.attached.contains({7, 1}); }));
  CHECK(node.attached[{7, 1}].os_pid == getpid());
  CHECK(node.attached[{7, 1}].words == "a driver");
  {
    Peer peer(*std::move(attached));
    peer.mailbox.To({7, 0}).Send(Lane::kControl, FrameKind::kGoodbye, "bye");
    node.OnLoop([&] {
      node.mailbox->Poll(node, true);
      node.mailbox->To({7, 1}).Send(Lane::kControl, FrameKind::kShutdown, "so long");
    });
    CHECK(node.frames == std::vector<std::pair<ProcessId, std::string>>{{{7, 1}, "bye"}});
    peer.mailbox.Poll(peer, true);
    REQUIRE(peer.frames.size() == 1);
    CHECK(peer.frames[0].body == "so long");
    AND_THEN("what it stored in its page is seen by the raylet") {
      auto* page = reinterpret_cast<ProcessPage*>(peer.attached.process_segment->data());
      page->started_lease = 5;
      page->started_push = 9;
      strcpy(page->running, "f\xff");
      node.OnLoop([&] {
        CHECK(node.server->Started({7, 1}, {7, 9}) == std::pair<LeaseNumber, uint64_t>{5, 9});
        CHECK(node.server->RunningOf({7, 1}) == "f?");
      });
    }
    AND_THEN("its executable can be taken once") {
      node.OnLoop([&] {
        CHECK(node.server->TakeExecutable({7, 1}).valid());
        CHECK_FALSE(node.server->TakeExecutable({7, 1}).valid());
      });
    }
  }
  THEN("the end of its socket is reported, and its bell is used again") {
    REQUIRE(node.Await([&] { return node.closed.contains({7, 1}); }));
    CHECK(node.segments == 1);
    node.OnLoop([&] { node.server->Remove({7, 1}); });
    CHECK(node.segments == 0);
    CHECK(node.Driver()->welcome.bell == 1);
  }
}

SCENARIO("who must not attach gets a typed refusal") {
  Node node;
  AttachHello hello = GoodHello();
  CHECK(node.Answer(hello) == AttachResult::kWelcome);
  SECTION("another version") {
    StoreText(hello.version, "0.0.9");
    CHECK(node.Answer(hello) == AttachResult::kOtherVersion);
  }
  SECTION("another layout") {
    hello.role = static_cast<uint32_t>(AttachRole::kWorker);
    hello.layout_hash ^= 1;
    CHECK(node.Answer(hello) == AttachResult::kOtherLayout);
  }
  SECTION("not Sheaf at all") {
    hello.magic = 1;
    CHECK(node.Answer(hello) == AttachResult::kBadHello);
  }
  SECTION("an impossible role") {
    hello.role = 17;
    CHECK(node.Answer(hello) == AttachResult::kBadHello);
  }
  SECTION("a driver without its executable") {
    hello.role = static_cast<uint32_t>(AttachRole::kDriver);
    CHECK(node.Answer(hello) == AttachResult::kBadHello);
  }
  SECTION("a worker that nobody awaits") {
    CHECK(node.Worker("bad").status().code() == absl::StatusCode::kPermissionDenied);
  }
  SECTION("anybody, once the node shuts down") {
    node.OnLoop([&] { node.server->Close(); });
    CHECK(node.Answer(hello) == AttachResult::kShuttingDown);
    CHECK(node.Driver().status().code() == absl::StatusCode::kUnavailable);
  }
}

SCENARIO("a worker gets the number that was given to it, once") {
  Node node;
  const absl::StatusOr<Attached> worker = node.Worker("good");
  REQUIRE(worker.ok());
  CHECK(worker->process == ProcessId{7, 1000});
  CHECK(worker->welcome.job == 3);
  CHECK_FALSE(node.Worker("good").ok());
}

SCENARIO("two processes are joined by a ring pair that both are told of") {
  Node node;
  Peer one(*node.Driver());
  Peer other(*node.Worker("good"));
  const ProcessId a = one.attached.process;
  const ProcessId b = other.attached.process;
  node.OnLoop([&] {
    CHECK(node.server->Connect(a, b).ok());
    CHECK(node.server->Connect(b, a).ok());  // Changes nothing.
    CHECK(node.server->Connect(a, {7, 99}).code() == absl::StatusCode::kNotFound);
    CHECK(node.server->PeersOf(a) == std::vector{b});
  });
  for (Peer* peer : {&one, &other}) {
    peer->mailbox.Poll(*peer, true);
    REQUIRE(peer->frames.size() == 1);
    CHECK(peer->frames[0].kind == FrameKind::kNewRing);
    proto::NewRing announced;
    REQUIRE(announced.ParseFromString(peer->frames[0].body));
    absl::StatusOr<NewRingPair> ring = ReceiveRing(peer->attached.socket, kSecond);
    REQUIRE(ring.ok());
    CHECK(ring->ring == announced.ring());
    CHECK(ring->peer.packed() == announced.peer());
    CHECK(ring->first == announced.first());
    REQUIRE(
        peer->mailbox.AddRing(ring->peer, ring->segment.get(), ring->first, ring->peer_bell).ok());
  }
  CHECK(ReceiveRing(one.attached.socket, 0).status().code() == absl::StatusCode::kDeadlineExceeded);
  one.mailbox.To(b).Send(Lane::kWork, FrameKind::kPushTask, "work");
  other.mailbox.Poll(other, true);
  REQUIRE(other.frames.size() == 2);
  CHECK(other.frames[1].body == "work");
  CHECK(other.frames[1].from == a);
  THEN("the dead are no one's peers") {
    node.OnLoop([&] {
      node.server->RingPeersOf(b);
      node.server->Remove(b);
      CHECK(node.server->PeersOf(a).empty());
    });
  }
}

SCENARIO("the end of a driver's process and that of its socket are two things") {
  Node node;
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const pid_t driver = fork();
  if (driver == 0) {
    const absl::StatusOr<Attached> attached = node.Driver();
    if (!attached.ok()) _exit(1);
    if (fork() == 0) {
      // Its child holds the socket, and with it perhaps a view of the arena, until it is told to
      // go.
      close(pipe_fds[1]);
      char byte;
      [[maybe_unused]] const ssize_t size = read(pipe_fds[0], &byte, 1);
    }
    _exit(0);
  }
  close(pipe_fds[0]);
  REQUIRE(waitpid(driver, nullptr, 0) == driver);
  REQUIRE(node.Await([&] { return node.exited.contains({7, 1}); }));
  CHECK_FALSE(node.closed.contains({7, 1}));
  close(pipe_fds[1]);
  CHECK(node.Await([&] { return node.closed.contains({7, 1}); }));
}

SCENARIO("of a driver that left, and whose process lives on, no descriptor stays open") {
  Node node;
  const auto attach_and_leave = [&](ProcessId driver) {
    REQUIRE(node.Driver()->process == driver);
    REQUIRE(node.Await([&] { return node.closed.contains(driver); }));
    node.OnLoop([&] { node.server->Remove(driver); });
  };
  attach_and_leave({7, 1});  // What the first one leaves open, the node needs once.
  node.event_loop->Run([] {});
  const size_t before = OpenDescriptors();
  for (uint32_t number = 2; number < 12; ++number) attach_and_leave({7, number});
  CHECK(WaitUntil(5 * kSecond, [&] { return OpenDescriptors() <= before; }));
  CHECK(node.exited.empty());
}

SCENARIO("a tool asks and gets long answers in parts") {
  Node node;
  absl::StatusOr<UnixSocket> tool = AttachTool(node.path(), 5 * kSecond);
  REQUIRE(tool.ok());
  CHECK(*AskRaylet(*tool, std::string(100'000, 'q'), 5 * kSecond) == std::string(1'000'000, 'q'));
  CHECK(*AskRaylet(*tool, "r", 5 * kSecond) == std::string(1'000'000, 'r'));
  node.OnLoop([&] { CHECK_FALSE(node.server->Connect({7, 1}, {7, 1}).ok()); });
  tool->Close();
  CHECK(node.Await([&] { return node.exited.contains({7, 1}) && node.closed.contains({7, 1}); }));
}

SCENARIO("strangers who say nothing hinder nobody for long") {
  Node node(50 * kMillisecond);
  std::vector<UnixSocket> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(*UnixSocket::Connect(node.path(), kSecond));
  CHECK(node.Driver().ok());
  CHECK(silent[0].Receive(5 * kSecond).status().code() == absl::StatusCode::kUnavailable);
}

}  // namespace attach_server_test
}  // namespace sheaf
