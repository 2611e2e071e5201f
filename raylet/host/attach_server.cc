// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "raylet/host/attach_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "raylet/host/last_lines.h"
#include "raylet/host/proc_files.h"
#include "raylet/host/worker_start.h"
#include "shm/attach_client.h"
#include "telemetry/task_events.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5.
#endif

namespace sheaf {
namespace {

constexpr Nanos kLookAtSocket = kSecond;
constexpr Nanos kLastRetry = 50 * kMillisecond;

AttachWelcome EmptyWelcome() {
  AttachWelcome welcome{};
  welcome.magic = kAttachMagic;
  welcome.raylet_os_pid = getpid();
  StoreText(welcome.version, kSheafVersion);
  return welcome;
}

// The process that made the connection, by a name that cannot be reused.
UniqueFd PeerPidfd(const UnixSocket& socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 && fd >= 0)
    return UniqueFd(fd);
  return pid > 0 ? OpenPidfd(pid) : UniqueFd();
}

bool IsExecutable(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 0111) != 0;
}

}  // namespace

class AttachServer::Tool final : public Channel {
 public:
  Tool(AttachServer& server, std::shared_ptr<AttachConnection> connection)
      : server_(server), connection_(std::move(connection)) {}

  void Send(Lane, FrameKind kind, std::string_view head, std::string_view tail) override {
    if (kind != FrameKind::kStateAnswer) return;
    std::string body(head);
    body.append(tail);
    size_t offset = 0;
    do {
      server_.Send(connection_, NextPart(body, offset), UniqueFd());
    } while (offset < body.size());
  }
  size_t queued_bytes() const override { return connection_->waiting_bytes(); }

 private:
  AttachServer& server_;
  const std::shared_ptr<AttachConnection> connection_;
};

AttachServer::AttachServer(AttachServerOptions options, AttachServerEvents events,
                           EventLoop& event_loop, Executor& loop, Mailbox& mailbox, Bell* board,
                           ProcessNumbers& numbers,
                           std::function<absl::StatusOr<WorkerClaim>(std::string_view)> claim)
    : options_(std::move(options)),
      events_(std::move(events)),
      event_loop_(event_loop),
      loop_(loop),
      mailbox_(mailbox),
      board_(board),
      numbers_(numbers),
      claim_(std::move(claim)),
      watch_(std::make_unique<ProcessWatch>(event_loop)) {}

AttachServer::~AttachServer() = default;

absl::Status AttachServer::Listen() {
  SHEAF_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Listen(options_.socket_path));
  absl::Status status;
  event_loop_.Run([&] {
    status = ListenWith(std::move(listener));
    event_loop_.After(kLookAtSocket, [this] { KeepSocket(); });
  });
  return status;
}

// ---- On the event loop. ----

absl::Status AttachServer::ListenWith(UnixListener listener) {
  if (listener_.has_value()) event_loop_.Unwatch(listener_->fd());
  listener_.emplace(std::move(listener));
  const uint32_t events = strangers_ < options_.max_strangers ? uint32_t{EPOLLIN} : 0;
  return event_loop_.Watch(listener_->fd(), events, [this](uint32_t) { AcceptSome(); });
}

// What ages temporary files removes sockets too, and then nobody finds the node.
void AttachServer::KeepSocket() {
  event_loop_.After(kLookAtSocket, [this] { KeepSocket(); });
  if (listener_->IsAtItsPath()) return;
  absl::StatusOr<UnixListener> again = UnixListener::Listen(options_.socket_path);
  const absl::Status made = again.ok() ? ListenWith(*std::move(again)) : again.status();
  Log(LogLevel::kError, "the socket ", options_.socket_path,
      " was removed; making it anew: ", made.ToString());
}

void AttachServer::AcceptSome() {
  while (strangers_ < options_.max_strangers) {
    absl::StatusOr<UnixSocket> socket = listener_->Accept(0);
    if (!socket.ok()) {
      if (absl::IsResourceExhausted(socket.status())) {
        // Out of descriptors: look again later instead of at once, for ever.
        event_loop_.Rewatch(listener_->fd(), 0);
        event_loop_.After(100 * kMillisecond,
                          [this] { event_loop_.Rewatch(listener_->fd(), EPOLLIN); });
      }
      return;
    }
    auto connection = std::make_shared<AttachConnection>(*std::move(socket));
    const absl::Status watched = event_loop_.Watch(
        connection->socket.fd(), EPOLLIN, [this, connection](uint32_t) { OnReadable(connection); });
    if (!watched.ok()) continue;
    ++strangers_;
    event_loop_.After(options_.hello_timeout, [this, weak = std::weak_ptr(connection)] {
      const std::shared_ptr<AttachConnection> late = weak.lock();
      if (late != nullptr && late->phase == AttachConnection::Phase::kStranger) Drop(late);
    });
  }
  event_loop_.Rewatch(listener_->fd(), 0);  // EndHello watches it again.
}

void AttachServer::EndHello(const std::shared_ptr<AttachConnection>& connection) {
  if (connection->phase != AttachConnection::Phase::kStranger) return;
  connection->phase = AttachConnection::Phase::kAsking;
  if (strangers_-- == options_.max_strangers) event_loop_.Rewatch(listener_->fd(), EPOLLIN);
}

void AttachServer::Drop(const std::shared_ptr<AttachConnection>& connection) {
  EndHello(connection);
  if (connection->phase == AttachConnection::Phase::kDropped) return;
  connection->phase = AttachConnection::Phase::kDropped;
  event_loop_.Unwatch(connection->socket.fd());
  shutdown(connection->socket.fd(), SHUT_RDWR);
  if (const uint64_t packed = connection->process.load(); packed != 0) {
    loop_.Post([this, process = ProcessId::Unpack(packed)] { OnSocketEnd(process); });
  }
}

void AttachServer::OnReadable(const std::shared_ptr<AttachConnection>& connection) {
  absl::StatusOr<SocketMessage> message = connection->socket.Receive(0);
  if (absl::IsDeadlineExceeded(message.status())) return;
  if (!message.ok()) return Drop(connection);  // Its end, or more than any correct process sends.
  if (connection->phase == AttachConnection::Phase::kStranger)
    return OnHello(connection, *std::move(message));
  if (connection->is_tool) return OnToolMessage(connection, *message);
  // Members speak over their rings; what they send here is not looked at.
}

void AttachServer::Refuse(const std::shared_ptr<AttachConnection>& connection, AttachResult result,
                          const std::string& words) {
  AttachWelcome welcome = EmptyWelcome();
  welcome.result = static_cast<uint32_t>(result);
  StoreText(welcome.text, words);
  connection->socket.Send(AsBytes(welcome), {}, 0).IgnoreError();
  Log(LogLevel::kWarning, "refused a process: ", words);
  Drop(connection);
}

void AttachServer::OnHello(const std::shared_ptr<AttachConnection>& connection,
                           SocketMessage message) {
  EndHello(connection);
  const AttachHello* hello = FrameHead<AttachHello>(message.bytes);
  if (hello == nullptr || message.bytes.size() != sizeof(AttachHello) ||
      hello->magic != kAttachMagic || hello->role > static_cast<uint32_t>(AttachRole::kTool)) {
    return Refuse(connection, AttachResult::kBadHello,
                  "this is a Sheaf raylet, and that was no hello");
  }
  const absl::StatusOr<PeerCredentials> peer = connection->socket.Peer();
  if (!peer.ok() || peer->uid != geteuid()) {
    return Refuse(connection, AttachResult::kOtherUser,
                  absl::StrCat("this node belongs to user ", geteuid(), "; start one of your own"));
  }
  const auto role = static_cast<AttachRole>(hello->role);
  if (LoadText(hello->version) != kSheafVersion) {
    return Refuse(connection, AttachResult::kOtherVersion,
                  absl::StrCat("this process uses Sheaf ", ToValidUtf8(LoadText(hello->version)),
                               ", the node ", std::string(kSheafVersion),
                               ": install one version, or start another node"));
  }
  if (role != AttachRole::kTool && hello->layout_hash != kShmLayoutHash) {
    return Refuse(connection, AttachResult::kOtherLayout,
                  "this process and the node were built from different sources of the same "
                  "version: rebuild both");
  }
  auto admission = std::make_shared<Admission>();
  admission->role = role;
  admission->os_pid = peer->pid != 0 ? peer->pid : hello->os_pid;
  admission->words = ToValidUtf8(LoadText(hello->words));
  if (role == AttachRole::kWorker) {
    const absl::StatusOr<WorkerClaim> claim = claim_(LoadText(hello->token));
    if (!claim.ok()) {
      return Refuse(
          connection, AttachResult::kUnknownToken,
          "no worker with this token is awaited: its job has ended, or it took too long to start");
    }
    admission->claim = *claim;
  }
  if (role == AttachRole::kDriver) {
    if (message.fds.size() != 1 || !IsExecutable(message.fds[0].get())) {
      return Refuse(connection, AttachResult::kBadHello, "a driver sends its executable along");
    }
    admission->executable = std::move(message.fds[0]);
    admission->pidfd = PeerPidfd(connection->socket, peer->pid);
  }
  connection->is_tool = role == AttachRole::kTool;
  loop_.Post([this, connection, admission] { Admit(connection, admission); });
}

void AttachServer::OnToolMessage(const std::shared_ptr<AttachConnection>& connection,
                                 const SocketMessage& message) {
  const absl::StatusOr<bool> whole = AddPart(message.bytes, kMaxToolQuestion, connection->question);
  if (!whole.ok()) return Drop(connection);
  if (!*whole) return;
  const ProcessId process = ProcessId::Unpack(connection->process.load());
  loop_.Post([this, process, question = std::exchange(connection->question, {})] {
    if (attached_.contains(process)) {
      events_.on_tool_frame(process, Frame{FrameKind::kStateQuery, question});
    }
  });
}

void AttachServer::Flush(const std::shared_ptr<AttachConnection>& connection) {
  if (connection->phase == AttachConnection::Phase::kDropped || connection->SendWaiting()) {
    connection->retry_after = AttachConnection::kFirstRetry;
    return;
  }
  // Not by EPOLLOUT: with too many descriptors under way the socket is writable and still takes
  // nothing.
  event_loop_.After(connection->retry_after, [this, connection] { Flush(connection); });
  connection->retry_after = std::min(2 * connection->retry_after, kLastRetry);
}

// ---- On the raylet's loop. ----

absl::StatusOr<uint32_t> AttachServer::TakeBell() {
  if (!free_bells_.empty()) {
    const uint32_t bell = free_bells_.back();
    free_bells_.pop_back();
    return bell;
  }
  if (next_bell_ == kMaxProcessesPerNode) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a node has room for ", kMaxProcessesPerNode - 1, " processes"));
  }
  return next_bell_++;
}

void AttachServer::Admit(const std::shared_ptr<AttachConnection>& connection,
                         std::shared_ptr<Admission> admission) {
  const auto refuse = [&](AttachResult result, std::string words) {
    event_loop_.Post([this, connection, result, words = std::move(words)] {
      Refuse(connection, result, words);
    });
  };
  if (closing_) return refuse(AttachResult::kShuttingDown, "this node is shutting down");
  const bool worker = admission->role == AttachRole::kWorker;
  const ProcessId process = worker ? admission->claim.process : numbers_.Take();
  if (attached_.contains(process))
    return refuse(AttachResult::kBadHello, "this worker is attached already");
  Attached attached;
  attached.connection = connection;
  attached.info.role = static_cast<ProcessRole>(admission->role);
  attached.info.os_pid = admission->os_pid;
  attached.info.words = admission->words;
  attached.executable = std::move(admission->executable);
  if (attached.executable.valid())
    attached.info.executable = PathOfDescriptor(attached.executable.get());
  connection->process.store(process.packed());
  if (absl::Status status = Welcome(process, attached, *admission); !status.ok()) {
    connection->process.store(0);
    if (attached.bell != 0) {
      mailbox_.Forget(process);
      free_bells_.push_back(attached.bell);
    }
    return refuse(AttachResult::kNodeFull, std::string(status.message()));
  }
  event_loop_.Post([this, connection, process, pid = admission->os_pid, admission] {
    if (connection->phase == AttachConnection::Phase::kDropped) {
      // Its end came before it had a name.
      loop_.Post([this, process] { OnSocketEnd(process); });
    } else {
      connection->phase = AttachConnection::Phase::kMember;
    }
    if (!admission->pidfd.valid()) return;  // The end of the socket alone says that it is gone.
    connection->watch = watch_->Watch(pid, std::move(admission->pidfd), [this, process] {
      loop_.Post([this, process] {
        // Only its parent has its exit status. One that left said so before.
        events_.on_exited(process, MakeDeath(proto::Death::UNKNOWN, "the driver's process ended"));
      });
    });
  });
  const AttachInfo info = attached.info;
  attached_.emplace(process, std::move(attached));
  events_.on_attached(process, info);
}

namespace {

// Before the process has the segment.
absl::Status TellThatSpansAreExported(int segment) {
  constexpr size_t kPlace = kEventsOffset + offsetof(telemetry::EventPage, header) +
                            offsetof(telemetry::EventHeader, spans_are_exported);
  const uint64_t yes = 1;
  if (pwrite(segment, &yes, sizeof yes, kPlace) == sizeof yes) return absl::OkStatus();
  return absl::InternalError("a process's segment cannot be written");
}

}  // namespace

absl::Status AttachServer::Welcome(ProcessId process, Attached& attached,
                                   const Admission& admission) {
  SHEAF_RETURN_IF_ERROR(SHEAF_FAILPOINT_STATUS("raylet.attach"));
  AttachWelcome welcome = EmptyWelcome();
  welcome.process = process.packed();
  welcome.job = admission.claim.job;
  welcome.arena_bytes = options_.arena_bytes;
  welcome.node_start_ns = static_cast<uint64_t>(options_.node_start);
  if (admission.role == AttachRole::kTool) {
    attached.tool = std::make_unique<Tool>(*this, attached.connection);
    return attached.connection->socket.Send(AsBytes(welcome), {}, 0);
  }
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd segment,
                         MakeSegment("sheaf-process", kProcessSegmentBytes));
  if (options_.spans_are_exported) SHEAF_RETURN_IF_ERROR(TellThatSpansAreExported(segment.get()));
  SHEAF_ASSIGN_OR_RETURN(Mapping mapping,
                         Mapping::Map(segment.get(), 0, kProcessSegmentBytes, Access::kReadOnly));
  attached.info.segment = std::make_shared<Mapping>(std::move(mapping));
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd rings, MakeSegment("sheaf-rings", kRingPairBytes));
  SHEAF_ASSIGN_OR_RETURN(attached.bell, TakeBell());
  welcome.bell = attached.bell;
  SetBell(board_[attached.bell], BellState::kAwake);
  SHEAF_RETURN_IF_ERROR(mailbox_.AddRing(process, rings.get(), /*first=*/true, attached.bell));
  const int fds[kAttachFds] = {options_.board_fd, segment.get(), options_.arena_fd, rings.get()};
  SHEAF_RETURN_IF_ERROR(attached.connection->socket.Send(AsBytes(welcome), fds, 0));
  events_.on_segment(process, attached.info, true);
  return absl::OkStatus();
}

void AttachServer::OnSocketEnd(ProcessId process) {
  const auto found = attached_.find(process);
  if (found == attached_.end() || std::exchange(found->second.socket_closed, true)) return;
  if (found->second.tool != nullptr) events_.on_exited(process, MakeDeath(proto::Death::LEFT, ""));
  events_.on_socket_closed(process);
}

void AttachServer::Send(const std::shared_ptr<AttachConnection>& connection, std::string bytes,
                        UniqueFd fd) {
  if (connection->IsEmpty()) {
    const int fds[] = {fd.get()};
    const absl::Status sent =
        connection->socket.Send(bytes, absl::MakeConstSpan(fds, fd.valid() ? 1 : 0), 0);
    if (!absl::IsDeadlineExceeded(sent)) return;  // Sent, or its end is on its way to us.
  }
  const bool reads = connection->Push(std::move(bytes), std::move(fd));
  event_loop_.Post([this, connection, reads] { reads ? Flush(connection) : Drop(connection); });
}

void AttachServer::SendRing(ProcessId to, ProcessId peer, bool first, int segment) {
  const RingTag tag{kAttachMagic, peer.packed(), last_ring_, attached_.at(peer).bell,
                    first ? 1u : 0u};
  Send(attached_.at(to).connection, std::string(AsBytes(tag)), UniqueFd(dup(segment)));
  proto::NewRing message;
  message.set_peer(peer.packed());
  message.set_ring(last_ring_);
  message.set_first(first);
  SendMessage(mailbox_.To(to), FrameKind::kNewRing, message);
}

absl::Status AttachServer::Connect(ProcessId a, ProcessId b) {
  const auto one = attached_.find(a);
  const auto other = attached_.find(b);
  for (const auto& [end, process] : {std::pair(one, a), std::pair(other, b)}) {
    if (end == attached_.end() || end->second.bell == 0 || end->second.socket_closed) {
      return absl::NotFoundError(absl::StrCat(process.ToString(), " is not attached"));
    }
  }
  if (a == b || one->second.peers.contains(b)) return absl::OkStatus();
  SHEAF_ASSIGN_OR_RETURN(const UniqueFd segment, MakeSegment("sheaf-rings", kRingPairBytes));
  one->second.peers.insert(b);
  other->second.peers.insert(a);
  ++last_ring_;
  SendRing(a, b, /*first=*/true, segment.get());
  SendRing(b, a, /*first=*/false, segment.get());
  return absl::OkStatus();
}

void AttachServer::Remove(ProcessId process) {
  const auto found = attached_.find(process);
  if (found == attached_.end()) return;
  for (ProcessId peer : found->second.peers) {
    if (const auto other = attached_.find(peer); other != attached_.end())
      other->second.peers.erase(process);
  }
  if (found->second.bell != 0) {
    events_.on_segment(process, found->second.info, false);
    free_bells_.push_back(found->second.bell);
  }
  event_loop_.Post([this, connection = found->second.connection] {
    watch_->Unwatch(connection->watch);  // The driver has left; its program may go on.
    Drop(connection);
  });
  attached_.erase(found);
}

std::pair<LeaseNumber, uint64_t> AttachServer::Started(ProcessId process, ProcessId caller) {
  const auto found = attached_.find(process);
  if (found == attached_.end() || found->second.info.segment == nullptr) return {0, 0};
  const auto* page = reinterpret_cast<const ProcessPage*>(found->second.info.segment->data());
  return {page->started_lease.load(std::memory_order_acquire), page->StartedOf(caller)};
}

std::vector<ProcessId> AttachServer::PeersOf(ProcessId process) {
  const auto found = attached_.find(process);
  if (found == attached_.end()) return {};
  return {found->second.peers.begin(), found->second.peers.end()};
}

UniqueFd AttachServer::TakeExecutable(ProcessId driver) {
  const auto found = attached_.find(driver);
  return found == attached_.end() ? UniqueFd() : std::move(found->second.executable);
}

void AttachServer::RingPeersOf(ProcessId process) {
  for (ProcessId peer : PeersOf(process)) {
    if (const auto other = attached_.find(peer); other != attached_.end()) {
      RingAfterDeath(board_[other->second.bell]);
    }
  }
}

std::string AttachServer::RunningOf(ProcessId process) {
  const auto found = attached_.find(process);
  if (found == attached_.end() || found->second.info.segment == nullptr) return "";
  const auto* page = reinterpret_cast<const ProcessPage*>(found->second.info.segment->data());
  char copy[sizeof(page->running)];
  std::memcpy(copy, page->running, sizeof(copy));
  return ToValidUtf8({copy, strnlen(copy, sizeof(copy))});
}

Channel* AttachServer::ToolChannel(ProcessId process) {
  const auto found = attached_.find(process);
  return found == attached_.end() ? nullptr : found->second.tool.get();
}

}  // namespace sheaf
