// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Profiles (StateAnswer::profile) in the formats that viewers of them read. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

enum class ProfileFormat : uint8_t {
  kText,        // A tree for people, what took longest first.
  kJson,        // {"functions":[{"function","file","line","job","parent","self_us"}],"truncated",
                // "late_nodes"}; `parent` is a place in the list, null: none.
  kFolded,      // "f (x.py);g (x.py) 1234", in microseconds: flamegraph.pl, inferno.
  kSvg,         // A flame graph.
  kSpeedscope,  // JSON for speedscope.app.
  kPprof,       // profile.proto, compressed: go tool pprof, Pyroscope, Parca.
};
inline constexpr char kProfileFormats[] = "text, json, folded, svg, speedscope, pprof";
// nullopt: none of these.
std::optional<ProfileFormat> ProfileFormatOf(std::string_view name);

// `from` and `to`: the time that was asked for, wall time in nanoseconds.
std::string FormatProfile(const proto::StateAnswer& answer, ProfileFormat format, int64_t from,
                          int64_t to);
const char* ContentTypeOf(ProfileFormat format);

}  // namespace sheaf::dashboard
