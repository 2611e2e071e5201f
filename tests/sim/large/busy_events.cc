// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "tests/sim/large/busy_events.h"

#include <utility>

#include "base/check.h"

namespace sheaf::sim {
namespace {

constexpr uint16_t kThreads = 16;
constexpr Nanos kCall = 5 * kMillisecond;
constexpr Nanos kThought = 200 * kMicrosecond;  // Of the thread that answers.
constexpr size_t kHistoryBytes = 1 << 20;

}  // namespace

BusyWorker::BusyWorker() {
  auto fd = MakeSegment("simulated-events", kProcessSegmentBytes);
  SHEAF_CHECK(fd.ok(), "no memory for a segment");
  auto mapping = Mapping::Map(fd->get(), 0, kProcessSegmentBytes, Access::kReadWrite);
  SHEAF_CHECK(mapping.ok(), "no memory for a segment");
  segment_ = std::make_shared<Mapping>(*std::move(mapping));
  writer_ = std::make_unique<telemetry::EventWriter>(telemetry::EventPageOf(segment_->data()));
  writer_->SetJob(1);
  function_ = writer_->FunctionOf("simulated", telemetry::CallKind::kTask);
}

const telemetry::EventPage& BusyWorker::page() const {
  return telemetry::EventPageOf(segment_->data());
}

void BusyWorker::Work(Nanos begin, Nanos end) {
  for (; begin + kCall <= end; begin += kCall) {
    for (uint16_t thread = 0; thread < kThreads; ++thread) {
      telemetry::TaskEvent event;
      event.task = {1, ++calls_ << 16};
      event.function = function_;
      event.thread = thread;
      event.begin = begin;
      event.end = begin + kCall;
      writer_->Record(event);
    }
  }
}

BusyEvents::BusyEvents(const World& world, NodeNumber node, const BusyWorker& worker,
                       std::function<void(Nanos, std::function<void()>)> on_loop)
    : world_(world), on_loop_(std::move(on_loop)), history_(kHistoryBytes) {
  history_.Add(ProcessId{node, 1'000'000}, 1, worker.page());
}

void BusyEvents::Ask(const proto::StateQuery& query, uint32_t limit,
                     std::function<void(proto::StateAnswer)> done) {
  history_.Read();
  proto::StateAnswer answer;
  if (query.what() == proto::StateQuery::FUNCTIONS) {
    history_.AddFunctions(answer);
  } else if (query.what() == proto::StateQuery::DIGEST) {
    digests_.Fill(query, history_, telemetry::HostSample{}, world_.now(), /*to_wall=*/0,
                  *answer.add_digests());
  } else if (query.what() == proto::StateQuery::TASKS) {
    history_.AddTasks(query, limit, /*to_wall=*/0, answer);
  }
  on_loop_(kThought, [done = std::move(done), answer = std::move(answer)] { done(answer); });
}

}  // namespace sheaf::sim
