// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/otlp/settings.h"

#include <catch2/catch.hpp>

namespace sheaf::cli {
namespace {

using Environment = std::map<std::string, std::string>;
constexpr char kEndpoint[] = "OTEL_EXPORTER_OTLP_ENDPOINT";

OtlpSettings Read(Environment environment) {
  environment.emplace(kEndpoint, "http://localhost:4318");
  const auto settings = OtlpSettingsOf(environment);
  REQUIRE(settings.ok());
  REQUIRE(settings->has_value());
  return **settings;
}

SCENARIO("nothing is exported where no endpoint is named, or it is switched off") {
  for (const Environment& environment :
       {Environment{}, Environment{{kEndpoint, ""}},
        Environment{{kEndpoint, "http://localhost"}, {"OTEL_SDK_DISABLED", "True"}},
        Environment{{kEndpoint, "http://localhost"}, {"OTEL_TRACES_EXPORTER", "none"}}}) {
    const auto settings = OtlpSettingsOf(environment);
    REQUIRE(settings.ok());
    CHECK(!settings->has_value());
  }
}

SCENARIO("an endpoint of all signals gets the path of traces, one of traces is taken as it is") {
  CHECK(Read({}).url.target == "/v1/traces");
  CHECK(Read({{kEndpoint, "https://host/base/"}}).url.target == "/base/v1/traces");
  CHECK(Read({{"OTEL_TRACES_EXPORTER", "console, otlp"}}).url.target == "/v1/traces");
  const OtlpSettings traces = Read({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other:1/x"}});
  CHECK(traces.url.host == "other");
  CHECK(traces.url.target == "/x");
}

SCENARIO("headers, the timeout and what the node says of itself") {
  const OtlpSettings settings = Read({{"OTEL_EXPORTER_OTLP_HEADERS", "a=1, b = x%20y,"},
                                      {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"},
                                      {"OTEL_RESOURCE_ATTRIBUTES", "zone=eu,service.name=old"},
                                      {"OTEL_SERVICE_NAME", "mill"}});
  CHECK(settings.headers ==
        std::vector<std::pair<std::string, std::string>>{{"a", "1"}, {"b", "x y"}});
  CHECK(settings.timeout == 250 * kMillisecond);
  CHECK(settings.resource == telemetry::SpanAttributes{{"zone", "eu"}, {"service.name", "mill"}});
  CHECK(Read({}).resource == telemetry::SpanAttributes{{"service.name", "sheaf"}});
}

SCENARIO("samplers, by the names of OpenTelemetry") {
  CHECK(Read({}).sampling.ratio == 1);
  CHECK(Read({{"OTEL_TRACES_SAMPLER_ARG", "0.25"}}).sampling.ratio == 0.25);
  CHECK(Read({{"OTEL_TRACES_SAMPLER_ARG", "0.25"}}).sampling.follows_caller);
  const auto plain =
      Read({{"OTEL_TRACES_SAMPLER", "traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", "0.5"}});
  CHECK(plain.sampling.ratio == 0.5);
  CHECK(!plain.sampling.follows_caller);
  CHECK(Read({{"OTEL_TRACES_SAMPLER", "parentbased_always_off"}}).sampling.ratio == 0);
}

SCENARIO("a value that cannot be used is named, with what is wanted") {
  const std::pair<Environment, const char*> bad[] = {
      {{{kEndpoint, "http://collector:4318"}}, "https://"},
      {{{kEndpoint, "collector:4318"}}, "https://HOST:PORT"},
      {{{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}}, "http/protobuf"},
      {{{"OTEL_EXPORTER_OTLP_HEADERS", "nonsense"}}, "NAME=VALUE"},
      {{{"OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0ab:1"}}, "without line breaks"},
      {{{"OTEL_EXPORTER_OTLP_HEADERS", "a=%4"}}, "percent-encoding"},
      {{{"OTEL_EXPORTER_OTLP_HEADERS", "Authorization: x=y"}}, "name of a header"},
      {{{"OTEL_EXPORTER_OTLP_HEADERS", "a=" + std::string(9000, 'x')}}, "8 KiB"},
      {{{"OTEL_EXPORTER_OTLP_TIMEOUT", "soon"}}, "milliseconds"},
      {{{"OTEL_TRACES_EXPORTER", "console"}}, "otlp"},
      {{{"OTEL_TRACES_EXPORTER", "zipkin,otlp_file"}}, "otlp"},
      {{{"OTEL_TRACES_SAMPLER", "jaeger_remote"}}, "always_on"},
      {{{"OTEL_TRACES_SAMPLER_ARG", "2"}}, "from 0 to 1"},
  };
  for (auto [environment, want] : bad) {
    const auto& [name, value] = *environment.begin();
    environment.emplace(kEndpoint, "http://localhost:4318");
    const absl::Status status = OtlpSettingsOf(environment).status();
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message().find(want) != std::string::npos);
    CHECK(status.message().find(name) != std::string::npos);
    // Values of headers are secrets.
    const bool is_told = status.message().find("='" + value + "'") != std::string::npos;
    CHECK(is_told == (name != "OTEL_EXPORTER_OTLP_HEADERS"));
  }
}

}  // namespace
}  // namespace sheaf::cli
