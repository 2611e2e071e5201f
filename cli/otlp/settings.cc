// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/otlp/settings.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace sheaf::cli {
namespace {

using Environment = std::map<std::string, std::string>;

// A variable that has a value; the one for traces counts before the one for all signals.
struct Variable {
  std::string name, value;
};
Variable Find(const Environment& environment, std::string name) {
  const auto found = environment.find(name);
  return {std::move(name),
          found == environment.end()
              ? ""
              : std::string(absl::StripAsciiWhitespace(absl::string_view(found->second)))};
}
Variable FindOtlp(const Environment& environment, const std::string& name) {
  Variable of_traces = Find(environment, "OTEL_EXPORTER_OTLP_TRACES_" + name);
  return of_traces.value.empty() ? Find(environment, "OTEL_EXPORTER_OTLP_" + name) : of_traces;
}

// Whether `name` is one of several, separated by commas.
bool Lists(const std::string& names, absl::string_view name) {
  for (const absl::string_view one : absl::StrSplit(names, ',')) {
    if (absl::StripAsciiWhitespace(one) == name) return true;
  }
  return false;
}

absl::Status Bad(const Variable& variable, const std::string& want) {
  return absl::InvalidArgumentError(
      absl::StrCat(variable.name, "='", variable.value, "': want ", want));
}

// Of values that may be secrets: they appear nowhere.
absl::Status BadPair(const Variable& variable, size_t number, const std::string& want) {
  return absl::InvalidArgumentError(
      absl::StrCat("entry ", number, " of ", variable.name, ": want ", want));
}

// As percent-encoding has it.
bool Decode(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    uint32_t byte = 0;
    if (i + 2 >= text.size() || !absl::SimpleHexAtoi(std::string(text.substr(i + 1, 2)), &byte))
      return false;
    out->push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

// name=value,name=value
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadPairs(
    const Variable& variable) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const absl::string_view part : absl::StrSplit(variable.value, ',', absl::SkipWhitespace())) {
    const size_t number = pairs.size() + 1;
    const size_t equals = part.find('=');
    const absl::string_view name =
        absl::StripAsciiWhitespace(part.substr(0, std::min(equals, part.size())));
    if (equals == absl::string_view::npos || name.empty())
      return BadPair(variable, number, "NAME=VALUE, separated by commas");
    const absl::string_view encoded = absl::StripAsciiWhitespace(part.substr(equals + 1));
    std::string value;
    if (!Decode({encoded.data(), encoded.size()}, &value) ||
        std::any_of(value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n'; }))
      return BadPair(variable, number,
                     "a value whose percent-encoding can be read, without line breaks");
    pairs.emplace_back(std::string(name), std::move(value));
  }
  return pairs;
}

// What HTTP can carry.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadHeaders(
    const Variable& variable) {
  constexpr size_t kMostBytes = 8 * 1024;
  SHEAF_ASSIGN_OR_RETURN(auto headers, ReadPairs(variable));
  for (size_t i = 0; i < headers.size(); ++i) {
    const auto& [name, value] = headers[i];
    const bool is_token = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) ||
             std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) !=
                 std::string_view::npos;
    });
    if (!is_token || name.size() > kMostBytes || value.size() > kMostBytes)
      return BadPair(variable, i + 1, "the name of a header and a value, each of 8 KiB at most");
  }
  return headers;
}

absl::StatusOr<http::Url> ReadEndpoint(const Environment& environment) {
  Variable variable = Find(environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
  std::string text = variable.value;
  if (text.empty()) {
    variable = Find(environment, "OTEL_EXPORTER_OTLP_ENDPOINT");
    text = absl::StrCat(absl::StripSuffix(variable.value, "/"), "/v1/traces");
  }
  absl::StatusOr<http::Url> url = http::ParseUrl(text);
  if (!url.ok()) return Bad(variable, "https://HOST:PORT, or http:// of this machine");
  if (!url->tls && !url->is_loopback()) {
    return Bad(variable,
               "https://, for spans tell of arguments' failures and of names; http:// only where "
               "the receiver is this machine's (localhost), as a collector beside the node is");
  }
  return url;
}

absl::StatusOr<telemetry::TraceSampling> ReadSampling(const Environment& environment) {
  telemetry::TraceSampling sampling;
  const Variable sampler = Find(environment, "OTEL_TRACES_SAMPLER");
  // Without a sampler the ratio alone says enough.
  absl::string_view name = "parentbased_traceidratio";
  if (!sampler.value.empty()) name = sampler.value;
  sampling.follows_caller = absl::ConsumePrefix(&name, "parentbased_");
  if (name == "always_on") return sampling;
  if (name == "always_off") {
    sampling.ratio = 0;
    return sampling;
  }
  if (name != "traceidratio") {
    return Bad(sampler,
               "always_on, always_off, traceidratio, or one of these with parentbased_ before it");
  }
  const Variable ratio = Find(environment, "OTEL_TRACES_SAMPLER_ARG");
  if (ratio.value.empty()) return sampling;
  if (!absl::SimpleAtod(ratio.value, &sampling.ratio) ||
      !(sampling.ratio >= 0 && sampling.ratio <= 1))
    return Bad(ratio, "a part of all traces, from 0 to 1");
  return sampling;
}

absl::StatusOr<telemetry::SpanAttributes> ReadResource(const Environment& environment) {
  SHEAF_ASSIGN_OR_RETURN(telemetry::SpanAttributes resource,
                         ReadPairs(Find(environment, "OTEL_RESOURCE_ATTRIBUTES")));
  const std::string name = Find(environment, "OTEL_SERVICE_NAME").value;
  const auto known = std::find_if(resource.begin(), resource.end(),
                                  [](const auto& one) { return one.first == "service.name"; });
  if (known == resource.end()) {
    resource.emplace_back("service.name", name.empty() ? "sheaf" : name);
  } else if (!name.empty()) {
    known->second = name;
  }
  return resource;
}

}  // namespace

absl::StatusOr<std::optional<OtlpSettings>> OtlpSettingsOf(const Environment& environment) {
  const std::string disabled = absl::AsciiStrToLower(Find(environment, "OTEL_SDK_DISABLED").value);
  const Variable exporters = Find(environment, "OTEL_TRACES_EXPORTER");
  if (FindOtlp(environment, "ENDPOINT").value.empty() || disabled == "true" ||
      exporters.value == "none")
    return std::nullopt;
  if (!exporters.value.empty() && !Lists(exporters.value, "otlp"))
    return Bad(exporters, "otlp, which is what nodes export, also among others, or none");
  const Variable protocol = FindOtlp(environment, "PROTOCOL");
  if (!protocol.value.empty() && protocol.value != "http/protobuf") {
    return Bad(
        protocol,
        "http/protobuf, which nodes speak: set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to it, and "
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to the receiver's URL for it, as "
        "https://HOST:4318/v1/traces");
  }
  OtlpSettings settings;
  SHEAF_ASSIGN_OR_RETURN(settings.url, ReadEndpoint(environment));
  SHEAF_ASSIGN_OR_RETURN(settings.headers, ReadHeaders(FindOtlp(environment, "HEADERS")));
  settings.authorities = FindOtlp(environment, "CERTIFICATE").value;
  if (const Variable timeout = FindOtlp(environment, "TIMEOUT"); !timeout.value.empty()) {
    int64_t milliseconds = 0;
    if (!absl::SimpleAtoi(timeout.value, &milliseconds) || milliseconds <= 0 ||
        milliseconds > 3'600'000)
      return Bad(timeout, "milliseconds, from 1 to 3600000");
    settings.timeout = milliseconds * kMillisecond;
  }
  SHEAF_ASSIGN_OR_RETURN(settings.sampling, ReadSampling(environment));
  SHEAF_ASSIGN_OR_RETURN(settings.resource, ReadResource(environment));
  return settings;
}

}  // namespace sheaf::cli
