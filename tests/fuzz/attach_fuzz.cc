// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Bytes and descriptors on the raylet's unix socket: what a process says before and after its
// hello.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/check.h"
#include "base/version.h"
#include "raylet/host/attach_server.h"
#include "tests/fuzz/fuzz_target.h"

using namespace sheaf;

namespace {

constexpr size_t kArenaBytes = 1 << 20;
constexpr size_t kMostMessages = 8;

// A raylet that lets processes in, answers tools, and forgets who leaves.
class Node final : public FrameHandler {
 public:
  Node() {
    char name[] = "/tmp/sheaf-fuzz-XXXXXX";
    SHEAF_CHECK(mkdtemp(name) != nullptr, "a directory in /tmp");
    directory_ = name;
    board_fd_ = *MakeSegment("board", kBellBoardBytes);
    board_ = *Mapping::Map(board_fd_.get(), 0, kBellBoardBytes, Access::kReadWrite);
    arena_fd_ = *MakeSegment("arena", kArenaBytes);
    auto* bells = reinterpret_cast<Bell*>(board_.data());
    mailbox_ = std::make_unique<Mailbox>(bells, 0, nullptr);
    event_loop_ = *EventLoop::Start("events");
    AttachServerOptions options;
    options.socket_path = path();
    options.node = 7;
    options.board_fd = board_fd_.get();
    options.arena_fd = arena_fd_.get();
    options.arena_bytes = kArenaBytes;
    AttachServerEvents events;
    events.on_attached = [](ProcessId, const AttachInfo&) {};
    events.on_exited = [](ProcessId, const proto::Death&) {};
    events.on_segment = [](ProcessId, const AttachInfo&, bool) {};
    events.on_socket_closed = [this](ProcessId process) {
      mailbox_->Forget(process);
      server_->Remove(process);
    };
    events.on_tool_frame = [this](ProcessId process, Frame frame) {
      server_->ToolChannel(process)->Send(Lane::kControl, FrameKind::kStateAnswer,
                                          std::string(frame.body));
    };
    server_ = std::make_unique<AttachServer>(
        options, events, *event_loop_, loop_, *mailbox_, bells, numbers_,
        [this](std::string_view token) -> absl::StatusOr<WorkerClaim> {
          if (token == "good") return WorkerClaim{worker_, 3};
          return absl::NotFoundError("unknown");
        });
    SHEAF_CHECK(server_->Listen().ok(), "it listens");
  }
  ~Node() {
    event_loop_->Stop();
    loop_.Stop();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string path() const { return directory_ + "/raylet.sock"; }
  void OnFrame(ProcessId, const Frame&) override {}
  void OnMalformed(ProcessId) override {}

 private:
  std::string directory_;
  UniqueFd board_fd_, arena_fd_;
  Mapping board_;
  ProcessNumbers numbers_{7};
  const ProcessId worker_ = numbers_.Take();  // As a raylet does, so that no other has its name.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<EventLoop> event_loop_;
  ThreadExecutor loop_{"loop"};
  std::unique_ptr<AttachServer> server_;
};

std::string Hello(AttachRole role, std::string_view token = "") {
  AttachHello hello{};
  hello.magic = kAttachMagic;
  hello.layout_hash = kShmLayoutHash;
  hello.role = static_cast<uint32_t>(role);
  StoreText(hello.version, kSheafVersion);
  StoreText(hello.token, token);
  return std::string(AsBytes(hello));
}

std::string Question(std::string_view body, uint32_t more) {
  const ToolHead head{
      .magic = kAttachMagic, .more = more, .body_bytes = static_cast<uint32_t>(body.size())};
  return std::string(AsBytes(head)) + std::string(body);
}

// As LLVMFuzzerTestOneInput reads it: descriptors, then a message.
std::string Message(uint8_t descriptors, std::string_view body) {
  std::string out(1, static_cast<char>(descriptors));
  out.push_back(static_cast<char>(body.size() & 0xff));
  out.push_back(static_cast<char>(body.size() >> 8));
  return out + std::string(body);
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  return {Message(0, Hello(AttachRole::kTool)) + Message(0, Question("why", 0)),
          Message(0, Hello(AttachRole::kTool)) + Message(0, Question("why ", 1)) +
              Message(0, Question("not", 0)),
          Message(1, Hello(AttachRole::kDriver)), Message(0, Hello(AttachRole::kWorker, "good")),
          Message(3, Hello(AttachRole::kWorker, "bad")) + Message(0, "more")};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Node& node = *new Node;
  static const bool removed_at_exit = std::atexit([] { delete &node; }) == 0;
  FUZZ_CHECK(removed_at_exit);
  fuzz::Input input(data, size);
  const absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(node.path(), 5 * kSecond);
  FUZZ_CHECK(socket.ok());
  bool open = true;
  for (size_t i = 0; i < kMostMessages && open && !input.empty(); ++i) {
    std::vector<UniqueFd> files;
    std::vector<int> descriptors;
    for (uint8_t count = input.Byte() % 4; count != 0; --count) {
      files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      descriptors.push_back(files.back().get());
    }
    const std::string message = input.Bytes(input.Short());
    open = socket->Send(message, descriptors, kSecond).ok();
    if (i != 0 || !open) continue;
    // A hello is answered, whatever it was, or the socket is closed.
    const absl::StatusOr<SocketMessage> answer = socket->Receive(10 * kSecond);
    FUZZ_CHECK(!absl::IsDeadlineExceeded(answer.status()));
    open = answer.ok() && answer->bytes.size() == sizeof(AttachWelcome);
  }
  static uint64_t inputs = 0;
  if (++inputs % 16 == 0) {  // Others are let in as before.
    const absl::StatusOr<UnixSocket> other = UnixSocket::Connect(node.path(), 5 * kSecond);
    FUZZ_CHECK(other.ok() && other->Send(Hello(AttachRole::kTool), {}, kSecond).ok());
    const absl::StatusOr<SocketMessage> answer = other->Receive(10 * kSecond);
    FUZZ_CHECK(answer.ok() && answer->bytes.size() == sizeof(AttachWelcome));
    FUZZ_CHECK(FrameHead<AttachWelcome>(answer->bytes)->result ==
               static_cast<uint32_t>(AttachResult::kWelcome));
  }
  return 0;
}
