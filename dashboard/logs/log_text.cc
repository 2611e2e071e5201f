// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "dashboard/logs/log_text.h"

#include "base/text/json.h"

namespace sheaf::dashboard {
namespace {

constexpr char kEscape = '\x1b';

// How much of `text` is there without a character at its end whose other bytes are still to come.
size_t WholeCharacters(std::string_view text) {
  const size_t begin = text.size() < 4 ? 0 : text.size() - 4;
  for (size_t at = text.size(); at > begin; --at) {
    const auto byte = static_cast<unsigned char>(text[at - 1]);
    if (byte < 0x80) return text.size();
    if (byte < 0xC0) continue;                           // In the middle of one.
    if (byte < 0xC2 || byte > 0xF4) return text.size();  // Of none.
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return at - 1 + length > text.size() ? at - 1 : text.size();
  }
  return text.size();
}

std::string InJson(std::string_view text) {
  std::string quoted = JsonString(text);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

std::string LogText::Next(std::string_view bytes) {
  std::string text = std::move(cut_);
  text.append(bytes);
  cut_ = text.substr(WholeCharacters(text));
  text.resize(text.size() - cut_.size());
  return Formed(text);
}

std::string LogText::Last() {
  const std::string rest = std::move(cut_);
  cut_.clear();
  return Formed(rest);
}

std::string LogText::Words(std::string_view text) {
  if (text.empty()) return "";
  std::string line = ends_line_ ? "" : "\n";
  line.append(text);
  ends_line_ = text.ends_with('\n');
  return form_ == Form::kInJson ? InJson(line) : line;
}

std::string LogText::Formed(std::string_view text) {
  if (!text.empty()) ends_line_ = text.ends_with('\n');
  switch (form_) {
    case Form::kWithoutAnsiCodes:
      return WithoutCodes(text);
    case Form::kInJson:
      return InJson(text);
    default:
      return std::string(text);
  }
}

std::string LogText::WithoutCodes(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    if (at_ == At::kCode) {
      if (byte >= 0x40 && byte <= 0x7e) at_ = At::kText;  // Its final byte.
      continue;
    }
    if (at_ == At::kEscape) {
      at_ = byte == '[' ? At::kCode : At::kText;
      if (at_ == At::kCode) continue;
      out += kEscape;
    }
    if (byte == kEscape) {
      at_ = At::kEscape;
    } else {
      out += byte;
    }
  }
  return out;
}

}  // namespace sheaf::dashboard
