// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A segment of a process, and events to put there.
#pragma once

#include <memory>
#include <string_view>

#include "base/check.h"
#include "shm/segment.h"
#include "telemetry/event_reader.h"
#include "telemetry/event_writer.h"

namespace sheaf::telemetry {

inline std::shared_ptr<Mapping> SegmentForTest() {
  const auto fd = MakeSegment("test-process", kProcessSegmentBytes);
  SHEAF_CHECK(fd.ok(), "no segment");
  auto mapping = Mapping::Map(fd->get(), 0, kProcessSegmentBytes, Access::kReadWrite);
  SHEAF_CHECK(mapping.ok(), "not mapped");
  return std::make_shared<Mapping>(*std::move(mapping));
}

// Call `number` of the driver 1.2; it ran from begin to end.
inline TaskEvent EventOf(uint64_t number, uint16_t function, Nanos begin, Nanos end) {
  TaskEvent event;
  event.task = {ProcessId{1, 2}.packed(), number << 16};
  event.function = function;
  event.begin = begin;
  event.end = end;
  return event;
}

inline TaskEvent FailureOf(uint64_t number, uint16_t function, Nanos end, ErrorKind error) {
  TaskEvent event = EventOf(number, function, end, end);
  event.outcome = error == ErrorKind::kTaskCancelled ? Outcome::kCancelled : Outcome::kFailed;
  event.error = error;
  return event;
}

}  // namespace sheaf::telemetry
