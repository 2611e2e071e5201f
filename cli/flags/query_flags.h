// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The options that many commands have, and how the help shows them.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/query.h"

namespace sheaf::cli {

// `type` is what stands for the value in the help.
template <class Value>
CLI::Option* AddTyped(CLI::App* command, const char* name, Value& value, const char* type,
                      const char* help) {
  return command->add_option(name, value, help)->type_name(type);
}
inline void AddJson(CLI::App* command, QueryOptions& query) {
  command->add_flag("--json", query.json, "Print JSON, for programs");
}
inline void AddTimeout(CLI::App* command, QueryOptions& query, const char* help) {
  command
      ->add_option_function<double>(
          "--timeout",
          [&query](double seconds) { query.timeout = static_cast<Nanos>(seconds * kSecond); }, help)
      ->check(CLI::Range(0.001, 1e6))
      ->type_name("SECONDS")
      ->default_str("10");
}
inline void AddQueryOptions(CLI::App* command, QueryOptions& query) {
  AddTyped(command, "--address", query.address, "DIR",
           "Session directory of the node, or a directory of sessions (default: "
           "SHEAF_ADDRESS, else the newest node)");
  AddJson(command, query);
  AddTimeout(command, query, "Seconds to wait for an answer");
}

}  // namespace sheaf::cli
