// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The stacks of processes as text and as JSON.
#pragma once

#include <string>

#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// For people: each thread with its frames, the innermost first. What cannot be printed is escaped.
std::string StacksText(const proto::StateAnswer& answer);
// {"stacks":[{"process","os_pid","kind","running","words","threads":[{"name","os_thread",
// "coroutine","words","frames":[{"function","file","line"}]}]}],"truncated","late_nodes"}
std::string StacksJson(const proto::StateAnswer& answer);

}  // namespace sheaf::dashboard
