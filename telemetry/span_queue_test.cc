// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/span_queue.h"

#include <thread>

#include "catch2/catch.hpp"
#include "telemetry/event_page_for_test.h"

namespace sheaf::telemetry {
namespace {

std::shared_ptr<const TaskHistory::Place> PlaceIn(JobNumber job) {
  return std::make_shared<const TaskHistory::Place>(
      TaskHistory::Place{{1, 2}, 100, job, {}, "f", CallKind::kTask});
}

TEST_CASE("what has no room is dropped and counted, and nobody waits") {
  SpanQueue queue({});
  const auto place = PlaceIn(1);
  for (uint64_t i = 0; i < SpanQueue::kMost + 5; ++i)
    queue.Add(EventOf(i + 1, 0, 1, 2), place, "", {});
  CHECK(queue.dropped() == 5);
  size_t taken = 0;
  uint64_t last = 0;
  while (taken < SpanQueue::kMost) {
    for (const CallSpan& span : queue.Take(0)) {
      CHECK(span.event.task.sequence_bits > last);  // The oldest first.
      last = span.event.task.sequence_bits;
      ++taken;
    }
  }
  queue.Add(EventOf(1, 0, 1, 2), place, "", {});
  queue.Close();
  queue.Add(EventOf(2, 0, 1, 2), place, "", {});
  CHECK(queue.dropped() == 6);
  CHECK(queue.Take(kForever).size() == 1);  // What was there before is still to be had.
  CHECK(queue.Take(kForever).empty());
}

TEST_CASE("who waits for spans is freed by the end") {
  SpanQueue queue({});
  std::thread ender([&] { queue.Close(); });
  CHECK(queue.Take(kForever).empty());
  ender.join();
}

TEST_CASE("a job is a trace, another one in each cluster") {
  SpanQueue one({}), same({}), other({});
  one.SetCluster(std::string(16, 'a'));
  same.SetCluster(std::string(16, 'a'));
  other.SetCluster(std::string(15, 'a') + "b");
  std::vector<TraceContext> traces;
  for (SpanQueue* queue : {&one, &same, &other}) {
    for (const JobNumber job : {1, 2}) {
      queue->Add(EventOf(1, 0, 1, 2), PlaceIn(job), "", {});
      traces.push_back(queue->Take(0)[0].trace);
    }
  }
  CHECK(traces[0] == traces[2]);
  CHECK(traces[1] == traces[3]);
  CHECK(traces[0].trace_low != traces[1].trace_low);
  CHECK(traces[0].trace_low != traces[4].trace_low);
  CHECK(traces[0].span == 0);  // A driver made the call.
}

TEST_CASE("the span of the call that made another is what its own event comes to") {
  SpanQueue queue({});
  const TaskId parent{7, 3 << 16};  // Of some owner; the process 9 ran it, for the second time.
  TaskEvent child = EventOf(1, 0, 1, 2);
  child.task.maker_bits = 9;
  child.parent_sequence = parent.sequence_bits;
  child.parent_tag = TagOf(parent, 1);
  queue.Add(child, PlaceIn(1), "", {});
  CHECK(queue.Take(0)[0].trace.span == SpanOf(9, parent.sequence_bits, TagOf(parent, 1)));
  CHECK(TagOf(parent, 1) != TagOf(parent, 0));
}

TEST_CASE("traces are sampled whole: a user's as it says, jobs by a ratio") {
  const TraceContext sampled{1, ~uint64_t{0}, 3, TraceContext::kSampled};
  const TraceContext unsampled{1, 0, 3, 0};
  const auto passes = [](TraceSampling sampling, const TraceContext& trace, JobNumber job = 1) {
    SpanQueue queue(sampling);
    queue.Add(EventOf(1, 0, 1, 2), PlaceIn(job), "", trace);
    queue.Close();
    return !queue.Take(0).empty();
  };
  CHECK(passes({.ratio = 0}, sampled));
  CHECK(!passes({.ratio = 1}, unsampled));
  CHECK(!passes({.ratio = 0.5, .follows_caller = false}, sampled));
  CHECK(passes({.ratio = 0.5, .follows_caller = false}, unsampled));
  CHECK(!passes({.ratio = 0}, {}));
  int jobs = 0;
  for (JobNumber job = 1; job <= 1000; ++job) jobs += passes({.ratio = 0.25}, {}, job);
  CHECK(jobs > 150);
  CHECK(jobs < 350);
}

}  // namespace
}  // namespace sheaf::telemetry
