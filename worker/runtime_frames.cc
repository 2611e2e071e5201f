// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "worker/runtime_impl.h"

namespace sheaf {
namespace {

template <class Message>
bool Parse(std::string_view body, Message* message) {
  return message->ParseFromArray(body.data(), static_cast<int>(body.size()));
}

constexpr Nanos kRingWait = 5 * kSecond;  // For a descriptor that a frame announced.

}  // namespace

void RuntimeImpl::OnMalformed(ProcessId from) {
  if (from == RayletOf(self_.node)) EndRaylet("the ring from the raylet is damaged");
}

// A request that nothing can satisfy now goes on waiting; the driver's user is told at once.
void RuntimeImpl::SayNotice(const Frame& frame) {
  if (!options_.on_log_lines) return;
  std::string words;
  if (proto::LeaseRefused refused; frame.kind == FrameKind::kLeaseRefused &&
                                   Parse(frame.body, &refused) &&
                                   static_cast<ErrorKind>(refused.error()) == ErrorKind::kNone) {
    words = refused.message();
  }
  if (proto::GroupState group; frame.kind == FrameKind::kGroupState && Parse(frame.body, &group) &&
                               group.state() == proto::GroupState::INFEASIBLE) {
    const auto id = PlacementGroupId::FromBinary(group.id());
    if (!id.ok() || dispatch_->groups()[*id].state() == group.state()) return;  // Said before.
    words = absl::StrCat("the placement group ", id->ToHex(), ": ", group.message());
  }
  if (words.empty()) return;
  proto::LogLines lines;
  lines.set_name("sheaf");
  lines.set_os_pid(getpid());
  lines.set_error_stream(true);
  lines.add_lines(words);
  deferred_.push_back([this, lines = std::move(lines)] { options_.on_log_lines(lines); });
}

void RuntimeImpl::OnFrame(ProcessId from, const Frame& frame) {
  if ((frame.kind == FrameKind::kLeaseRefused || frame.kind == FrameKind::kGroupState) &&
      from.is_raylet()) [[unlikely]]
    SayNotice(frame);
  dispatch_->OnFrame(from, frame);
}

void RuntimeImpl::OnHostFrame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kStateQuery: {
      proto::StateQuery query;
      if (Parse(frame.body, &query)) AnswerStateQuery(query);
      return;
    }
    case FrameKind::kStateAnswer: {
      proto::StateAnswer answer;
      if (Parse(frame.body, &answer) && state_answers_.contains(answer.request())) {
        const uint64_t request = answer.request();
        state_answers_[request] = std::move(answer);
        state_answers_[request].set_request(UINT64_MAX);  // Answered.
      }
      return;
    }
    case FrameKind::kLogLines: {
      proto::LogLines lines;
      if (!options_.on_log_lines || !Parse(frame.body, &lines)) return;
      deferred_.push_back([this, lines = std::move(lines)] { options_.on_log_lines(lines); });
      return;
    }
    case FrameKind::kShutdown: {
      proto::Shutdown shutdown;
      Parse(frame.body, &shutdown);
      leaving_ = true;
      if (options_.driver) EndRaylet("the node shuts down: " + shutdown.reason());
      WakeWaiters();
      leaves_.notify_all();
      return;
    }
    default:
      return;  // Of a newer raylet.
  }
}

bool RuntimeImpl::KeepSpareDescriptor() {
  spare_descriptor_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return spare_descriptor_.valid();
}

void RuntimeImpl::OnNewRing(const proto::NewRing& ring) {
  spare_descriptor_.Reset();
  // At the end, when the pair is closed.
  const absl::Cleanup keep_again = [this] { KeepSpareDescriptor(); };
  absl::StatusOr<NewRingPair> pair = ReceiveRing(attached_.socket, kRingWait);
  if (!pair.ok()) {
    if (absl::IsUnavailable(pair.status())) EndRaylet("the raylet of this node has ended");
    return;
  }
  // Descriptors come in the order of their frames, so `pair` belongs to `ring` or the raylet is
  // broken.
  if (pair->peer.packed() != ring.peer()) return;
  mailbox_->AddRing(pair->peer, pair->segment.get(), pair->first, pair->peer_bell).IgnoreError();
}

void RuntimeImpl::DrainRings(ProcessId dead) { mailbox_->Drain(dead, *this); }

}  // namespace sheaf
