// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Lines of logs as JSON with the names of the Elastic Common Schema, as ecs-logging writes them: the
// first four names have dots, the others are objects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace sheaf {

struct EcsEvent {
  Nanos unix_ns = 0;
  std::string_view level;  // "info"
  std::string_view message;
  std::string_view dataset;  // "sheaf.worker"
  int32_t os_pid = 0;
  std::string sheaf = {};  // JSON: what only Sheaf knows of it. Empty: nothing.
};

// One line without its end. Bytes that are not UTF-8 become U+FFFD. A message that is a JSON object
// itself is not quoted: its members are those of the line, before those that this would say.
std::string EcsLine(const EcsEvent& event);

}  // namespace sheaf
