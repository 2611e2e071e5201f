// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "cli/observe/redaction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace sheaf::cli {
namespace {

constexpr size_t kLeastSecret = 8;

bool NamesSecret(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
  for (const char* word : {"token", "secret", "passw", "credential", "key", "auth"}) {
    if (absl::StrContains(lower, word)) return true;
  }
  return false;
}

// Settings whose values say where and how a node runs, and nothing of who uses it.
bool MayBeShown(std::string_view name) {
  return (name.starts_with("SHEAF_") || name.starts_with("RAY_")) && !NamesSecret(name) &&
         name != "SHEAF_RUNTIME_ENVIRONMENT" && name != "RAY_JOB_CONFIG_JSON_ENV_VAR";
}

std::pair<std::string_view, std::string_view> Parts(std::string_view variable) {
  const size_t end = std::min(variable.find('='), variable.size());
  return {variable.substr(0, end), variable.substr(std::min(end + 1, variable.size()))};
}

}  // namespace

void Redaction::Hide(std::string secret) {
  secret = std::string(absl::StripAsciiWhitespace(secret));
  if (secret.size() < kLeastSecret) return;
  secrets_.push_back(std::move(secret));
  // One that is a part of another one comes behind it.
  std::sort(secrets_.begin(), secrets_.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

void Redaction::HideIn(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const auto [name, value] = Parts(variable);
    // The name of a file is none, what is in it may be.
    if (NamesSecret(name) && !value.starts_with('/')) Hide(std::string(value));
  }
}

std::string Redaction::Apply(std::string text) const {
  for (const std::string& secret : secrets_) {
    if (absl::StrContains(text, secret))
      text = absl::StrReplaceAll(text,
                                 {{secret, absl::string_view(kRedacted.data(), kRedacted.size())}});
  }
  return text;
}

std::string Redaction::ShowVariables(const std::vector<std::string>& variables) {
  std::vector<std::string> lines;
  for (const std::string& variable : variables) {
    const auto [name, value] = Parts(variable);
    if (name.empty()) continue;
    const std::string_view shown = MayBeShown(name) ? value : kRedacted;
    lines.push_back(absl::StrCat(absl::string_view(name.data(), name.size()), "=",
                                 absl::string_view(shown.data(), shown.size()), "\n"));
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace sheaf::cli
