// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The commands that look at what runs, as the command line has them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/observe/dump.h"
#include "cli/observe/profile.h"
#include "cli/observe/stack.h"
#include "cli/observe/timeline.h"

namespace sheaf::cli {

class ObserveCommands {
 public:
  // `choose` gets what the command does that was given. This outlives `app`.
  void AddTo(CLI::App& app, const std::function<void(std::function<int()>)>& choose);

 private:
  StackOptions stack_;
  ProfileOptions profile_;
  DumpOptions dump_;
  TimelineOptions timeline_;
};

}  // namespace sheaf::cli
