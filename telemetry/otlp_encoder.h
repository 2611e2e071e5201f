// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Spans of calls as OTLP carries them (proto/otlp_trace.proto).
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "telemetry/span_queue.h"

namespace sheaf::telemetry {

using SpanAttributes = std::vector<std::pair<std::string, std::string>>;

// A request of the trace service with them, as its bytes travel. `resource`: what the node says of
// itself, "service.name" and so on. `to_wall`: wall time less monotonic time.
std::string EncodeSpans(std::span<const CallSpan> spans, const SpanAttributes& resource,
                        Nanos to_wall);

}  // namespace sheaf::telemetry
