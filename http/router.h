// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which handler answers which method and path.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/access.h"
#include "http/message.h"

namespace sheaf::http {

// Runs on the server's thread, where it may not wait: what takes longer answers from elsewhere.
using Handler = std::function<void(Request request, Reply reply)>;

// What a route does with a request's body.
enum class Body : uint8_t {
  kNone,    // What comes is dropped; more than 4 KiB is refused with 413.
  kMemory,  // Up to Limits::body_bytes, in Request::body.
  kFile,    // Up to Limits::file_bytes, in Request::body_file.
};

struct Route {
  std::string method;  // "GET" serves HEAD, too.
  // "/api/jobs/{id}/logs": {id} stands for one segment, which Request::captures names so;
  // "{rest*}" at the end for one or more, joined by slashes. Requests may end in a slash or not.
  std::string pattern;
  Right right = Right::kRead;
  Handler handler;
  Body body = Body::kNone;
  uint64_t most_body_bytes = UINT64_MAX;  // Of this route, where that is less than the limit above.
  bool web_socket = false;                // Others than WebSockets are refused with 400.
};

class Router {
 public:
  // The first of two routes that fit counts, so fixed ones are added before those with {names}.
  void Add(Route route);
  // Serves everybody who GETs a path that no route has, unless it begins with /api or /assets: the
  // pages of a site that finds its own way.
  void AddPages(Handler handler);
  const std::vector<Route>& routes() const { return routes_; }

  struct Match {
    const Route* route = nullptr;  // nullptr: none.
    Pairs captures;
    std::string allow;  // Where only the method does not fit: "GET, HEAD". Else empty.
  };
  // Valid until the next Add.
  Match Find(std::string_view method, const std::vector<std::string>& segments) const;

 private:
  std::vector<Route> routes_;
  std::vector<std::vector<std::string>> patterns_;  // Of each route, by segments.
  std::optional<Route> pages_;
};

}  // namespace sheaf::http
