// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "worker/executor/call_events.h"

#include "shm/process_segment.h"
#include "telemetry/event_reader.h"
#include "worker/executor/fake_execution_host.h"
#include "worker/executor/task_executor.h"
#include "worker/owner_state_for_test.h"

namespace sheaf {
namespace call_events_test {

using telemetry::Outcome;
using telemetry::TaskEvent;

constexpr ProcessId kCaller{1, 9};
constexpr uint64_t kLease = 5;

struct Worker : FakeExecutionHost {
  absl::Status SendItem(CallExecution&, const std::string&,
                        std::span<const ObjectHandle>) override {
    return absl::OkStatus();
  }
  void Ended(CallExecution* call) override {
    executor.NoteEnded(call);
    executor.FinishEnded();
  }
  Worker() {
    proto::LeaseBegin begin;
    begin.set_lease(kLease);
    executor.OnLeaseBegin(begin);
    executor.set_events(&writer);
  }
  void Push(uint64_t number, TraceContext trace = {}) {
    PushTaskHead head{};
    head.task_sequence_bits = number << 16;
    head.lease = kLease;
    head.push = number;
    head.attempt = 2;
    head.parent_sequence_bits = 77;
    head.created_ms = 123;
    proto::TaskTemplate spec;
    spec.set_name("square");
    executor.OnTemplate(kCaller, spec.SerializeAsString());
    if (trace.is_set()) head.flags = kTraced;
    std::string body(AsBytes(head));
    if (trace.is_set()) body += AsBytes(trace);
    executor.OnPush(kCaller, body);
  }
  std::shared_ptr<CallExecution> Start() { return executor.Take(executor.default_group()); }
  std::vector<TaskEvent> Events() {
    std::vector<TaskEvent> recorded;
    texts.clear();
    traces.clear();
    const uint64_t lost =
        reader.Drain([&](const TaskEvent& event, std::string_view text, const TraceContext& trace) {
          recorded.push_back(event);
          texts.emplace_back(text);
          traces.push_back(trace);
        });
    CHECK(lost == 0);
    return recorded;
  }

  Fixture process;
  ProcessPage page{};
  metrics::Page metrics{};
  std::unique_ptr<telemetry::EventPage> events = std::make_unique<telemetry::EventPage>();
  telemetry::EventWriter writer{*events};
  telemetry::EventReader reader{*events};
  TaskExecutor executor{kSelf,
                        process.clock,
                        process.transport,
                        process.owner.references,
                        process.owner.transits,
                        *this,
                        &page,
                        metrics};
  std::vector<std::string> texts;
  std::vector<TraceContext> traces;
};

SCENARIO("a call that ran is recorded with what its owner said of it") {
  Worker worker;
  worker.Push(1);
  const Nanos begin = worker.process.clock.Now();
  auto call = worker.Start();
  worker.process.clock.Advance(3 * kMillisecond);
  call.reset();
  const std::vector<TaskEvent> events = worker.Events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].task == TaskId{kCaller.packed(), 1 << 16});
  CHECK(events[0].begin == begin);
  CHECK(events[0].end == begin + 3 * kMillisecond);
  CHECK(events[0].parent_sequence == 77);
  CHECK(events[0].created_ms == 123);
  CHECK(events[0].attempt == 2);
  CHECK(events[0].outcome == Outcome::kFinished);
  CHECK(worker.reader.FiguresOf(events[0].function).name == "square");
}

SCENARIO(
    "a call in a user's trace is recorded with it, however quick, and what it does is below it") {
  Worker worker;
  const TraceContext trace{7, 8, 9, TraceContext::kSampled};
  for (uint64_t i = 1; i <= 100; ++i) {  // Sampled from here on.
    worker.Push(i);
    worker.Start().reset();
  }
  worker.Events();
  worker.Push(101, trace);
  auto call = worker.Start();
  CHECK(call->origin().trace == trace);  // Nobody exports its own span.
  call.reset();
  worker.events->header.spans_are_exported = 1;
  worker.Push(102, trace);
  call = worker.Start();
  CHECK(call->origin().trace.span ==
        SpanOf(kSelf.packed(), 102 << 16, TagOf(TaskId{kCaller.packed(), 102 << 16}, 2)));
  CHECK(call->origin().trace.trace_low == 8);
  call->Fail({ErrorKind::kTaskFailed, "no", {}}, false);
  call.reset();
  CHECK(worker.Events().size() == 2);
  CHECK(worker.traces == std::vector{trace, trace});
  worker.Push(103);
  call = worker.Start();
  CHECK(!call->origin().trace.is_set());  // Nothing is left of the one before it.
}

SCENARIO("failures keep the end of what was raised, and the beginning of what Sheaf says") {
  Worker worker;
  worker.Push(1);
  worker.Push(2);
  const std::string lengthy(1000, '-');
  worker.Start()->Fail({ErrorKind::kTaskFailed, "Traceback" + lengthy + "ValueError: no", {}},
                       false);
  worker.Start()->Fail({ErrorKind::kObjectLost, "the object" + lengthy, {}}, false);
  const std::vector<TaskEvent> events = worker.Events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].outcome == Outcome::kFailed);
  CHECK(events[0].error == ErrorKind::kTaskFailed);
  CHECK(worker.texts[0].ends_with("-ValueError: no"));
  CHECK(worker.texts[1].starts_with("the object-"));
}

SCENARIO("what did not run is recorded as cancelled, and what went back to its owner is not") {
  Worker worker;
  worker.Push(1);
  worker.Push(2);
  worker.executor.OnCancel(kCaller, TaskId{kCaller.packed(), 1 << 16}, false);
  proto::LeaseEnd end;
  end.set_lease(kLease);
  worker.executor.OnLeaseEnd(end);
  const std::vector<TaskEvent> events = worker.Events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].task.sequence_bits == 1 << 16);
  CHECK(events[0].outcome == Outcome::kCancelled);
  CHECK(events[0].begin == events[0].end);
}

SCENARIO("an owner records what no executor can") {
  Worker worker;
  OwnerState& owner = worker.process.owner;
  owner.tasks.set_figures({worker.metrics, metrics::HistogramId::kTaskLatency},
                          {worker.metrics, metrics::HistogramId::kActorCallLatency},
                          &worker.writer);
  const ObjectHandle result = worker.process.Submit(worker.process.Template());
  TaskRecord* task = result.entry()->task;
  REQUIRE(task != nullptr);
  owner.tasks.Fail(*task, {ErrorKind::kTaskUnschedulable, "no node has 9 CPU", {}});
  const std::vector<TaskEvent> events = worker.Events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].error == ErrorKind::kTaskUnschedulable);
  CHECK(worker.reader.FiguresOf(events[0].function).name == "square");
  CHECK(worker.texts[0] == "no node has 9 CPU");
}

SCENARIO("an owner records the attempt that its worker's death ended, though another follows") {
  Worker worker;
  OwnerState& owner = worker.process.owner;
  owner.tasks.set_figures({worker.metrics, metrics::HistogramId::kTaskLatency},
                          {worker.metrics, metrics::HistogramId::kActorCallLatency},
                          &worker.writer);
  const ObjectHandle result = worker.process.Submit(worker.process.Template(/*max_retries=*/1));
  worker.process.Grant();
  const uint64_t started = worker.process.TakePush().push;
  owner.OnProcessDied(kWorker, {}, started);
  const std::vector<TaskEvent> events = worker.Events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].attempt == 0);
  CHECK(events[0].outcome == Outcome::kFailed);
  CHECK(events[0].error == ErrorKind::kWorkerCrashed);
  CHECK(ObjectState{result.entry()->state} == ObjectState::kPending);
}

}  // namespace call_events_test
}  // namespace sheaf
