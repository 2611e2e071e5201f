// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a node and the GCS that runs beside it, in a process of its own, say to each other: whole
// messages, in order, over a pair of sockets. Neither end ever waits for the other: what finds no
// room is kept, up to a limit.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/unix_socket.h"
#include "raylet/host/event_loop.h"

namespace sheaf::cli {

enum class GcsWord : uint32_t {
  // From the node.
  kFrame = 1,  // Of the raylet `peer`, for the GCS.
  kPulse,      // The node's process is not stopped: time goes on. About ten times a second.
  kBackup,     // Copy the database to the path in `body`; `peer` tells the questions apart.
  kEnd,        // Answer what has come, close the database, and end.
  // From the GCS. kFrame: for the raylet `peer`.
  kMember,      // Before kServing. `peer`: the number of a node that it knows; `body`: its address.
  kServing,     // It has started. `peer`: the term; `body`: the cluster's id.
  kFailed,      // It cannot start, or go on. `peer`: an absl::StatusCode; `body`: why.
  kBackupDone,  // `peer`: of the question; `kind`: an absl::StatusCode; `body`: its text.
};

struct GcsMessage {
  GcsWord word = GcsWord::kFrame;
  uint32_t kind = 0;  // Of kFrame: the FrameKind.
  uint64_t peer = 0;
  std::string body;
};

class GcsPipe : public std::enable_shared_from_this<GcsPipe> {
 public:
  struct Events {
    std::function<void(GcsMessage message)> on_message;
    std::function<void(std::string why)> on_end;  // Once: the other end is gone, or does not read.
  };
  // Events are called on `loop`, which outlives the pipe, from Start on.
  GcsPipe(EventLoop& loop, UnixSocket socket, Events events)
      : loop_(loop), socket_(std::move(socket)), events_(std::move(events)) {}

  // On the loop.
  void Start();
  // No event is called from here on, and the other end learns that this one is gone. On the loop.
  void Close();
  // Sends what is queued, for so long at most. Any thread.
  void SendAll(Nanos timeout);
  int fd() const { return socket_.fd(); }
  // Any thread. After the end it drops what it gets.
  void Send(GcsWord word, uint32_t kind, uint64_t peer, std::string_view body);

 private:
  void OnEvents(uint32_t events);
  bool Receive();
  // False: the other end is gone.
  bool SendQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const std::string& why);

  EventLoop& loop_;
  const UnixSocket socket_;
  Events events_;
  // The loop's.
  bool open_ = false;
  bool failed_ = false;  // To receive, once.
  GcsMessage coming_;    // Its body is not whole yet.
  size_t missing_ = 0;
  Mutex mutex_;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf::cli
