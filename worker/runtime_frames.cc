// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/parse_frame.h"
#include "worker/core/state_rows.h"
#include "worker/runtime_impl.h"

namespace sheaf {

void RuntimeImpl::OnMalformed(ProcessId from) {
  if (from == RayletOf(self_.node)) return EndRaylet("the ring from the raylet is damaged");
  // Nothing more is read of it, so its calls end only with its process. The lease that would name
  // it may be another's: 0 stands for the rings.
  proto::KillWorker damaged;
  damaged.set_process(from.packed());
  damaged.set_reason(absl::StrCat("the rings between the processes ", self_.ToString(), " and ",
                                  from.ToString(), " are damaged"));
  SendMessage(core_->raylet(), FrameKind::kKillWorker, damaged);
}

// A request that nothing can satisfy now goes on waiting; the driver's user is told at once.
void RuntimeImpl::SayNotice(const Frame& frame) {
  if (!options_.driver) return;
  std::string words, kind;
  if (frame.kind == FrameKind::kLeaseRefused) {
    const auto refused = ParseFrame<proto::LeaseRefused>(frame);
    if (!refused.ok() || static_cast<ErrorKind>(refused->error()) != ErrorKind::kNone) return;
    words = kind = refused->message();
  } else {
    const auto group = ParseFrame<proto::GroupState>(frame);
    if (!group.ok() || group->state() != proto::GroupState::INFEASIBLE) return;
    const auto id = PlacementGroupId::FromBinary(group->id());
    if (!id.ok()) return;
    const proto::GroupState* before = core_->groups.Find(*id);
    if (before != nullptr && before->state() == group->state()) return;  // Said before.
    kind = group->message();
    words = absl::StrCat("the placement group ", id->ToHex(), ": ", kind);
  }
  if (!words.empty()) notices_.Add(kind, words, clock_.Now());
}

void RuntimeImpl::OnFrame(ProcessId from, const Frame& frame) {
  if ((frame.kind == FrameKind::kLeaseRefused || frame.kind == FrameKind::kGroupState) &&
      from.is_raylet()) [[unlikely]]
    SayNotice(frame);
  core_->dispatch.OnFrame(from, frame);
}

void RuntimeImpl::OnHostFrame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kStateQuery: {
      const auto query = ParseFrame<proto::StateQuery>(frame);
      if (!query.ok()) return;
      if (query->what() == proto::StateQuery::STACKS) return stacks_.Answer(query->request());
      SendMessage(core_->raylet(), FrameKind::kStateAnswer, AnswerOf(*core_, *query));
      return;
    }
    case FrameKind::kStateAnswer: {
      auto answer = ParseFrame<proto::StateAnswer>(frame);
      if (answer.ok() && state_answers_.contains(answer->request())) {
        const uint64_t request = answer->request();
        state_answers_[request] = *std::move(answer);
        state_answers_[request].set_request(UINT64_MAX);  // Answered.
      }
      return;
    }
    case FrameKind::kLogLines: {
      auto lines = ParseFrame<proto::LogLines>(frame);
      if (lines.ok()) printer_.Print(*std::move(lines));
      return;
    }
    case FrameKind::kShutdown: {
      const auto shutdown = ParseFrame<proto::Shutdown>(frame);
      if (options_.driver)
        EndRaylet("the node shuts down: " + (shutdown.ok() ? shutdown->reason() : ""));
      if (shutdown.ok() && shutdown->when() != proto::Shutdown::NOW) {
        return departures_->OnAskedToLeave(shutdown->when() == proto::Shutdown::ONCE_FREE);
      }
      if (shutdown.ok() && shutdown->patience_ns() > 0) {
        leaves_by_ = Deadline(clock_.Now(), shutdown->patience_ns() / 10 * 9);
      } else {
        departures_->Hurry();
      }
      Leave();
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
  new_rings_.Announce(ProcessId::Unpack(ring.peer()), ring.ring(), clock_.Now());
  TakeNewRings();
}

void RuntimeImpl::TakeNewRings() {
  if (!new_rings_.awaits_some()) return;
  const absl::StatusOr<std::vector<ProcessId>> lost = new_rings_.Match(
      clock_.Now(),
      [this] {
        spare_descriptor_.Reset();
        return ReceiveRing(attached_.socket, 0);
      },
      [this](NewRingPair pair) {
        return mailbox_->AddRing(pair.peer, pair.segment.get(), pair.first, pair.peer_bell);
      });
  KeepSpareDescriptor();
  if (!lost.ok()) return EndRaylet("the raylet of this node has ended");
  for (const ProcessId peer : *lost) OnMalformed(peer);  // Their calls would wait for ever.
}

void RuntimeImpl::DrainRings(ProcessId dead) { mailbox_->Drain(dead, *this); }

}  // namespace sheaf
