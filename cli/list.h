// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf list KIND: what the node knows of, one row each.
#pragma once

#include <string>
#include <vector>

#include "cli/query.h"

namespace sheaf::cli {

// What KIND may be.
std::vector<std::string> ListedKinds();

struct ListOptions {
  QueryOptions query;
  std::string kind;    // One of ListedKinds.
  uint32_t limit = 0;  // Rows at most; 0: as many as the node gives, 10,000.
  // As the page's tables take them (dashboard/tables/table_page.h).
  std::vector<std::string> filters;  // "KEY=VALUE", "KEY!=VALUE", "KEY~VALUE": all must hold.
  std::string order;                 // "KEY", or "-KEY": the largest first.
  std::string ended = "false";       // Calls that have ended, too: "true"; no others: "only".
};

int RunList(const ListOptions& options);

}  // namespace sheaf::cli
