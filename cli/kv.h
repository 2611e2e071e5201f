// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// `sheaf kv`: what the cluster's key-value store holds, for people who look for what fills it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/query.h"

namespace sheaf::cli {

struct KvOptions {
  QueryOptions query;
  std::optional<std::string> name_space;  // List: nullopt is all; others: nullopt is the empty one.
  std::string key;                        // List: a prefix.
  bool prefix = false;                    // Delete: all keys that begin with `key`.
  uint32_t limit = 0;
};

int RunKvList(const KvOptions& options);
int RunKvGet(const KvOptions& options);  // The value as it is; kNotThere: no such key.
int RunKvDelete(const KvOptions& options);

}  // namespace sheaf::cli
