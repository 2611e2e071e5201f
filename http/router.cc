// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/router.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace sheaf::http {
namespace {

bool Fits(const std::vector<std::string>& pattern, const std::vector<std::string>& segments,
          Pairs& captures) {
  captures.clear();
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (i >= segments.size()) return false;
    const std::string_view part = pattern[i];
    if (!part.starts_with('{')) {
      if (part != segments[i]) return false;
      continue;
    }
    std::string_view name = part.substr(1, part.size() - 2);
    if (name.ends_with('*')) {
      name.remove_suffix(1);
      captures.emplace_back(name, absl::StrJoin(segments.begin() + i, segments.end(), "/"));
      return true;
    }
    captures.emplace_back(name, segments[i]);
  }
  return pattern.size() == segments.size();
}

}  // namespace

void Router::Add(Route route) {
  SHEAF_CHECK(route.pattern.starts_with('/') && route.handler != nullptr,
              "a route has a path and a handler");
  patterns_.push_back(absl::StrSplit(route.pattern, '/', absl::SkipEmpty()));
  routes_.push_back(std::move(route));
}

void Router::AddPages(Handler handler) {
  pages_ = {.method = "GET", .pattern = "/", .right = Right::kOpen, .handler = std::move(handler)};
}

Router::Match Router::Find(std::string_view method,
                           const std::vector<std::string>& segments) const {
  Match match;
  std::vector<std::string> methods;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (!Fits(patterns_[i], segments, match.captures)) continue;
    if (routes_[i].method == wanted) {
      match.route = &routes_[i];
      return match;
    }
    methods.push_back(routes_[i].method);
    if (routes_[i].method == "GET") methods.emplace_back("HEAD");
  }
  match.captures.clear();
  const bool is_page = pages_.has_value() && wanted == "GET" && methods.empty() &&
                       (segments.empty() || (segments[0] != "api" && segments[0] != "assets"));
  if (is_page) match.route = &*pages_;
  match.allow = absl::StrJoin(methods, ", ");
  return match;
}

}  // namespace sheaf::http
