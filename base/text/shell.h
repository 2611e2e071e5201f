// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Words of command lines that are printed for people to run.
#pragma once

#include <string>
#include <string_view>

namespace sheaf {

// `text` in single quotes, as one word of any shell.
std::string ShellQuoted(std::string_view text);
// The same, but as it is where no shell reads anything into it.
std::string ShellWord(std::string_view text);

}  // namespace sheaf
