// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Listings in numbers, as Ray's summaries have them.
#pragma once

#include <string>

#include "dashboard/state_table.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// The whole answer; of calls, by function, from an answer to FUNCTIONS.
std::string TaskSummary(const proto::StateAnswer& answer);
// Of actors, by class.
std::string ActorSummary(const StateTable& table);
// Of objects, by call site.
std::string ObjectSummary(const StateTable& table);

}  // namespace sheaf::dashboard
