// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The raylet's half of shm/attach.h: lets processes in, gives them their segments, joins them by
// rings, and says when their sockets end. Two threads: the event loop accepts, checks and reads;
// the raylet's loop owns the table of processes and makes segments and rings. What the kernel does
// not take at once is sent later by the event loop, so neither ever waits for a peer.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/executor.h"
#include "base/unix_socket.h"
#include "proto/common.pb.h"
#include "raylet/host/attach_connection.h"
#include "raylet/host/event_loop.h"
#include "raylet/host/process_watch.h"
#include "raylet/workers/attach_info.h"
#include "raylet/workers/launcher.h"
#include "raylet/workers/worker_claim.h"
#include "shm/attach.h"
#include "shm/mailbox.h"

namespace sheaf {

struct AttachServerOptions {
  std::string socket_path;
  NodeNumber node = 0;
  // The bell board; the raylet's own bell is 0. Outlives the server, as `arena_fd`.
  int board_fd = -1;
  int arena_fd = -1;
  uint64_t arena_bytes = 0;
  Nanos node_start = 0;
  Nanos hello_timeout = 5 * kSecond;
  bool spans_are_exported = false;  // Processes are told so.
  // Connections that have not said hello; further ones wait in the kernel.
  size_t max_strangers = 128;
};

// All called on the raylet's loop.
struct AttachServerEvents {
  // Rings and segment are there; no frame came yet.
  std::function<void(ProcessId, const AttachInfo&)> on_attached;
  std::function<void(ProcessId, Frame)> on_tool_frame;  // A tool's kStateQuery.
  // Drivers and tools; workers' ends are the launcher's.
  std::function<void(ProcessId, const proto::Death&)> on_exited;
  std::function<void(ProcessId)> on_socket_closed;
  // Its segment (AttachInfo::segment) begins or ceases to count.
  std::function<void(ProcessId, const AttachInfo&, bool added)> on_segment;
};

class AttachServer final : public Switchboard {
 public:
  // `claim` says whose a worker's token is; called on the event loop. All references outlive the
  // server; `loop` runs on the one thread that calls the methods below, `board` is mapped writable.
  AttachServer(AttachServerOptions options, AttachServerEvents events, EventLoop& event_loop,
               Executor& loop, Mailbox& mailbox, Bell* board, ProcessNumbers& numbers,
               std::function<absl::StatusOr<WorkerClaim>(std::string_view)> claim);
  // The event loop has stopped, or its work is not run any more.
  ~AttachServer() override;

  // Listens, and lets processes in from here on. The errors of UnixListener::Listen. Any thread.
  absl::Status Listen();
  // Lets nobody in any more; who comes is told that the node shuts down.
  void Close() { closing_ = true; }

  // Switchboard.
  absl::Status Connect(ProcessId a, ProcessId b) override;
  void Remove(ProcessId process) override;
  std::pair<LeaseNumber, uint64_t> Started(ProcessId process, ProcessId caller) override;
  std::string RunningOf(ProcessId process) override;
  std::vector<ProcessId> PeersOf(ProcessId process) override;

  // The executable that the driver sent, once; invalid if it is gone.
  UniqueFd TakeExecutable(ProcessId driver);
  // `process` is dead: rings the bells of all that it could have left asleep (shm/doorbell.h).
  void RingPeersOf(ProcessId process);
  // The channel to a tool, or nullptr when `process` is none. Only kStateAnswer frames are sent on.
  // Valid until Remove.
  Channel* ToolChannel(ProcessId process);

 private:
  class Tool;
  struct Attached {
    AttachInfo info;
    std::shared_ptr<AttachConnection> connection;
    uint32_t bell = 0;
    UniqueFd executable;
    absl::btree_set<ProcessId> peers;
    std::unique_ptr<Tool> tool;
    bool socket_closed = false;
  };
  // What a stranger said, once it is checked.
  struct Admission {
    AttachRole role = AttachRole::kTool;
    WorkerClaim claim;  // Of a worker.
    int32_t os_pid = 0;
    std::string words;
    UniqueFd executable;
    UniqueFd pidfd;
  };

  // On the event loop.
  absl::Status ListenWith(UnixListener listener);
  void KeepSocket();
  void AcceptSome();
  void OnReadable(const std::shared_ptr<AttachConnection>& connection);
  void OnHello(const std::shared_ptr<AttachConnection>& connection, SocketMessage message);
  void OnToolMessage(const std::shared_ptr<AttachConnection>& connection,
                     const SocketMessage& message);
  void Refuse(const std::shared_ptr<AttachConnection>& connection, AttachResult result,
              const std::string& words);
  void Drop(const std::shared_ptr<AttachConnection>& connection);
  void EndHello(const std::shared_ptr<AttachConnection>& connection);
  void Flush(const std::shared_ptr<AttachConnection>& connection);

  // On the raylet's loop.
  void Admit(const std::shared_ptr<AttachConnection>& connection,
             std::shared_ptr<Admission> admission);
  absl::Status Welcome(ProcessId process, Attached& attached, const Admission& admission);
  void OnSocketEnd(ProcessId process);
  void Send(const std::shared_ptr<AttachConnection>& connection, std::string bytes, UniqueFd fd);
  void SendRing(ProcessId to, ProcessId peer, bool first, int segment);
  absl::StatusOr<uint32_t> TakeBell();

  const AttachServerOptions options_;
  const AttachServerEvents events_;
  EventLoop& event_loop_;
  Executor& loop_;
  Mailbox& mailbox_;
  Bell* const board_;
  ProcessNumbers& numbers_;
  const std::function<absl::StatusOr<WorkerClaim>(std::string_view)> claim_;

  // The event loop's.
  std::optional<UnixListener> listener_;
  size_t strangers_ = 0;
  std::unique_ptr<ProcessWatch> watch_;

  // The raylet loop's.
  bool closing_ = false;
  absl::btree_map<ProcessId, Attached> attached_;
  std::vector<uint32_t> free_bells_;
  uint32_t next_bell_ = 1;
  uint64_t last_ring_ = 0;
};

}  // namespace sheaf
