// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Where the spans of a node's calls go: the variables of OpenTelemetry, as its specification has
// them ("OpenTelemetry Protocol Exporter", "Environment Variables").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "http/client.h"
#include "telemetry/otlp_encoder.h"
#include "telemetry/span_queue.h"

namespace sheaf::cli {

struct OtlpSettings {
  http::Url url;
  std::string authorities;  // A PEM file; "": the system's.
  std::vector<std::pair<std::string, std::string>> headers;
  Nanos timeout = 10 * kSecond;  // Of one request.
  // So long the same spans are sent again: what is in them may be why they are not taken.
  Nanos patience = 64 * kSecond;
  telemetry::TraceSampling sampling;
  telemetry::SpanAttributes resource;
};

// nullopt: nothing names an endpoint, or traces are switched off. kInvalidArgument: a value that
// cannot be used; the text names the variable, the value and what is wanted.
absl::StatusOr<std::optional<OtlpSettings>> OtlpSettingsOf(
    const std::map<std::string, std::string>& environment);

}  // namespace sheaf::cli
