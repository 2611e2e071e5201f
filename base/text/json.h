// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Writes JSON by hand: the messages are protobuf-lite, which cannot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sheaf {

// With quotes. Control characters are escaped; bytes that are not UTF-8 become U+FFFD.
std::string JsonString(std::string_view text);
std::string JsonNumber(int64_t number);
std::string JsonNumber(uint64_t number);
std::string JsonNumber(double number);  // Infinities and NaN become null.
// An amount of a resource (base/resources.h) in whole units; bytes without a fraction.
std::string JsonAmount(std::string_view resource, int64_t amount);
inline std::string JsonBool(bool value) { return value ? "true" : "false"; }

// {"a":1,"b":[...]}: `value` is JSON already.
class JsonObject {
 public:
  JsonObject& Add(std::string_view key, std::string_view value);
  std::string Done() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

class JsonArray {
 public:
  JsonArray& Add(std::string_view value);
  std::string Done() const { return text_ + "]"; }

 private:
  std::string text_ = "[";
};

}  // namespace sheaf
