// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A call into a library that may wait for another rank, in a thread of its own, so that whoever
// made it can look after other things and give it up.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"

namespace sheaf::nccl {

// For one thread, beside that of the call.
class BlockingCall {
 public:
  // Begins `call`, with all signals blocked. It owns what it uses: it may outlive this.
  explicit BlockingCall(std::function<absl::Status()> call);
  // A call that has not returned is left alone, and its thread with it.
  ~BlockingCall();
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;

  // Whether the call has returned; waits for that as long as `patience`.
  bool Returned(Nanos patience = 0) const;
  // What it returned, once it has. kResourceExhausted: no thread could be had, and it never ran.
  absl::Status status() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace sheaf::nccl
