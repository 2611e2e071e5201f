// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/executor/call_events.h"

#include <algorithm>
#include <atomic>

namespace sheaf {

void CallEvents::Start(CallExecution& call) {
  if (call.has_own_name()) [[unlikely]]
    call.function = FunctionOf(call.name(), call.spec());
  call.weight = writer_->Begin(call.function);
  if (call.trace().is_set()) [[unlikely]] {
    call.weight = std::max<uint16_t>(call.weight, 1);  // A user's trace has no gaps.
    if (writer_->spans_are_exported()) {
      call.inner_trace.span = SpanOf(self_.packed(), call.head().task_sequence_bits,
                                     TagOf(call.task(), call.attempt()));
    }
  }
  if (call.weight == 0) [[likely]]
    return;
  call.began = call.started != 0 ? call.started : clock_.Now();
  static std::atomic<uint16_t> threads{0};
  thread_local const uint16_t number = threads.fetch_add(1, std::memory_order_relaxed);
  call.thread = number;
  writer_->OnRunning(call.thread, {call.began, call.function});
}

void CallEvents::End(const CallExecution& call, Nanos end) {
  if (call.began != 0) writer_->OnNotRunning(call.thread, {call.began, call.function});
  const bool succeeded = call.succeeded();
  if (call.group == nullptr && (succeeded || call.discarded))
    return;  // It went back to its owner, or its owner is dead.
  if (succeeded && call.weight == 0) [[likely]]
    return writer_->Count(call.function);
  telemetry::TaskEvent event;
  event.task = call.task();
  event.end = end != 0 ? end : clock_.Now();
  event.begin = call.began != 0 ? call.began : call.started != 0 ? call.started : event.end;
  event.parent_sequence = call.head().parent_sequence_bits;
  event.parent_tag = call.head().parent_tag;
  event.created_ms = call.head().created_ms;
  event.function = call.function;
  event.thread = call.thread;
  event.attempt = static_cast<uint16_t>(call.attempt());
  if (succeeded) {
    event.weight = call.weight;
    return writer_->Record(event, call.trace());
  }
  event.error = call.failure().kind;
  event.outcome = event.error == ErrorKind::kTaskCancelled ? telemetry::Outcome::kCancelled
                                                           : telemetry::Outcome::kFailed;
  // What user code raised stands behind the traceback.
  const std::string_view text = call.failure().message;
  writer_->RecordFailure(event,
                         event.error == ErrorKind::kTaskFailed
                             ? telemetry::LastOf(text, telemetry::kErrorTextBytes)
                             : text,
                         call.trace());
}

}  // namespace sheaf
