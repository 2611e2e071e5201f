// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/access.h"

namespace sheaf::http {
namespace {

constexpr Verdict kAllowed{};
constexpr Verdict kReadOnly{403, "This server is read-only."};

// Of a caller without a token, whose request a foreign page may have caused.
Verdict JudgeOrigin(const AccessRules& rules, const Caller& caller) {
  // A page that was loaded from a name that its owner has since pointed at this machine calls the
  // machine by that name.
  if (rules.trust != Trust::kTokenOnly && !caller.host_known) {
    return {403, "This Host is not served here."};
  }
  if (caller.origin == Origin::kOther || caller.cross_site ||
      (caller.web_socket && caller.origin == Origin::kSameHost)) {
    return {403, "Pages from elsewhere are not answered here."};
  }
  return kAllowed;
}

bool Identified(const AccessRules& rules, const Caller& caller) {
  if (caller.credential == Credential::kCookie || caller.credential == Credential::kCertificate) {
    return true;
  }
  switch (rules.trust) {
    case Trust::kAnyLocalUser:
      return true;
    case Trust::kSameUser:
      return caller.trusted_user;
    case Trust::kTokenOnly:
      return false;
  }
  return false;
}

Verdict JudgeChange(const AccessRules& rules, const Caller& caller) {
  if (rules.trust == Trust::kAnyLocalUser) return {403, "Here one can only look."};
  const bool page = caller.browser || caller.credential == Credential::kCookie;
  if (!page) return kAllowed;
  if (rules.trust == Trust::kTokenOnly && !rules.writable_pages) {
    return {403,
            "Pages can only look here, "
            "unless it was started with --dashboard-writable (sheaf start) or --writable "
            "(sheaf dashboard)."};
  }
  // A cookie of this host and port, Origin = Host and a header that foreign pages cannot send prove
  // the page where its browser does not say more. Who is known by the socket alone has to say it.
  const bool own_page =
      caller.same_origin_fetch || (caller.credential == Credential::kCookie && !caller.says_site);
  if (caller.origin != Origin::kSame || !own_page || !caller.page_header) {
    return {403, "A browser changes something only from the dashboard's own page."};
  }
  return kAllowed;
}

}  // namespace

Verdict Judge(const AccessRules& rules, Right right, const Caller& caller) {
  if (right == Right::kOpen) return kAllowed;
  if (caller.credential == Credential::kWrongToken) return {403, "The token is wrong."};
  if (caller.credential == Credential::kToken) {
    return right == Right::kChange && rules.read_only ? kReadOnly : kAllowed;
  }
  if (const Verdict origin = JudgeOrigin(rules, caller); !origin.allowed()) return origin;
  if (!Identified(rules, caller)) {
    return {401, rules.trust == Trust::kSameUser
                     ? "This server answers its own user, root, and who has the token."
                     : "The token is missing."};
  }
  if (right == Right::kRead) return kAllowed;
  return rules.read_only ? kReadOnly : JudgeChange(rules, caller);
}

}  // namespace sheaf::http
