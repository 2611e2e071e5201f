// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A node that joins a cluster waits for its head, and is not deaf meanwhile.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sheaf::cli {

// For one thread, but for what says otherwise.
class Joining {
 public:
  // `head`: HOST:PORT, which may take `limit` from now on. `signals` can be read when a signal is
  // there that ends the node; `parent` when the program is over whose own node this is, -1: there is
  // none. Both outlive it.
  Joining(std::string head, Nanos limit, int signals, int parent);

  // OK; kCancelled: somebody wants the node to end, and it says who. The signal stays to be read.
  absl::Status Wanted() const;
  // Returns when the name of the head has an address and there is a way to it, in a cluster that
  // starts that may be after its nodes have: the address that this machine has on that way.
  // kDeadlineExceeded: there was none. kCancelled: see Wanted. kInvalidArgument: `head` is no
  // HOST:PORT.
  absl::StatusOr<std::string> AwaitWay() const;
  // Runs `join`, and returns what it does. When Wanted is no longer OK, `refuse`, which has to end
  // `join`, is called with that on another thread. Who starts the node is told after some seconds
  // what it waits for.
  absl::Status Run(const std::function<absl::Status()>& join,
                   const std::function<void(absl::Status)>& refuse) const;

  // `why` the head does not take this node, with the head's name. Any thread.
  absl::Status Refused(const absl::Status& why) const;
  // Why the head could not be reached just now; empty: it can be. Any thread.
  void OnUnreachable(std::string why);

  Nanos left() const { return std::max<Nanos>(deadline_ - MonotonicNow(), 0); }

 private:
  absl::Status Pause(Nanos longest) const;  // Ends as soon as Wanted is not OK, and returns it.
  void Say(const std::string& why) const;
  absl::Status Late(const std::string& why) const;
  std::string WhySilent() const;

  const std::string head_;
  const Nanos limit_;
  const Nanos deadline_ = Deadline(MonotonicNow(), limit_);
  const int signals_;
  const int parent_;
  mutable Mutex mutex_;
  std::string unreachable_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sheaf::cli
