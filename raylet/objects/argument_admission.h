// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Between the workers, which ask before they hold the arguments of a call, and the ledger that says
// when they may (argument_ledger.h). Pure; one thread. A malformed frame is kInvalidArgument, and
// changes nothing.
#pragma once

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/frame.h"
#include "base/ids.h"
#include "base/transport.h"
#include "object_store/server/store_server.h"
#include "raylet/objects/argument_ledger.h"

namespace sheaf {

class ArgumentAdmission {
 public:
  // All outlive it.
  ArgumentAdmission(Clock& clock, Transport& transport, const StoreServer& store);

  // kStoreHold: the arguments of a call that starts on the worker `from`, or what became of it.
  absl::Status OnHold(ProcessId from, const Frame& frame);
  void OnProcessGone(ProcessId process);
  // Tells those that may go on. To be called often: it costs nothing while nobody waits.
  void Settle();
  bool IsWaiting(ProcessId process) const { return ledger_.IsWaiting(process); }

 private:
  Clock& clock_;
  Transport& transport_;
  const StoreServer& store_;
  ArgumentLedger ledger_;
};

}  // namespace sheaf
