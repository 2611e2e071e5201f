// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The calls of a cluster that have ended, as a trace that viewers show: chrome://tracing and
// ui.perfetto.dev. A process of the trace is a node, a thread one of a worker; arrows go from the
// call that made another to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/raylet.pb.h"

namespace sheaf::telemetry {

struct CallTrace {
  std::vector<proto::TaskRow> calls;  // An attempt each, that ran; by when they began.
  uint64_t lost = 0;                  // Came and went before a node looked, and are not here.
};

enum class TraceFormat {
  kChrome,    // JSON. Viewers crash at some hundred MB.
  kPerfetto,  // A Trace of TrackEvents (proto/perfetto.proto), some 35 bytes a call.
};
// As a fraction of what the formats bear: more is not asked for.
inline constexpr size_t kMostChromeCalls = 200'000;
inline constexpr size_t kMostPerfettoCalls = 2'000'000;
size_t MostCallsOf(TraceFormat format);

// "json" or "chrome", "perfetto". kInvalidArgument: neither; the message names both.
absl::StatusOr<TraceFormat> ParseTraceFormat(std::string_view text);

using AskState =
    absl::FunctionRef<absl::StatusOr<proto::StateAnswer>(const proto::StateQuery& query)>;

// The last calls that ended, `most` at most, asked for by pages, as one answer does not hold all.
// `job`: of this one only; 0: of all. Errors are those of `ask`, and what an answer says.
absl::StatusOr<CallTrace> CollectCalls(AskState ask, size_t most, uint32_t job = 0);

std::string WriteTrace(const CallTrace& trace, TraceFormat format);

}  // namespace sheaf::telemetry
