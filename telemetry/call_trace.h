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
#include "base/ids.h"
#include "proto/raylet.pb.h"

namespace sheaf::telemetry {

// An attempt of a call, with a hundred bytes: a cluster remembers millions.
struct TracedCall {
  TaskId task;
  ActorId actor;  // Nil: of none.
  uint64_t owner = 0, worker = 0;
  uint64_t parent_sequence = 0;
  int64_t created_unix_ms = 0;
  int64_t begin_unix_ns = 0, end_unix_ns = 0;
  uint32_t attempt = 0;
  uint32_t job = 0;
  uint32_t thread = 0;
  int32_t os_pid = 0;
  uint32_t weight = 0;
  uint32_t name = 0, state = 0;  // Places in `words`.
};

struct CallTrace {
  std::vector<TracedCall> calls;   // That ran, by when they began.
  std::vector<std::string> words;  // Each once; the first is empty.
  uint64_t lost = 0;               // Calls that came and went before a node looked.
};

enum class TraceFormat {
  kChrome,    // JSON. Viewers crash at some hundred MB.
  kPerfetto,  // A Trace of TrackEvents (proto/perfetto.proto), some 80 bytes a call.
};
// What viewers of the formats bear; more is not asked for.
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
