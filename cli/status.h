// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf status and sheaf memory: the node, what it has, what is asked of it; and the objects that
// fill its store.
#pragma once

#include <cstdint>
#include <string>

#include "cli/query.h"

namespace sheaf::cli {

int RunStatus(const QueryOptions& options);
int RunMemory(const QueryOptions& options, uint32_t limit);

// What `sheaf status` and `sheaf memory` print about `answer`.
std::string StatusText(const proto::StateAnswer& answer);
std::string StatusJson(const proto::StateAnswer& answer);
// The objects of `answer` come largest first; at most `limit` of them (0: all) are shown, all are
// summed.
std::string MemoryText(const proto::StateAnswer& answer, uint32_t limit);

// Prints the version, and the layout that processes of one node must share.
int RunVersion(bool json);

}  // namespace sheaf::cli
