// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The bytes of a log, as they come in pieces, in the form that a viewer wants. A character or a code
// of a terminal that is cut between two pieces counts as whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sheaf::dashboard {

class LogText {
 public:
  enum class Form : uint8_t {
    kAsItIs,
    kWithoutAnsiCodes,  // That colour a terminal.
    kInJson,            // Within a string of JSON.
  };
  explicit LogText(Form form) : form_(form) {}

  // How many bytes one byte of a log may become.
  size_t most_per_byte() const { return form_ == Form::kInJson ? 6 : 1; }  // "\u0000".

  std::string Next(std::string_view bytes);
  // What is left of a character that has not come whole.
  std::string Last();
  // What was not in the log itself, on a line of its own.
  std::string Words(std::string_view text);

 private:
  std::string Formed(std::string_view text);
  std::string WithoutCodes(std::string_view text);

  const Form form_;
  std::string cut_;  // The beginning of a character.
  bool ends_line_ = true;
  enum class At : uint8_t { kText, kEscape, kCode } at_ = At::kText;
};

}  // namespace sheaf::dashboard
