// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What of a node must not leave its machine, taken out of texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sheaf::cli {

inline constexpr std::string_view kRedacted = "<redacted>";

class Redaction {
 public:
  // `secret` is nowhere in what Apply gives. Shorter ones than 8 bytes are no secrets: they would
  // turn up anywhere.
  void Hide(std::string secret);
  // Hides the values of variables ("NAME=value") whose names say that they are secrets: with token,
  // secret, password, credential or key in them.
  void HideIn(const std::vector<std::string>& variables);
  std::string Apply(std::string text) const;

  // `variables` by line; of those that are not Sheaf's own settings, and of secrets, without the
  // values.
  static std::string ShowVariables(const std::vector<std::string>& variables);

 private:
  std::vector<std::string> secrets_;
};

}  // namespace sheaf::cli
