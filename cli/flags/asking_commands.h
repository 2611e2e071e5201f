// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The command lines of commands that ask a node. Whatever is given by reference outlives `app`;
// `run` is set to what the chosen command does.
#pragma once

#include <functional>

#include "cli/kv.h"
#include "cli/list.h"
#include "cli/logs/command.h"
#include "cli/query.h"

namespace CLI {
class App;
}

namespace sheaf::cli {

void AddList(CLI::App& app, ListOptions& options, std::function<int()>& run);
void AddKv(CLI::App& app, KvOptions& options, std::function<int()>& run);
void AddLogs(CLI::App& app, LogsOptions& options, std::function<int()>& run);

}  // namespace sheaf::cli
