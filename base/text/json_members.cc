// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/json_members.h"

#include <algorithm>
#include <cstddef>

#include "base/utf8.h"

namespace sheaf {
namespace {

constexpr int kMaxDepth = 32;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Goes through the text once. Each function stands behind what it has taken, and is false when that
// is not there.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool Object(std::vector<std::string_view>* names, int depth) {
    if (depth > kMaxDepth || !Take('{')) return false;
    if (Take('}')) return true;
    do {
      SkipSpace();
      const std::string_view begin = rest_;
      if (!String()) return false;
      if (names != nullptr) names->push_back(begin.substr(1, begin.size() - rest_.size() - 2));
      if (!Take(':') || !Value(depth)) return false;
    } while (Take(','));
    return Take('}');
  }
  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }
  std::string_view rest() const { return rest_; }

 private:
  void SkipSpace() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool Take(char wanted) {
    SkipSpace();
    if (rest_.empty() || rest_[0] != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool Value(int depth) {
    SkipSpace();
    if (rest_.empty()) return false;
    switch (rest_[0]) {
      case '{':
        return Object(nullptr, depth + 1);
      case '[':
        return Array(depth + 1);
      case '"':
        return String();
      default:
        return TakeWord("true") || TakeWord("false") || TakeWord("null") || Number();
    }
  }
  bool Array(int depth) {
    if (depth > kMaxDepth || !Take('[')) return false;
    if (Take(']')) return true;
    do {
      if (!Value(depth)) return false;
    } while (Take(','));
    return Take(']');
  }
  bool String() {
    if (rest_.empty() || rest_[0] != '"') return false;
    for (size_t at = 1; at < rest_.size(); ++at) {
      const char c = rest_[at];
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '"') {
        rest_.remove_prefix(at + 1);
        return true;
      }
      if (c != '\\') continue;
      if (++at >= rest_.size()) return false;
      if (rest_[at] == 'u') {
        for (int digit = 0; digit < 4; ++digit) {
          if (++at >= rest_.size() || !IsHex(rest_[at])) return false;
        }
      } else if (std::string_view("\"\\/bfnrt").find(rest_[at]) == std::string_view::npos) {
        return false;
      }
    }
    return false;
  }
  bool Digits() {
    const size_t count = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    rest_.remove_prefix(count);
    return count > 0;
  }
  bool Number() {
    TakeWord("-");
    if (!TakeWord("0") && !Digits()) return false;
    if (TakeWord(".") && !Digits()) return false;
    if (!TakeWord("e") && !TakeWord("E")) return true;
    if (!TakeWord("+")) TakeWord("-");
    return Digits();
  }

  std::string_view rest_;
};

}  // namespace

std::optional<JsonMembers> MembersOf(std::string_view json) {
  JsonMembers members;
  Scanner scanner(json);
  if (!scanner.Object(&members.names, 1)) return std::nullopt;
  const size_t begin = json.find('{') + 1;
  members.text = json.substr(begin, json.size() - scanner.rest().size() - 1 - begin);
  if (!scanner.AtEnd() || !IsUtf8(json)) return std::nullopt;
  std::vector<std::string_view> sorted = members.names;
  std::sort(sorted.begin(), sorted.end());
  const bool repeats = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  const bool escapes = std::any_of(sorted.begin(), sorted.end(), [](std::string_view name) {
    return name.find('\\') != std::string_view::npos;
  });
  if (repeats || escapes) return std::nullopt;
  return members;
}

}  // namespace sheaf
