// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What a cluster knows of, one row each, as `sheaf list` and the dashboard's page show it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "dashboard/tables/cells.h"
#include "proto/raylet.pb.h"

namespace sheaf {

inline constexpr std::array<const char*, 9> kListKinds = {"nodes",   "actors",    "tasks",
                                                          "objects", "jobs",      "groups",
                                                          "workers", "functions", "cluster-events"};

// The tasks in `answer`, in their order. An owner knows what it pushed, the worker what of it runs;
// of the latter's row the owner knows the rest.
std::vector<proto::TaskRow> MergedTasks(const proto::StateAnswer& answer);

// The rows of `kind` in `answer`. A task that both its owner and its worker reported has one row:
// it runs.
Listing ListingOf(std::string_view kind, const proto::StateAnswer& answer);
// The question for one of kListKinds.
proto::StateQuery ListQuery(std::string_view kind);
// `table`, the rows of `answer` that are wanted, as `--json` prints them. `truncated`: there are more.
std::string ListJson(std::string_view kind, const Listing& table, const proto::StateAnswer& answer,
                     bool truncated);
inline std::string ListJson(std::string_view kind, const proto::StateAnswer& answer) {
  return ListJson(kind, ListingOf(kind, answer), answer, answer.truncated());
}

}  // namespace sheaf
