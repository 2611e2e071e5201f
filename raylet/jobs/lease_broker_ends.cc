// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How leases end, and the workers with them.
#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "base/log.h"
#include "base/parse_frame.h"
#include "base/status_macros.h"
#include "metrics/counter.h"
#include "raylet/jobs/lease_broker.h"

namespace sheaf {

using metrics::Counter;
using metrics::CounterId;

namespace {

constexpr Nanos kLongestPatience = 5 * 60 * kSecond;
// A worker with GPUs or memory of its own keeps what others wait for, perhaps what it has begun.
constexpr Nanos kPatienceForHolders = 30 * kSecond;
constexpr char kNoMoreUse[] = "its owner has no more use for it";

// What a process has as long as it lives, whatever its lease.
bool HoldsUntilExit(const Lease& lease) {
  const Resources& held = lease.allocation.resources;
  return held.Get("GPU") > 0 || held.Get("memory") > 0;
}

}  // namespace

absl::Status LeaseBroker::OnReturn(ProcessId owner, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::LeaseReturn>(frame));
  if (const auto worker = revocations_.OnOwnerReturned(message.lease(), owner)) {
    deps_.pool.SetShunned(*worker, owner, false);
    deps_.queue.OnOwnerSpoke(owner, Now());
    return absl::OkStatus();
  }
  const Lease* lease = deps_.queue.Find(message.lease());
  if (lease == nullptr) return absl::OkStatus();
  const auto it = deps_.worker_of.find(lease->number);
  if (it != deps_.worker_of.end() && it->second == owner && lease->revoked) {
    Take(*lease, owner, message.discard_worker());
    return absl::OkStatus();
  }
  if (lease->demand.owner != owner) return absl::OkStatus();
  if (it == deps_.worker_of.end()) {
    Return(lease->number);
    return absl::OkStatus();
  }
  const ProcessId worker = it->second;
  // An actor's, which nobody wanted any more when it was granted: the worker may have begun something
  // for others before.
  const bool discard = message.discard_worker() || lease->spec->actor;
  deps_.pool.SetCalls(worker, lease->spec->name, message.calls());
  proto::LeaseEnd end;
  end.set_lease(lease->number);
  SendMessage(To(worker), FrameKind::kLeaseEnd, end);
  deps_.queue.OnUnneeded(lease->number);
  if (discard && HoldsUntilExit(*lease)) {
    deps_.queue.OnLeaving(lease->number, Now());
    deps_.pool.Retire(worker, kPatienceForHolders, kNoMoreUse);
    return absl::OkStatus();
  }
  deps_.processes.at(worker).lease = 0;
  deps_.pool.OnReturned(worker, discard);  // Before the queue grants to the next who needs one.
  Return(lease->number);
  return absl::OkStatus();
}

// The worker itself returns `lease`, as this raylet has told it to: its owner does not answer.
void LeaseBroker::Take(const Lease& lease, ProcessId worker, bool discard) {
  const LeaseNumber number = lease.number;
  Log(LogLevel::kInfo, lease.demand.owner.ToString(), " did not answer: lease ", number,
      " was taken from it");
  revocations_.OnTaken(number, lease.demand.owner, worker);
  deps_.pool.SetShunned(worker, lease.demand.owner, true);
  deps_.queue.OnOwnerSilent(number);
  if (discard && HoldsUntilExit(lease)) {
    deps_.queue.OnLeaving(number, Now());
    deps_.pool.Retire(worker, kPatienceForHolders, kNoMoreUse);
    return;
  }
  deps_.processes.at(worker).lease = 0;
  deps_.pool.OnReturned(worker, discard);
  Return(number);
}

absl::Status LeaseBroker::OnKillWorker(ProcessId owner, const Frame& frame) {
  SHEAF_ASSIGN_OR_RETURN(const auto message, ParseFrame<proto::KillWorker>(frame));
  if (message.lease() == 0) {  // It found damage in the rings that it shares with that process.
    const ProcessId peer = ProcessId::Unpack(message.process());
    const std::vector<ProcessId> peers = deps_.switchboard.PeersOf(owner);
    if (!absl::c_linear_search(peers, peer)) return absl::OkStatus();
    Counter(deps_.metrics, CounterId::kBadFrames).Add();
    // Either of the two may have done it, and nobody can tell which: users' own programs stay.
    for (const ProcessId end : {peer, owner}) {
      if (deps_.pool.Find(end) != nullptr) deps_.pool.Kill(end, message.reason());
    }
    return absl::OkStatus();
  }
  const Lease* lease = deps_.queue.Find(message.lease());
  if (lease == nullptr || lease->demand.owner != owner) return absl::OkStatus();
  const auto it = deps_.worker_of.find(lease->number);
  if (it == deps_.worker_of.end() || it->second.packed() != message.process())
    return absl::OkStatus();
  if (message.patience_ns() <= 0) {
    deps_.pool.Kill(it->second, message.reason());
  } else if (const Nanos patience = std::min(message.patience_ns(), kLongestPatience);
             deps_.pool.Dismiss(it->second, patience, message.reason())) {
    deps_.queue.OnLeaving(lease->number, Now());
    proto::Shutdown leave;
    leave.set_reason(message.reason());
    leave.set_patience_ns(patience);
    SendMessage(To(it->second), FrameKind::kShutdown, leave);
  }
  return absl::OkStatus();
}

void LeaseBroker::TellToLeave(const WorkerPool::Leaving& leaving) {
  if (!deps_.deaths.IsReachable(leaving.worker)) return;
  proto::Shutdown leave;
  leave.set_reason(leaving.reason);
  leave.set_when(leaving.for_good ? proto::Shutdown::ONCE_FREE : proto::Shutdown::IF_FREE);
  SendMessage(To(leaving.worker), FrameKind::kShutdown, leave);
}

}  // namespace sheaf
