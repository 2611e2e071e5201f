// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf dump: what a bug report wants to know of a node and its cluster, in one file, without secrets.
#pragma once

#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct DumpOptions {
  QueryOptions query;
  std::string file;  // Made anew; it must not be there.
};

int RunDump(const DumpOptions& options);

}  // namespace sheaf::cli
