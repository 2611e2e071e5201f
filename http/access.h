// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Who may what: the one place that decides it for every route. Pure; SECURITY.md has the table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sheaf::http {

// What a route lets its caller do.
enum class Right : uint8_t {
  kOpen,    // For everybody: health, the login, the files of the page.
  kRead,    // Says what the cluster does.
  kChange,  // Changes what the cluster does.
};

// Whom a listener believes without a token.
enum class Trust : uint8_t {
  kAnyLocalUser,  // Only for figures on loopback: whoever reaches it may read, nobody changes.
  kSameUser,      // On loopback: processes of the server's own user, and of root.
  kTokenOnly,     // Nobody: all that is reachable from other machines.
};

struct AccessRules {
  Trust trust = Trust::kSameUser;
  bool read_only = false;       // Nobody changes anything.
  bool writable_pages = false;  // Who logged in with a token's cookie may change, too.
};

// By what a caller is known.
enum class Credential : uint8_t { kNone, kWrongToken, kToken, kCookie, kCertificate };

// What a browser says of the page that asks; other programs say nothing.
enum class Origin : uint8_t {
  kNone,      // No Origin header.
  kSame,      // The page comes from here.
  kSameHost,  // From another port of this machine.
  kOther,
};

struct Caller {
  Credential credential = Credential::kNone;
  bool trusted_user = false;  // Its socket belongs to the server's user or to root.
  bool host_known = false;    // The Host header names this server.
  bool browser = false;
  Origin origin = Origin::kNone;
  bool cross_site = false;         // Sec-Fetch-Site says neither same-origin nor none.
  bool same_origin_fetch = false;  // Sec-Fetch-Site: same-origin.
  bool says_site = false;    // Sec-Fetch-Site is there: not over plain HTTP from another machine.
  bool page_header = false;  // X-Sheaf, which no form can send and no foreign page may.
  bool web_socket = false;   // The browser does not keep its answers from foreign pages.
};

struct Verdict {
  int status = 200;        // 200: go on. 401: who are you? 403: not you.
  std::string_view words;  // Why not.
  bool allowed() const { return status == 200; }
};

Verdict Judge(const AccessRules& rules, Right right, const Caller& caller);

}  // namespace sheaf::http
