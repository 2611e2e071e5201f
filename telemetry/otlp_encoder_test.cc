// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "telemetry/otlp_encoder.h"

#include <map>

#include "catch2/catch.hpp"
#include "proto/otlp_trace.pb.h"
#include "telemetry/event_page_for_test.h"

namespace sheaf::telemetry {
namespace {

std::map<std::string, std::string> AttributesOf(const proto::otlp::Span& span) {
  std::map<std::string, std::string> out;
  for (const auto& one : span.attributes()) {
    out[one.key()] = one.value().has_string_value() ? one.value().string_value()
                                                    : std::to_string(one.value().int_value());
  }
  return out;
}

proto::otlp::Span Encoded(const CallSpan& call) {
  proto::otlp::ExportTraceServiceRequest request;
  REQUIRE(request.ParseFromString(EncodeSpans({&call, 1}, {{"service.name", "mill"}}, 1000)));
  REQUIRE(request.resource_spans_size() == 1);
  const auto& all = request.resource_spans(0);
  CHECK(all.resource().attributes(0).value().string_value() == "mill");
  CHECK(all.scope_spans(0).scope().name() == "sheaf");
  REQUIRE(all.scope_spans(0).spans_size() == 1);
  return all.scope_spans(0).spans(0);
}

TEST_CASE("a span has the ids, times and names that others read") {
  TaskEvent event = EventOf(5, 1, 100, 300);
  event.weight = 16;
  const CallSpan call{event,
                      {0x0102030405060708, 9, 0x0a, 1},
                      std::make_shared<const TaskHistory::Place>(TaskHistory::Place{
                          {3, 4}, 77, 2, ActorId{1, 2}, "Mill.grind", CallKind::kActorMethod}),
                      ""};
  const proto::otlp::Span span = Encoded(call);
  CHECK(span.trace_id() == std::string("\1\2\3\4\5\6\7\10\0\0\0\0\0\0\0\11", 16));
  CHECK(span.parent_span_id() == std::string("\0\0\0\0\0\0\0\12", 8));
  CHECK(span.span_id().size() == 8);
  CHECK(span.name() == "Mill.grind ray.remote_worker");
  CHECK(span.start_time_unix_nano() == 1100);
  CHECK(span.end_time_unix_nano() == 1300);
  CHECK(!span.has_status());
  auto said = AttributesOf(span);
  CHECK(said["ray.actor_class"] == "Mill");
  CHECK(said["ray.actor_method"] == "grind");
  CHECK(said["ray.pid"] == "77");
  CHECK(said["ray.job_id"] == "00000002");
  CHECK(said["ray.task_id"] == event.task.ToHex());
  CHECK(said["sheaf.stands_for_calls"] == "16");
}

TEST_CASE("a failure says why, in valid UTF-8 whatever it was") {
  TaskEvent event = EventOf(5, 1, 100, 300);
  event.outcome = Outcome::kFailed;
  event.error = ErrorKind::kTaskFailed;
  const CallSpan call{event,
                      {1, 2, 0, 1},
                      std::make_shared<const TaskHistory::Place>(
                          TaskHistory::Place{{3, 4}, 77, 2, {}, "f\xff", CallKind::kTask}),
                      "no \xff room"};
  const proto::otlp::Span span = Encoded(call);
  CHECK(span.parent_span_id().empty());
  CHECK(span.status().code() == proto::otlp::Status::ERROR);
  CHECK(span.status().message() == "no \xef\xbf\xbd room");
  CHECK(span.name() == "f\xef\xbf\xbd ray.remote_worker");
  CHECK(AttributesOf(span)["sheaf.error_type"] == "TASK_EXECUTION_EXCEPTION");
}

}  // namespace
}  // namespace sheaf::telemetry
