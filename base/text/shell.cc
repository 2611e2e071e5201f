// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/shell.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace sheaf {

std::string ShellQuoted(std::string_view text) {
  const absl::string_view words(text.data(), text.size());
  return absl::StrCat("'", absl::StrReplaceAll(words, {{"'", "'\\''"}}), "'");
}

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain = "_-+=:,./@%";
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kPlain.find(c) != std::string_view::npos;
  });
  return plain ? std::string(text) : ShellQuoted(text);
}

}  // namespace sheaf
