// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is remembered of each call that this worker ran, for listings, counts and timelines
// (telemetry/task_events.h). Under the runtime's lock.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "telemetry/event_writer.h"
#include "worker/executor/execution.h"

namespace sheaf {

class CallEvents {
 public:
  CallEvents(ProcessId self, Clock& clock) : self_(self), clock_(clock) {}
  // nullptr: nothing is remembered.
  void set_writer(telemetry::EventWriter* writer) { writer_ = writer; }

  void OnActor(ActorId actor) {
    if (writer_ != nullptr) writer_->SetActor(actor);
  }
  // What calls of that template are counted as; 0 is fine where nothing is remembered.
  uint16_t FunctionOf(std::string_view name, const proto::TaskTemplate& spec) {
    return writer_ == nullptr ? telemetry::kOtherFunction
                              : writer_->FunctionOf(name, telemetry::CallKindOf(spec.kind()));
  }
  // User code is about to start.
  void OnStart(CallExecution& call) {
    if (writer_ != nullptr) Start(call);
  }
  // The call has ended, run or not. `end`: now; 0: the clock has not been read.
  void OnEnd(const CallExecution& call, Nanos end) {
    if (writer_ != nullptr) End(call, end);
  }

 private:
  void Start(CallExecution& call);
  void End(const CallExecution& call, Nanos end);

  const ProcessId self_;
  Clock& clock_;
  telemetry::EventWriter* writer_ = nullptr;
};

}  // namespace sheaf
