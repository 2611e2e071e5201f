// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Scripts that let a shell complete the command line of `sheaf`.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sheaf::cli {

struct CommandWords {
  std::string name;
  std::string help;                  // One line.
  std::vector<std::string> options;  // "--json".
  std::vector<std::string> values;   // Of its positional argument, if they are known.
};

// Of the commands of `app`, a CLI::App, that people type. `values`: of positional arguments, by the
// command.
template <class App>
std::vector<CommandWords> WordsOf(const App& app,
                                  const std::map<std::string, std::vector<std::string>>& values) {
  std::vector<CommandWords> commands;
  for (const auto* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;  // Internal.
    CommandWords words{command->get_name(), command->get_description(), {}, {}};
    for (const auto* part : command->get_subcommands({})) words.values.push_back(part->get_name());
    for (const auto* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) words.options.push_back("--" + name);
    }
    if (const auto known = values.find(words.name); known != values.end()) {
      words.values = known->second;
    }
    commands.push_back(std::move(words));
  }
  return commands;
}

// `shell` is "bash", "zsh" or "fish".
std::string CompletionScript(std::string_view shell, const std::vector<CommandWords>& commands);

}  // namespace sheaf::cli
