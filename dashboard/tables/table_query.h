// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What is asked of the nodes for a page of a listing: what they can choose among their rows
// themselves, they do. `sheaf list` asks the same as the dashboard. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "dashboard/tables/table_page.h"
#include "proto/raylet.pb.h"

namespace sheaf::dashboard {

// For a page of `kind`, one of kListKinds. The answer holds what fits, and perhaps more: the caller
// arranges it (Arrange) unless it is of tasks, which come as they shall be. kInvalidArgument: tasks by a
// key, a value or in an order that they do not have; the text says which there are.
absl::StatusOr<proto::StateQuery> QueryOf(std::string_view kind, const PageOptions& options);

// How many live tasks come before the page; 0 where it begins among those that have ended.
int64_t BeforeOf(const PageOptions& options);

// Asks for rows alone whose `key` equals `value`, or does not.
void AddFilter(proto::StateQuery& query, const std::string& key, bool is_not,
               const std::string& value);

}  // namespace sheaf::dashboard
