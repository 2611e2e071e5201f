// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/json.h"

#include <charconv>
#include <cmath>

#include "base/resources.h"
#include "base/utf8.h"

namespace sheaf {
namespace {

template <class Number>
std::string Digits(Number number) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number).ptr;
  return std::string(buffer, end);
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    const std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    const unsigned char first = static_cast<unsigned char>(character[0]);
    if (first == '"' || first == '\\') {
      out += '\\';
      out += character;
    } else if (first == '\n') {
      out += "\\n";
    } else if (first == '\t') {
      out += "\\t";
    } else if (first < 0x20 || first == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[first >> 4];
      out += kHex[first & 15];
    } else {
      out += character;
    }
  }
  return out + "\"";
}

std::string JsonNumber(int64_t number) { return Digits(number); }
std::string JsonNumber(uint64_t number) { return Digits(number); }
std::string JsonNumber(double number) { return std::isfinite(number) ? Digits(number) : "null"; }

std::string JsonAmount(std::string_view resource, int64_t amount) {
  const bool in_bytes = resource == "memory" || resource == "object_store_memory";
  return in_bytes ? JsonNumber(amount / kUnit) : JsonNumber(static_cast<double>(amount) / kUnit);
}

JsonObject& JsonObject::Add(std::string_view key, std::string_view value) {
  if (text_.size() > 1) text_ += ',';
  text_ += JsonString(key);
  text_ += ':';
  text_ += value;
  return *this;
}

JsonArray& JsonArray::Add(std::string_view value) {
  if (text_.size() > 1) text_ += ',';
  text_ += value;
  return *this;
}

}  // namespace sheaf
