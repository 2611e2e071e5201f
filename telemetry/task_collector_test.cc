// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/task_collector.h"

#include <future>

#include "base/check.h"
#include "catch2/catch.hpp"
#include "telemetry/event_page_for_test.h"

namespace sheaf::telemetry {
namespace {

proto::StateAnswer Ask(TaskCollector& collector, proto::StateQuery::What what) {
  std::promise<proto::StateAnswer> answered;
  proto::StateQuery query;
  query.set_what(what);
  collector.Ask(query, 100, [&](proto::StateAnswer answer) { answered.set_value(answer); });
  return answered.get_future().get();
}

TEST_CASE("a question sees what was recorded before it, of the living and the gone") {
  TaskCollector collector;
  for (uint32_t i = 1; i <= 3; ++i) {
    auto segment = SegmentForTest();
    EventWriter writer(EventPageOf(segment->data()));
    const uint16_t function = writer.FunctionOf("f", CallKind::kTask);
    collector.Add({1, i}, 100, segment);
    writer.Record(EventOf(i, function, 1, 2));
    CHECK(Ask(collector, proto::StateQuery::TASKS).tasks_size() == static_cast<int>(i));
    if (i < 3) collector.Remove({1, i});
  }
  CHECK(Ask(collector, proto::StateQuery::TASKS).tasks_size() == 3);
  CHECK(Ask(collector, proto::StateQuery::FUNCTIONS).functions(0).finished() == 3);
}

TEST_CASE("what is asked just before the end is answered") {
  std::promise<void> answered;
  {
    TaskCollector collector;
    collector.Ask({}, 1, [&](const proto::StateAnswer&) { answered.set_value(); });
  }
  CHECK(answered.get_future().wait_for(std::chrono::seconds(0)) == std::future_status::ready);
}

}  // namespace
}  // namespace sheaf::telemetry
