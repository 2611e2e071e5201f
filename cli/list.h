// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf list KIND: what the node knows of, one row each.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cli/query.h"
#include "cli/table.h"

namespace sheaf::cli {

inline constexpr std::array<const char*, 9> kListKinds = {"nodes",   "actors",    "tasks",
                                                          "objects", "jobs",      "groups",
                                                          "workers", "functions", "cluster-events"};

struct ListOptions {
  QueryOptions query;
  std::string kind;    // One of kListKinds.
  uint32_t limit = 0;  // Rows at most; 0: as many as the node gives, 10,000.
  bool ended = false;  // Calls that have ended, too.
};

int RunList(const ListOptions& options);

// The tasks in `answer`, in their order. An owner knows what it pushed, the worker what of it runs;
// of the latter's row the owner knows the rest.
std::vector<proto::TaskRow> MergedTasks(const proto::StateAnswer& answer);

// The rows of `kind` in `answer`. A task that both its owner and its worker reported has one row:
// it runs.
Table TableOf(std::string_view kind, const proto::StateAnswer& answer);
// The question for one of kListKinds, and the answer to it as `--json` prints it.
proto::StateQuery ListQuery(std::string_view kind);
std::string ListJson(std::string_view kind, const proto::StateAnswer& answer);

}  // namespace sheaf::cli
