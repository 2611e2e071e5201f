// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/shell.h"

namespace sheaf::cli {
namespace {

std::string NamesOf(const std::vector<CommandWords>& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const CommandWords& command) {
    out->append(command.name);
  });
}

std::string Bash(const std::vector<CommandWords>& commands) {
  std::string out = absl::StrCat(
      "# bash completion for sheaf. Use: source <(sheaf completion bash)\n"
      "_sheaf() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} words\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '",
      NamesOf(commands),
      " --help --version' -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n");
  for (const CommandWords& command : commands) {
    absl::StrAppend(&out, "    ", command.name, ") words='", absl::StrJoin(command.values, " "),
                    " ", absl::StrJoin(command.options, " "), "' ;;\n");
  }
  return absl::StrCat(out,
                      "  esac\n"
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                      "}\n"
                      "complete -o default -F _sheaf sheaf\n");
}

std::string Zsh(const std::vector<CommandWords>& commands) {
  std::string out =
      "#compdef sheaf\n"
      "# zsh completion for sheaf. Use: source <(sheaf completion zsh)\n"
      "_sheaf() {\n"
      "  if ((CURRENT == 2)); then\n"
      "    local -a commands=(\n";
  for (const CommandWords& command : commands) {
    absl::StrAppend(&out, "      ", ShellQuoted(absl::StrCat(command.name, ":", command.help)),
                    "\n");
  }
  out +=
      "    )\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n";
  for (const CommandWords& command : commands) {
    absl::StrAppend(&out, "    ", command.name, ") compadd -- ", absl::StrJoin(command.values, " "),
                    " ", absl::StrJoin(command.options, " "), " ;;\n");
  }
  return absl::StrCat(out,
                      "  esac\n"
                      "}\n"
                      "compdef _sheaf sheaf\n");
}

std::string Fish(const std::vector<CommandWords>& commands) {
  std::string out =
      "# fish completion for sheaf. Use: sheaf completion fish | source\n"
      "complete -c sheaf -f\n";
  for (const CommandWords& command : commands) {
    absl::StrAppend(&out, "complete -c sheaf -n __fish_use_subcommand -a ", command.name, " -d ",
                    ShellQuoted(command.help), "\n");
    const std::string condition =
        ShellQuoted(absl::StrCat("__fish_seen_subcommand_from ", command.name));
    if (!command.values.empty()) {
      absl::StrAppend(&out, "complete -c sheaf -n ", condition, " -a ",
                      ShellQuoted(absl::StrJoin(command.values, " ")), "\n");
    }
    for (const std::string& option : command.options) {
      absl::StrAppend(&out, "complete -c sheaf -n ", condition, " -l ", option.substr(2), "\n");
    }
  }
  return out;
}

}  // namespace

std::string CompletionScript(std::string_view shell, const std::vector<CommandWords>& commands) {
  return shell == "bash" ? Bash(commands) : shell == "zsh" ? Zsh(commands) : Fish(commands);
}

}  // namespace sheaf::cli
