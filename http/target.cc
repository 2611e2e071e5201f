// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/target.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace sheaf::http {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

absl::StatusOr<Pairs> ParseQuery(std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (part.empty()) continue;
    if (pairs.size() == kMaxQueryPairs) {
      return absl::InvalidArgumentError(
          absl::StrCat("the query has more than ", kMaxQueryPairs, " parameters"));
    }
    const size_t equals = std::min(part.find('='), part.size());
    SHEAF_ASSIGN_OR_RETURN(std::string name, PercentDecoded(part.substr(0, equals), true));
    SHEAF_ASSIGN_OR_RETURN(std::string value,
                           PercentDecoded(part.substr(std::min(part.size(), equals + 1)), true));
    pairs.emplace_back(std::move(name), std::move(value));
  }
  return pairs;
}

// Proxies' form names the host once more; the Host header counts.
std::string_view WithoutOrigin(std::string_view target) {
  const size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return target;
  const size_t slash = target.find('/', scheme + 3);
  return slash == std::string_view::npos ? "/" : target.substr(slash);
}

}  // namespace

absl::StatusOr<std::string> PercentDecoded(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return absl::InvalidArgumentError(
            "the URL has a % that no two hexadecimal digits follow; write %25 for a percent sign");
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') return absl::InvalidArgumentError("the URL has a NUL byte");
    out += c;
  }
  return out;
}

absl::StatusOr<Target> ParseTarget(std::string_view text) {
  if (text.size() > kMaxTargetBytes) {
    return absl::OutOfRangeError(absl::StrCat("the URL has ", text.size(), " bytes; at most ",
                                              kMaxTargetBytes, " are read"));
  }
  text = WithoutOrigin(text);
  if (!text.starts_with('/')) {
    return absl::InvalidArgumentError("the request line names no path that begins with /");
  }
  text = text.substr(0, text.find('#'));
  const size_t question = std::min(text.find('?'), text.size());
  Target target;
  target.path = std::string(text.substr(0, question));
  std::string_view inner(target.path);
  inner.remove_prefix(1);
  if (inner.ends_with('/')) inner.remove_suffix(1);
  if (!inner.empty()) {
    for (const absl::string_view part :
         absl::StrSplit(absl::string_view(inner.data(), inner.size()), '/')) {
      SHEAF_ASSIGN_OR_RETURN(std::string segment,
                             PercentDecoded({part.data(), part.size()}, false));
      target.segments.push_back(std::move(segment));
    }
  }
  SHEAF_ASSIGN_OR_RETURN(target.query,
                         ParseQuery(text.substr(std::min(text.size(), question + 1))));
  return target;
}

}  // namespace sheaf::http
