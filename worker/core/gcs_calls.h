// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions and commands of this process to the GCS, through its raylet: each is kept until it is
// answered, and said again when the raylet says that the GCS began another term or is reachable
// again, as what was on its way then may be lost; else ever more rarely, as its answer may only be
// long. Guarded by the runtime's lock.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/error_kind.h"
#include "base/transport.h"
#include "proto/gcs.pb.h"

namespace sheaf {

// What the answer says, as the status that users of the runtime get.
inline absl::Status ErrorOf(const proto::GcsReply& reply) {
  switch (static_cast<ErrorKind>(reply.error())) {
    case ErrorKind::kNone:
      return absl::OkStatus();
    case ErrorKind::kActorNameTaken:
      return absl::AlreadyExistsError(reply.message());
    case ErrorKind::kNotFound:
      return absl::NotFoundError(reply.message());
    case ErrorKind::kGcsStorageFull:
      return absl::ResourceExhaustedError(reply.message());
    case ErrorKind::kInvalidArgument:
      return absl::InvalidArgumentError(reply.message());
    default:
      return absl::UnavailableError(reply.message());
  }
}

class GcsCalls {
 public:
  static constexpr Nanos kSendAgainAfter = 2 * kSecond;  // Then twice as long each time,
  static constexpr Nanos kLongestPause = 8 * kSecond;    // up to this.

  GcsCalls(ProcessId self, Clock& clock, Transport& transport)
      : self_(self), clock_(clock), transport_(transport) {}

  // Sends `request`, of which only the doing counts: its answer is forgotten.
  void Tell(proto::GcsRequest request) { calls_[Begin(std::move(request))].nobody_waits = true; }
  // Sends `request`; returns its number, for Take.
  uint64_t Begin(proto::GcsRequest request) {
    const uint64_t sequence = next_++;
    request.set_client(self_.packed());
    request.set_sequence(sequence);
    request.set_confirmed_up_to(calls_.empty() ? sequence - 1 : calls_.begin()->first - 1);
    Call& call = calls_[sequence];
    call.request = std::move(request);
    Send(call);
    return sequence;
  }
  // True once the answer is there; it is moved out and forgotten.
  bool Take(uint64_t sequence, proto::GcsReply* reply) {
    auto call = calls_.find(sequence);
    if (call == calls_.end() || !call->second.answered) return false;
    *reply = std::move(call->second.reply);
    calls_.erase(call);
    return true;
  }
  void Abandon(uint64_t sequence) { calls_.erase(sequence); }
  void OnReply(proto::GcsReply reply) {
    auto call = calls_.find(reply.sequence());
    if (call == calls_.end() || call->second.answered) return;
    if (call->second.nobody_waits) {
      calls_.erase(call);
      return;
    }
    call->second.answered = true;
    call->second.reply = std::move(reply);
  }
  Nanos Tick() {
    Nanos next = kForever;
    for (auto& [sequence, call] : calls_) {
      if (call.answered) continue;
      if (clock_.Now() >= call.send_again_at) Send(call);
      next = std::min(next, call.send_again_at);
    }
    return next;
  }
  // An event of the GCS, or of the raylet in its name.
  void OnEvent(const proto::GcsEvent& event) {
    if (!event.has_restarted()) return;
    for (auto& [sequence, call] : calls_) {
      if (call.answered) continue;
      call.pause = 0;
      Send(call);
    }
  }

 private:
  struct Call {
    proto::GcsRequest request;
    proto::GcsReply reply;
    bool answered = false;
    bool nobody_waits = false;
    Nanos send_again_at = 0;
    Nanos pause = 0;  // Between the last two times; 0: as if it had not been sent.
  };
  void Send(Call& call) {
    call.pause = call.pause == 0 ? kSendAgainAfter : std::min(2 * call.pause, kLongestPause);
    call.send_again_at = clock_.Now() + call.pause;
    SendMessage(transport_.To(RayletOf(self_.node)), FrameKind::kGcsRequest, call.request);
  }
  const ProcessId self_;
  Clock& clock_;
  Transport& transport_;
  uint64_t next_ = 1;
  absl::btree_map<uint64_t, Call> calls_;
};

}  // namespace sheaf
