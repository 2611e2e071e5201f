// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf why ID: why a task, actor or placement group is pending, in words.
#pragma once

#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct WhyOptions {
  QueryOptions query;
  std::string id;  // 32 hexadecimal digits, as `sheaf list` prints them.
};

int RunWhy(const WhyOptions& options);

}  // namespace sheaf::cli
