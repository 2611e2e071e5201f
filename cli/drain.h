// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf drain NODE|self: a node takes no new work; what runs there goes on to its end. Then it can be
// stopped, and nothing is lost but objects that only it holds, which their owners compute anew.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "cli/query.h"

namespace sheaf::cli {

inline constexpr char kDrainSelf[] = "self";

struct DrainOptions {
  QueryOptions query;
  std::string node;           // A number, or kDrainSelf: the node that is asked.
  std::optional<Nanos> wait;  // Until nothing runs there, for so long at most.
};

int RunDrain(const DrainOptions& options);

}  // namespace sheaf::cli
