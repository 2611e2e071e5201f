// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Scripts that let a shell complete the command line of `sheaf`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sheaf::cli {

struct CommandWords {
  std::string name;
  std::string help;                  // One line.
  std::vector<std::string> options;  // "--json".
  std::vector<std::string> values;   // Of its positional argument, if they are known.
};

// `shell` is "bash", "zsh" or "fish".
std::string CompletionScript(std::string_view shell, const std::vector<CommandWords>& commands);

}  // namespace sheaf::cli
